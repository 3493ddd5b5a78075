"""What our code raised in a task of Spark, as one of our errors in one line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from xorack.core.errors import ColumnsError, XorAckError

__all__ = ["plain_errors"]

_OURS = re.compile(
    r"^(?:[\w.]*xorack[\w.]*\.(?P<error>\w+): |.*?\bxorack: )(?P<text>.*?)"
    r"(?: SQLSTATE: \w+)?$",
    re.MULTILINE,
)
"""A line of ours in what Spark raises: of an error in a task, or of `raise_error`."""


@contextmanager
def plain_errors(other: type[XorAckError] = ColumnsError) -> Iterator[None]:
    """Turn an error that our code raised in a task into one of ours, in one line.

    Args:
        other: The class for texts that name no class.

    Raises:
        XorAckError: Our code failed in a task. Other errors pass.
    """
    try:
        yield
    except XorAckError:
        raise
    except Exception as error:
        match = _OURS.search(str(error))
        if match is None:
            raise
        raise _CLASSES.get(match["error"] or "", other)(match["text"]) from None


_CLASSES: dict[str, type[XorAckError]] = {"ColumnsError": ColumnsError}
