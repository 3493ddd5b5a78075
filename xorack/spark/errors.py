"""Errors of jobs that use `xorack.spark`, and one-line forms of what Spark raises."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from xorack.core.errors import XorAckError

__all__ = [
    "DuplicateUnits",
    "InvalidOption",
    "LabelInUse",
    "NotDeterministic",
    "NotSent",
    "NotStarted",
    "OutputDiffers",
    "RowsChanged",
    "UnsuitableColumns",
    "plain_errors",
]

_OURS = re.compile(
    r"^(?:[\w.]*xorack[\w.]*\.(?P<error>\w+): |.*?\bxorack: )(?P<text>.*?)"
    r"(?: SQLSTATE: \w+)?$",
    re.MULTILINE,
)
"""A line of ours in what Spark raises: of an error in a task, or of `raise_error`."""


class InvalidOption(XorAckError, ValueError):
    """An option is missing or invalid.

    Attributes:
        option: Its name.
        problem: What is wrong with it.
    """

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"option {option}: {problem}")
        self.option = option
        self.problem = problem


class UnsuitableColumns(XorAckError, ValueError):
    """A frame lacks columns, or their types or values are unsuitable."""


class DuplicateUnits(XorAckError, ValueError):
    """Several rows have one unit: they would cancel each other out."""


class RowsChanged(XorAckError):
    """A run and name are used for other rows than before."""


class LabelInUse(XorAckError):
    """Another name has started the chains of this run and label."""


class NotDeterministic(XorAckError):
    """A frame gave other rows when it was read again."""


class NotStarted(XorAckError):
    """There is no record of a start of this run and name."""


class NotSent(XorAckError):
    """Not all requests were sent. The same call sends them again, with the same ids."""


class OutputDiffers(XorAckError):
    """What was written is not what was started: the job lost rows, or has too many.

    Attributes:
        started: Units that were started, or that the job's input has.
        written: Units that the output has.
        chains: Some of the chains, as ``tag (written of started)``; empty if the output has no
            columns that tell chains apart.
    """

    def __init__(self, name: str, started: int, written: int, chains: Sequence[str] = ()) -> None:
        count = f"{written:,} of {started:,} units of {name!r} are in the output"
        if written == started:
            count = f"the output has {written:,} units of {name!r}, but not those that were started"
        which = f"; chains: {', '.join(chains)}" if chains else ""
        super().__init__(f"{count}: nothing was sent for what differs{which}")
        self.started = started
        self.written = written
        self.chains = tuple(chains)


@contextmanager
def plain_errors(other: type[XorAckError] = UnsuitableColumns) -> Iterator[None]:
    """Turn an error that our code raised in a task into one of ours, in one line.

    Args:
        other: The class for errors that are not of this module.

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


_CLASSES: dict[str, type[XorAckError]] = {"UnsuitableColumns": UnsuitableColumns}
