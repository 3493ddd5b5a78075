"""The words of one file, of any size and encoding, read in pieces.

A piece is 1 MiB, so memory does not grow with the file. Piece k has
the words that *begin* in the bytes from k MiB to k+1 MiB. A word's position is the first byte of
its piece plus its number among the piece's words: it depends on the content alone, not on how a run
spreads the pieces over tasks. (There are never more words than bytes.)

Several tasks can share a file in UTF-8, or in an encoding of one byte a character. One task reads a
file in another one (UTF-16, Shift JIS, ISO 2022, ...).
"""

import codecs
import importlib
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from pipeline.folder import JobError, UnreadableFile
from pipeline.words import LONGEST_WORD, leading_run, normalized

PIECE = 1 << 20
"""Bytes of a piece. Positions depend on it: another number gives words other ids."""
_NOT_TEXT = ("idna", "punycode", "undefined", "mbcs", "oem")


class Encoding(NamedTuple):
    """An encoding by Python's name, and whether files in it can be cut."""

    name: str
    can_be_cut: bool


def encoding_named(name: str) -> Encoding:
    """Look up an encoding by any name that Python knows; raises `JobError` if it is not of text."""
    try:
        codec = codecs.lookup(name)
    except (LookupError, ValueError):
        raise JobError(f"encoding {name!r} is not known") from None
    known = codec.name.replace("_", "-").removesuffix("-sig")  # the mark is a separator of words
    if not getattr(codec, "_is_text_encoding", True) or known in _NOT_TEXT:
        raise JobError(f"encoding {name!r} is not one of text files")
    # Python's encodings of one byte a character are tables.
    module = importlib.import_module(codec.streamreader.__module__)
    one_byte = known in ("ascii", "iso8859-1") or hasattr(module, "decoding_table")
    return Encoding(known, one_byte or known == "utf-8")


def read_words(
    file: BinaryIO, start: int, end: int, size: int, encoding: Encoding
) -> Iterator[tuple[int, bytes]]:
    """Read the words that begin in a part of a file.

    The part begins and ends at multiples of `PIECE`, or with the file. Of each piece with words, it
    yields the position of the first one, and the words, `normalized`. Raises `UnreadableFile` if
    the file is not text in this encoding, has fewer bytes than its size, or a word of more than a
    million characters.
    """
    decoder = codecs.getincrementaldecoder(encoding.name)()
    at, inside = _begin(file, start, size, encoding)
    held: str | None = None if inside else ""  # a word that began before the part is not its own
    held_at = start
    for first in range(start, size, PIECE):
        if first >= end and not inside:
            break
        last = min(first + PIECE, size)
        data = _read(file, at, min(last + 3, size))
        data = data[: _boundary(data, last - at, encoding)]
        text = _decode(decoder, data, at, encoding, is_last=last == size)
        at += len(data)
        run = leading_run(text) if inside else 0
        if held is not None:
            held += text[:run]
            if leading_run(held[-LONGEST_WORD - 1 :]) > LONGEST_WORD:
                raise UnreadableFile(f"has a word of more than {LONGEST_WORD} characters")
        if run < len(text):
            if held and (found := normalized(held)):
                yield held_at, found
            held, held_at = text[run:] if first < end else None, first
            inside = first < end and leading_run(text[-1]) > 0
    if held and (found := normalized(held)):
        yield held_at, found


def _decode(decoder: Any, data: bytes, at: int, encoding: Encoding, is_last: bool) -> str:
    """Decode the bytes of a piece, which begins at a byte of the file."""
    try:
        return decoder.decode(data, final=encoding.can_be_cut or is_last)
    except UnicodeError as error:
        at += getattr(error, "start", 0) if encoding.can_be_cut else 0
        why = getattr(error, "reason", error)
        raise UnreadableFile(f"is not {encoding.name}: {why}, from byte {at} on") from None


def _begin(file: BinaryIO, start: int, size: int, encoding: Encoding) -> tuple[int, bool]:
    """Return where the first character of a part begins, and whether a word goes on there."""
    before = max(start - 4, 0)  # no character is longer
    data = _read(file, before, min(start + 3, size))
    length = _boundary(data, start - before, encoding) if start else 0
    last = data[:length].decode(encoding.name, "replace")[-1:]
    return before + length, leading_run(last) > 0


def _boundary(data: bytes, at: int, encoding: Encoding) -> int:
    """Return the first place from ``at`` on where a character begins, or the end of the data."""
    if encoding.name != "utf-8":
        return at
    end = min(at + 3, len(data))  # at most three bytes continue a character
    return next((place for place in range(at, end) if data[place] & 0xC0 != 0x80), end)


def _read(file: BinaryIO, start: int, end: int) -> bytes:
    file.seek(start)
    data = file.read(end - start)
    if len(data) < end - start:
        raise UnreadableFile("changed while it was being read: it became shorter")
    return data
