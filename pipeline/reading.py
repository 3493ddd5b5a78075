"""Reading the words of one file, of any size, in any encoding, in pieces.

A file is read in pieces of 1 MiB, so memory does not grow with it, and several tasks can share it.
The cut is by content alone: piece k has the words that *begin* in the bytes from k MiB to k+1 MiB,
so how a run spreads the pieces over tasks changes nothing about the words' positions.

A word's position is ``first byte of its piece + its number among the piece's words``: in a file
of up to 1 MiB simply the word's number, from 0; else ``position >> 20`` is the MiB in which the
word begins, and the rest its number there. (There are never more words than bytes.)

Encodings in which a character can be found from the middle of a file are cut so: UTF-8, UTF-16,
UTF-32 and those of one byte a character. Others (Shift JIS, GB 18030, ISO 2022, UTF-7, ...) are
read from the beginning by one task, also in pieces.
"""

from __future__ import annotations

import codecs
import importlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from pipeline.errors import JobError
from pipeline.words import LONGEST_WORD, is_word_character, leading_run, normalized

__all__ = ["PIECE", "Encoding", "Piece", "UnreadableFile", "encoding_named", "read_words"]

PIECE = 1 << 20
"""Bytes of a piece. Positions are made of it: another number would give every word another id."""
_AHEAD = 1 << 16
"""Bytes read at a time to finish the last word of a piece."""
_UNITS = {"utf-8": 1, "utf-16-le": 2, "utf-16-be": 2, "utf-32-le": 4, "utf-32-be": 4}
_BY_MARK = {
    "utf-16": ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"), (b"", "utf-16-le")),
    "utf-32": (
        (b"\xff\xfe\0\0", "utf-32-le"),
        (b"\0\0\xfe\xff", "utf-32-be"),
        (b"", "utf-32-le"),
    ),
}
_NO_TEXTS = ("idna", "punycode", "undefined", "mbcs", "oem")


class UnreadableFile(Exception):
    """A file whose words cannot be had; the message says why, in one line, without the path."""


class Encoding(NamedTuple):
    """An encoding as it was told.

    Attributes:
        name: Python's name for it.
        unit: Bytes of which a character's beginning can be found from anywhere in a file; 0 where
            it can not, and the file must be read from its beginning.
    """

    name: str
    unit: int


class Piece(NamedTuple):
    """Words that follow each other in a file.

    Attributes:
        position: The position of the first of them; the others count on from it.
        text: The words, normalized: see `pipeline.words.normalized`. Not empty.
    """

    position: int
    text: bytes


def encoding_named(told: str) -> Encoding:
    """Look up an encoding.

    Args:
        told: Its name, as Python knows it: ``UTF-8``, ``latin-1``, ``cp1252``, ``utf-16``, ...

    Returns:
        The encoding.

    Raises:
        JobError: There is no such encoding, or it is not one of text.
    """
    try:
        codec = codecs.lookup(told)
    except (LookupError, ValueError):
        raise JobError(f"encoding {told!r} is not known") from None
    name = codec.name.replace("_", "-")
    if name == "utf-8-sig":
        name = "utf-8"  # the mark, U+FEFF, is a separator of words
    if not getattr(codec, "_is_text_encoding", True) or name in _NO_TEXTS:
        raise JobError(f"encoding {told!r} is not one of text files")
    if name in _BY_MARK:
        return Encoding(name, 4)
    if name in ("ascii", "iso8859-1"):
        return Encoding(name, 1)
    if name in _UNITS:
        return Encoding(name, _UNITS[name])
    # Python's encodings of one byte a character are tables.
    module = importlib.import_module(codec.streamreader.__module__)
    return Encoding(name, 1 if hasattr(module, "decoding_table") else 0)


def read_words(
    file: BinaryIO, start: int, end: int, size: int, encoding: Encoding
) -> Iterator[Piece]:
    """Read the words that begin in a part of a file.

    Args:
        file: The file, open for reading; anywhere.
        start: The part's first byte, a multiple of `PIECE`; 0 for encodings without a ``unit``.
        end: The byte after its last, a multiple of `PIECE` or ``size``; ``size`` for encodings
            without a ``unit``.
        size: The file's size in bytes.
        encoding: The encoding of the text.

    Yields:
        The words, in order; nothing for pieces without any.

    Raises:
        UnreadableFile: It is not text in this encoding, it holds a "word" of more than a million
            characters, or it is shorter than ``size``.
        OSError: As from the file.
    """
    if not encoding.unit:
        yield from _read_through(file, size, encoding)
        return
    name = encoding.name
    if marks := _BY_MARK.get(name):
        file.seek(0)
        beginning = file.read(4)
        name = next(known for mark, known in marks if beginning.startswith(mark))
    for first in range(start, end, PIECE):
        text = _piece_text(file, first, min(first + PIECE, size), size, name)
        if found := normalized(text):
            yield Piece(first, found)


