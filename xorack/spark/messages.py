"""Spark's errors in one line, without Java's stack traces; those of our code in a task as ours."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from xorack.core.errors import ArgumentError, XorAckError
from xorack.core.masking import masked_paths
from xorack.errors import ColumnsError

_THROWN = re.compile(r"^(?:: |Caused by: )(?:[\w.$]+\.\w+: )?(.+)", re.MULTILINE)
"""The message of a Java exception, or of one of its causes, in what Spark's clients raise."""
_TASK = re.compile(r"^Job aborted due to stage failure: .*?\): (?:[\w.$]+: )?")
"""The words of Spark 3 before the error of a task."""
_FRAME = re.compile(r"^(?:\[[A-Z][\w.]*\] )|\s*(?:; line \d+ pos \d+)?;?$|\s*SQLSTATE: \w+.*")
_MAX = 400
_OURS = re.compile(
    r"^(?:[\w.]*xorack[\w.]*\.(?P<error>\w+): |.*?\bxorack: )(?P<text>.*?)"
    r"(?: SQLSTATE: \w+)?$",
    re.MULTILINE,
)
"""A line of ours in what Spark raises: of an error in a task, or of `raise_error`."""


def one_line(error: BaseException, mask: Collection[str] = ()) -> str:
    """Describe an error of Spark in one line: what failed, and the cause at its root.

    In its paths, the values of masked columns are hashes.
    """
    text = str(error).strip()
    thrown: list[str] = _THROWN.findall(text)
    if not thrown or not text.startswith("An error occurred while calling"):  # py4j's, no message
        thrown.insert(0, text.partition("\n")[0])
    first, last = (_FRAME.sub("", _TASK.sub("", thrown[n].strip())) for n in (0, -1))
    line = first if last in first else f"{first.rstrip('.')}: {last}"
    line = line or type(error).__name__
    return masked_paths(line if len(line) <= _MAX else line[:_MAX] + "...", mask)


@contextmanager
def plain_errors(other: type[XorAckError] = ColumnsError) -> Iterator[None]:
    """Turn an error that our code raised in a task into one of ours, or `other`, in one line."""
    try:
        yield
    except XorAckError:
        raise
    except Exception as error:
        match = _OURS.search(str(error))
        if match is None:
            raise
        kind = ColumnsError if match["error"] == "ColumnsError" else other
        raise kind(match["text"]) from None


@contextmanager
def readable(option: str, problem: str, mask: Collection[str] = ()) -> Iterator[None]:
    """Raise Spark's errors about the data of an option as an `ArgumentError` of one line."""
    try:
        with plain_errors():
            yield
    except XorAckError:
        raise
    except Exception as error:  # noqa: BLE001 - of Java
        cause = None if mask else error  # its text has the paths as they are
        raise ArgumentError(option, problem=f"{problem}: {one_line(error, mask)}") from cause
