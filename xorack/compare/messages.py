"""Errors of DuckDB, in one line that names the input, the line and what was expected."""

from __future__ import annotations

import codecs
import gzip
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from xorack.core.errors import StateError, XorAckError

__all__ = ["one_line", "reading"]

_CHUNK_BYTES = 1 << 20


@contextmanager
def reading(name: str, files: Sequence[str] = ()) -> Iterator[None]:
    """Turn an error of DuckDB into one of ours that names the input."""
    try:
        yield
    except XorAckError:
        raise
    except Exception as error:
        text = str(error)
        if place := re.search(r"^\s*file = (.*)$", text, re.MULTILINE):
            files = [place[1].strip()]
        if "not utf-8 encoded" in text and files:
            raise StateError(f"{name}: {_wrong_byte(files[0])}") from error
        raise StateError(f"{name}: {_csv_error(text) or one_line(error)}") from error


def _csv_error(text: str) -> str | None:
    """Say what is wrong with a line of CSV."""
    if "state machine reached an invalid state" in text:
        return "its lines end in different ways, or a quote is inside of a field without quotes"
    found = re.search(
        r"CSV Error on Line: (\d+)\s+(?:Original Line: (.*?)\n)?(.*?)\n", text + "\n", re.S
    )
    if not found:
        return None
    number, line, problem = found.groups()
    if count := re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", text):
        problem = f"expected {count[1]} fields, found {count[2]}"
    elif "unterminated quote" in text:
        problem = "a quote is not closed"
    shown = " ".join((line or "").split())[:80]
    return f"line {number}: {problem.strip().rstrip('.')}{f': {shown}' * bool(shown)}"


def _wrong_byte(file: str) -> str:
    """Say which byte of a file is not UTF-8, and where."""
    advice = "if the file is in Latin-1, use --encoding latin-1"
    if not os.path.exists(file):
        return f"{file} is not UTF-8: {advice}"
    decoder, at, lines = codecs.getincrementaldecoder("utf-8")(), 0, 1
    with (gzip.open if file.lower().endswith(".gz") else open)(file, "rb") as handle:
        while chunk := handle.read(_CHUNK_BYTES):
            held = len(decoder.getstate()[0])
            try:
                decoder.decode(chunk)
            except UnicodeDecodeError as error:
                place = at - held + error.start
                lines += error.object[: error.start].count(b"\n")
                byte = error.object[error.start]
                return f"{file}: byte {place}, 0x{byte:02x} in line {lines}, is not UTF-8: {advice}"
            at, lines = at + len(chunk), lines + chunk.count(b"\n")
    return f"{file} is not UTF-8: {advice}"


def one_line(error: BaseException) -> str:
    """Return the first line of an error of DuckDB, with its hint."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