def _piece_text(file: BinaryIO, first: int, last: int, size: int, name: str) -> str:
    """The text of the words that begin in the bytes from ``first`` to before ``last``."""
    before = max(first - 4, 0)  # no character is longer than 4 bytes
    file.seek(before)
    data = _exactly(file, min(last + 4, size) - before)
    begin = _boundary(data, first - before, name)
    finish = _boundary(data, last - before, name)
    text = _decoded(data[begin:finish], name, before + begin)
    if not text:
        return ""
    if begin and is_word_character(data[:begin].decode(name, "replace")[-1:]):
        run = leading_run(text)
        text = text[run:]  # the word that began in the piece before
    if text and is_word_character(text[-1]) and last < size:
        text += _rest_of_word(file, before + finish, size, name)
    return text


def _boundary(data: bytes, at: int, name: str) -> int:
    """The first place from ``at`` on where a character begins (at the end of the data: there)."""
    if name == "utf-8":
        # At most three bytes go on with a character; more of them are an error for the decoder.
        for place in range(at, min(at + 4, len(data))):
            if data[place] & 0xC0 != 0x80:
                return place
        return min(at + 3, len(data))
    if name.startswith("utf-16") and at + 2 <= len(data):
        unit = int.from_bytes(data[at : at + 2], "little" if name.endswith("le") else "big")
        return at + 2 if 0xDC00 <= unit < 0xE000 and at else at
    return at


def _rest_of_word(file: BinaryIO, at: int, size: int, name: str) -> str:
    """The characters, from ``at`` on, of the word that a piece ends in the middle of."""
    decoder = codecs.getincrementaldecoder(name)("replace")  # its own piece reports what is wrong
    rest = ""
    file.seek(at)
    while at < size:
        data = _exactly(file, min(_AHEAD, size - at))
        at += len(data)
        text = decoder.decode(data, final=at >= size)
        run = leading_run(text)
        rest += text[:run]
        if run < len(text):
            break
        _bounded(rest)
    return rest


def _read_through(file: BinaryIO, size: int, encoding: Encoding) -> Iterator[Piece]:
    """The words of a file that must be read from its beginning."""
    decoder = codecs.getincrementaldecoder(encoding.name)()
    file.seek(0)
    held, held_at = "", 0  # the piece that ends in the middle of a word, perhaps
    for first in range(0, size, PIECE):
        last = min(first + PIECE, size)
        try:
            text = decoder.decode(_exactly(file, last - first), final=last >= size)
        except UnicodeError as error:
            raise UnreadableFile(
                f"is not {encoding.name}: {_what_is_wrong(error)}, from byte {first} on"
            ) from None
        run = leading_run(text) if held and is_word_character(held[-1]) else 0
        held += text[:run]
        _bounded(held[-LONGEST_WORD - 1 :])
        if run == len(text):
            continue
        if found := normalized(held):
            yield Piece(held_at, found)
        held, held_at = text[run:], first
    if found := normalized(held):
        yield Piece(held_at, found)


def _bounded(run: str) -> None:
    if len(run) > LONGEST_WORD and leading_run(run) > LONGEST_WORD:
        raise UnreadableFile(f"is no text: it has a word of more than {LONGEST_WORD} characters")


def _exactly(file: BinaryIO, length: int) -> bytes:
    parts = []
    while length > 0:
        data = file.read(length)
        if not data:
            raise UnreadableFile("changed while it was being read: it became shorter")
        parts.append(data)
        length -= len(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decoded(data: bytes, name: str, offset: int) -> str:
    try:
        return data.decode(name)
    except UnicodeDecodeError as error:
        raise UnreadableFile(
            f"is not {name}: {_what_is_wrong(error)} at byte {offset + error.start}"
        ) from None
    except UnicodeError as error:
        raise UnreadableFile(f"is not {name}: {error}") from None


def _what_is_wrong(error: UnicodeError) -> str:
    return error.reason if isinstance(error, UnicodeDecodeError) else str(error)
