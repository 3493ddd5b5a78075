"""Spark's errors in one line, without Java's stack traces, and xorack's own errors in tasks."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from xorack.core.errors import ArgumentError, XorAckError
from xorack.core.masking import masked, masked_paths
from xorack.errors import ColumnsError

_THROWN = re.compile(r"^(?:: |Caused by: )(?:[\w.$]+\.\w+: )?(.+)", re.MULTILINE)
"""The message of a Java exception or of a cause, in an error of Spark's clients."""
_TASK = re.compile(r"^Job aborted due to stage failure: .*?\): (?:[\w.$]+: )?")
"""The text that Spark 3 puts before the error of a task."""
_PYTHON = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(([\w.]+).*)")
"""The last line of Python's traceback, and its error, in an error of Spark."""
_FRAME = re.compile(r"^(?:\[[A-Z][\w.]*\] )|\s*(?:; line \d+ pos \d+)?;?$|\s*SQLSTATE: \w+.*")
_MAX = 400
_VALUE = re.compile(r"(?<=he value ).+?(?= of the type)|(?<=ecord: ).+|(?<=ecords: ).+|'[^'/\n]*'")
"""A value of a row in an error of Spark."""
_OURS = re.compile(
    r"^(?:[\w.]*xorack[\w.]*\.(?P<error>\w+): |.*?\bxorack: )(?P<text>.*?)"
    r"(?: SQLSTATE: \w+)?$",
    re.MULTILINE,
)
"""A line of xorack in an error of Spark, from an error in a task or from `raise_error`."""


def one_line(error: BaseException, mask: Collection[str] = ()) -> str:
    """Describe an error of Spark in one line: the failure and its root cause.

    If columns are masked, hashes replace the values of rows, and of these columns in paths.
    """
    text = str(error).strip()
    thrown: list[str] = _THROWN.findall(text)
    if not thrown or not text.startswith("An error occurred while calling"):  # of py4j
        thrown.insert(0, text.partition("\n")[0])
    first, last = (_FRAME.sub("", _TASK.sub("", thrown[n].strip())) for n in (0, -1))
    line = first if last in first else f"{first.rstrip('.')}: {last}"
    if raised := _PYTHON.findall(text):
        said, kind = raised[-1]  # without quotes, a value in it cannot be recognized
        line = f"a Python function raised {kind if mask else said}"
    line = line or type(error).__name__
    if mask:
        line = _VALUE.sub(lambda value: masked(value[0]), line)
    return masked_paths(line if len(line) <= _MAX else line[:_MAX] + "...", mask)


@contextmanager
def plain_errors(other: type[XorAckError] = ColumnsError) -> Iterator[None]:
    """Raise xorack's own error in a task as a `ColumnsError` if it was one, or else as `other`."""
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
        cause = None if mask else error  # the error's text has unmasked paths
        raise ArgumentError(option, problem=f"{problem}: {one_line(error, mask)}") from cause
