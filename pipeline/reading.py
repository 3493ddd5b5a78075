"""Reads the words of one file in pieces, so that memory does not grow with the file.

A word's position is its number in the file.
"""

import codecs
from collections.abc import Iterator
from typing import Any, BinaryIO

from pipeline.folder import JobError, UnreadableFile
from pipeline.words import LONGEST_WORD, leading_run, normalized

PIECE = 1 << 20
"""The bytes of a piece."""
_NOT_TEXT = ("idna", "punycode", "undefined", "mbcs", "oem")


def encoding_named(name: str) -> str:
    """Return an encoding by any name that Python knows; raise `JobError` if it is not for text."""
    try:
        codec = codecs.lookup(name)
    except (LookupError, ValueError):
        raise JobError(f"encoding {name!r} is unknown: see the codecs of Python") from None
    known = codec.name.replace("_", "-").removesuffix("-sig")  # a byte order mark is no word
    if not getattr(codec, "_is_text_encoding", True) or known in _NOT_TEXT:
        raise JobError(f"encoding {name!r} is not an encoding of text files")
    return known


def read_words(file: BinaryIO, size: int, encoding: str) -> Iterator[tuple[int, bytes]]:
    """Yield the words of a file in pieces: the position of the first word, and `normalized` words.

    Raises:
        UnreadableFile: The file is not text in this encoding, has fewer bytes than its size, or has
            a word of more than a million characters.
    """
    decoder = codecs.getincrementaldecoder(encoding)()
    unfinished, at, position = "", 0, 0
    while at < size:
        data = file.read(min(PIECE, size - at))
        if not data:
            raise UnreadableFile("changed while it was being read: it became shorter")
        is_last = at + len(data) == size
        decoded = _decode(decoder, data, at, encoding, is_last)
        if "\0" in decoded:
            raise UnreadableFile(f"is not {encoding} text, as it has NUL characters. Is it UTF-16?")
        text = unfinished + decoded
        at += len(data)
        run = leading_run(text[::-1])  # the last word may continue in the next piece
        if run > LONGEST_WORD:
            raise UnreadableFile(f"has a word of more than {LONGEST_WORD} characters")
        end = len(text) if is_last else len(text) - run
        unfinished = text[end:]
        if words := normalized(text[:end]):
            yield position, words
            position += 1 + words.count(b" ")


def _decode(decoder: Any, data: bytes, at: int, encoding: str, is_last: bool) -> str:
    """Decode the bytes of a piece. Its first byte has position `at` in the file."""
    before = decoder.getstate()[0]  # the bytes of a character that continues in the next piece
    try:
        return str(decoder.decode(data, final=is_last))
    except UnicodeError as error:
        begin = at - len(before) + getattr(error, "start", 0)
        why = getattr(error, "reason", error)
        raise UnreadableFile(f"is not {encoding}: {why}, from byte {begin} on") from None
