"""The words of one file, of any size and encoding, read in pieces.

A piece is 1 MiB, so memory does not grow with the file, and several tasks can share it. Piece k has
the words that *begin* in the bytes from k MiB to k+1 MiB. A word's position is the first byte of
its piece plus its number among the piece's words. So positions depend on the content alone, not on
how a run spreads the pieces over tasks. (There are never more words than bytes.)

Encodings in which a character can be found from the middle of a file are cut so: UTF-8, UTF-16,
UTF-32 and those of one byte a character. One task reads a file of another encoding (Shift JIS,
GB 18030, ISO 2022, UTF-7, ...) from its beginning, also in pieces.
"""

from __future__ import annotations

import codecs
import importlib
from collections.abc import Iterator
from itertools import chain
from typing import BinaryIO, NamedTuple

from pipeline.errors import JobError, UnreadableFile
from pipeline.words import LONGEST_WORD, leading_run, normalized

__all__ = ["PIECE", "Encoding", "Piece", "encoding_named", "read_words"]

PIECE = 1 << 20
"""Bytes of a piece. Positions depend on it: another number gives words other ids."""
_AHEAD = 1 << 16
"""Bytes read at a time to finish the last word of a piece."""
_LONGEST_CHARACTER = 4
_UNITS = {"ascii": 1, "iso8859-1": 1, "utf-8": 1, "utf-16": 4, "utf-16-le": 2, "utf-16-be": 2}
_UNITS |= dict.fromkeys(("utf-32", "utf-32-le", "utf-32-be"), 4)
_MARKS = {
    "utf-16": {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be", b"": "utf-16-le"},
    "utf-32": {b"\xff\xfe\0\0": "utf-32-le", b"\0\0\xfe\xff": "utf-32-be", b"": "utf-32-le"},
}
_NOT_TEXT = ("idna", "punycode", "undefined", "mbcs", "oem")


class Encoding(NamedTuple):
    """An encoding by Python's name.

    Its unit is the number of bytes at whose multiples a file can be cut; 0 if it cannot.
    """

    name: str
    unit: int


class Piece(NamedTuple):
    """The words of a piece: the position of the first, and all of them as `normalized` text."""

    position: int
    text: bytes


def encoding_named(name: str) -> Encoding:
    """Look up an encoding by any name that Python knows: ``UTF-8``, ``latin-1``, ``cp1252``.

    Raises:
        JobError: There is no such encoding, or it is not an encoding of text.
    """
    try:
        codec = codecs.lookup(name)
    except (LookupError, ValueError):
        raise JobError(f"encoding {name!r} is not known") from None
    known = codec.name.replace("_", "-").removesuffix("-sig")  # the mark is a separator of words
    if not getattr(codec, "_is_text_encoding", True) or known in _NOT_TEXT:
        raise JobError(f"encoding {name!r} is not one of text files")
    # Python's encodings of one byte a character are tables.
    module = importlib.import_module(codec.streamreader.__module__)
    return Encoding(known, _UNITS.get(known, int(hasattr(module, "decoding_table"))))


def read_words(
    file: BinaryIO, start: int, end: int, size: int, encoding: Encoding
) -> Iterator[Piece]:
    """Read the words that begin in a part of a file.

    Args:
        file: The file, open for reading.
        start: The part's first byte, a multiple of `PIECE`; 0 for encodings without a unit.
        end: The byte after its last, a multiple of `PIECE` or ``size``; ``size`` for encodings
            without a unit.
        size: The file's size in bytes.
        encoding: The encoding of the text.

    Yields:
        The pieces that have words, in order.

    Raises:
        UnreadableFile: It is not text in this encoding, has a word of more than a million
            characters, or is shorter than ``size``.
        OSError: As from the file.
    """
    name = encoding.name
    if name in _MARKS:
        file.seek(0)
        beginning = file.read(4)
        name = next(known for mark, known in _MARKS[name].items() if beginning.startswith(mark))
    decoder = codecs.getincrementaldecoder(name)()
    at, inside = _begin(file, start, size, name)
    held: str | None = None if inside else ""  # a word that began before the part is not its own
    held_at = start
    for first in chain(range(start, end, PIECE), range(end, size, _AHEAD)):
        if first >= end and not inside:
            break
        last = min(first + (PIECE if first < end else _AHEAD), size)
        data = _read(file, at, min(last + _LONGEST_CHARACTER, size))
        data = data[: _boundary(data, last - at, name)] if encoding.unit else data[: last - at]
        try:
            text = decoder.decode(data, final=bool(encoding.unit) or last == size)
        except UnicodeError as error:
            why = str(error)
            if isinstance(error, UnicodeDecodeError):
                place = f"at byte {at + error.start}" if encoding.unit else f"from byte {at} on"
                why = f"{error.reason} {place}"
            raise UnreadableFile(f"is not {name}: {why}") from None
        at += len(data)
        run = leading_run(text) if inside else 0
        if held is not None:
            held += text[:run]
            if leading_run(held[-LONGEST_WORD - 1 :]) > LONGEST_WORD:
                raise UnreadableFile(f"has a word of more than {LONGEST_WORD} characters")
        if run == len(text):
            continue
        if held and (found := normalized(held)):
            yield Piece(held_at, found)
        held, held_at = text[run:] if first < end else None, first
        inside = first < end and leading_run(text[-1]) > 0
    if held and (found := normalized(held)):
        yield Piece(held_at, found)


def _begin(file: BinaryIO, start: int, size: int, name: str) -> tuple[int, bool]:
    """Return where the first character of a part begins, and whether a word goes on there."""
    before = max(start - _LONGEST_CHARACTER, 0)
    data = _read(file, before, min(start + _LONGEST_CHARACTER, size))
    at = _boundary(data, start - before, name) if start else 0
    return before + at, leading_run(data[:at].decode(name, "replace")[-1:]) > 0


def _boundary(data: bytes, at: int, name: str) -> int:
    """Return the first place from ``at`` on where a character begins, or the end of the data."""
    if name == "utf-8":
        # At most three bytes continue a character; more of them are an error for the decoder.
        places = range(at, min(at + 3, len(data)))
        return next((p for p in places if data[p] & 0xC0 != 0x80), min(at + 3, len(data)))
    if name.startswith("utf-16") and 0 < at <= len(data) - 2:
        unit = int.from_bytes(data[at : at + 2], "little" if name.endswith("le") else "big")
        return at + 2 if 0xDC00 <= unit < 0xE000 else at
    return at


def _read(file: BinaryIO, start: int, end: int) -> bytes:
    file.seek(start)
    data = b""
    while len(data) < end - start:
        more = file.read(end - start - len(data))
        if not more:
            raise UnreadableFile("changed while it was being read: it became shorter")
        data = data + more if data else more
    return data
