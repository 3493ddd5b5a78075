"""Words, and reading them from files of any encoding, in pieces."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import reading
from pipeline.folder import JobError, UnreadableFile
from pipeline.reading import encoding_named, read_words
from pipeline.words import leading_run, normalized
from tests.support.plain_words import words

ALPHABET = "abcXYZ  \n\t.,-'_09éßΣσςİ–“”日本語한글\U0001f600\U00010400\u200d\ufeff"
ENCODINGS = (
    *("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"),
    *("latin-1", "cp1252", "koi8-r", "cp037", "ascii"),
    *("shift_jis", "gb18030", "big5", "utf-7", "iso2022_jp"),
)


def read_all(data, encoding):
    return list(read_words(io.BytesIO(data), len(data), encoding_named(encoding)))


def test_words_are_runs_of_letters_and_digits():
    assert words("The don't_x: 3.14, naïve—STRASSE Straße") == (
        ["the", "don", "t", "x", "3", "14", "naïve", "strasse", "strasse"]
    )
    assert words(" \n--- \ufeff") == []


def test_folding_case_never_moves_a_border():
    """Words can be cut before or after casefolding, for all characters of Unicode."""
    for code in (*range(0xD800), *range(0xE000, 0x110000)):
        character = chr(code)
        if (folded := character.casefold()) != character:
            runs = {leading_run(part) for part in folded}
            assert runs == {leading_run(character)}, hex(code)


@given(st.text())
def test_normalized_has_the_same_words(text):
    text = text.encode("utf-8", "replace").decode()
    assert normalized(text).decode().split(" ") == (words(text) or [""])


@settings(max_examples=300)
@given(
    text=st.text(ALPHABET, max_size=150),
    encoding=st.sampled_from(ENCODINGS),
    piece=st.sampled_from([1, 4, 8, 64]),
)
def test_words_do_not_depend_on_the_pieces(text, encoding, piece):
    text = text.encode(encoding, "ignore").decode(encoding)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "PIECE", piece)
        parts = read_all(text.encode(encoding), encoding)
    assert [word for _, found in parts for word in found.decode().split(" ")] == words(text)
    positions = [at + i for at, found in parts for i in range(len(found.split(b" ")))]
    assert positions == [*range(len(positions))]


@pytest.mark.parametrize(
    ("data", "encoding", "message"),
    [
        (b"ab\xff", "utf-8", "is not utf-8: invalid start byte, from byte 2"),
        (b"ab\xe2\x82", "utf-8", "is not utf-8: unexpected end of data, from byte 2"),
        (b"ab\x81", "cp1252", "is not cp1252: .*, from byte 2"),
        (b"\xff\xfea\0b", "utf-16", "is not utf-16: truncated data, from byte 4"),
        ("call me ishmael".encode("utf-16-le"), "utf-8", "it has NUL characters. Is it UTF-16?"),
        ("call".encode("utf-32-be"), "latin-1", "it has NUL characters. Is it UTF-16?"),
        (b"a\0\0\xd8b\0", "utf-16-le", "is not utf-16-le: illegal .*surrogate"),
        (b"a\x82", "shift_jis", "is not shift-jis: incomplete multibyte sequence"),
    ],
)
def test_invalid_bytes_are_named_with_their_place(data, encoding, message):
    with pytest.raises(UnreadableFile, match=message):
        read_all(data, encoding)


def test_a_file_that_became_shorter_is_an_error():
    with pytest.raises(UnreadableFile, match="became shorter"):
        list(read_words(io.BytesIO(b"abc"), 5, "utf-8"))


@pytest.mark.parametrize("encoding", ["utf-8", "gb18030"])
def test_an_endless_word_is_rejected_and_a_long_one_is_not(monkeypatch, encoding):
    monkeypatch.setattr(reading, "PIECE", 64)
    monkeypatch.setattr(reading, "LONGEST_WORD", 1000)
    assert read_all(b"x" * 900, encoding) == [(0, b"x" * 900)]
    with pytest.raises(UnreadableFile, match="a word of more than 1000 characters"):
        read_all(b"x" * 3000, encoding)


@pytest.mark.parametrize("name", ["klingon", "rot13", "base64", "idna", "", "a\0b", "é"])
def test_an_invalid_encoding_is_named(name):
    with pytest.raises(JobError, match="encoding"):
        encoding_named(name)
