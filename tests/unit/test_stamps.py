"""Stamps, their XOR, and peeling."""

import random
from functools import reduce

import pytest
from xxhash import xxh64_intdigest

from xorack import Stamp, errors, peel, plain, traced, xor
from xorack.core.hashing import xxh64_long_inverse
from xorack.core.stamp import UnackedStamp, words_of


def test_xor_takes_two_or_more_stamps_of_one_length():
    folded = xor(b"\0\0\1", b"\0\0\2")
    assert (folded, folded.acked, type(folded)) == (b"\0\0\3", False, Stamp)
    # Of a chain at zero whose counts differ.
    assert (UnackedStamp(bytes(8)), UnackedStamp(bytes(8)).acked) == (bytes(8), False)
    for stamps in ((b"a",), ()):
        with pytest.raises(errors.LessThanTwoBuffers) as caught:
            xor(*stamps)
        assert caught.value.code == "LessThanTwoBuffers"
    for stamps in ((b"a", b"ab"), (b"ab", b"ab", b"abc"), (b"", b"a")):
        with pytest.raises(errors.BufferLengthsUnequal):
            xor(*stamps)


ZERO = 0xFAEC1E2AC606499C
INVALID = [
    *((xor, (b"four", value), "stamp: ") for value in ("text", 7, None, [1, 2, 3, 4])),
    *((peel, (value,), "residual: ") for value in ("text", 7, None, [1, 2, 3, 4])),
    *(
        (make, (unit,), "unit: ")
        for make in (plain, traced)
        for unit in (0, 2**64, -(2**63) - 1, True, "7", None)
    ),
    *(
        (traced, (7, cells), "cells: .*expected 16, 64, 256 or 1024")
        for cells in (0, 8, 17, 32, 2048, -16, 16.0, True, "16", None, [16])
    ),
    *((traced, (unit,), "faec1e2ac606499c, which hashes to 0") for unit in (ZERO, ZERO - 2**64)),
]


@pytest.mark.parametrize(("function", "arguments", "named"), INVALID)
def test_the_error_names_what_is_invalid(function, arguments, named):
    with pytest.raises(errors.ArgumentError, match=named):
        function(*arguments)


def fold(ids, cells=16):
    """XOR the traced stamps of ids."""
    total = 0
    for unit in ids:
        total ^= int.from_bytes(traced(unit, cells), "little")
    return total.to_bytes(len(traced(1, cells)), "little")


def ids_of_hashes(hashes):
    return {xxh64_long_inverse(y) for y in hashes}


KINDS = {
    "random": lambda rng, count: {rng.getrandbits(64) | 1 for _ in range(count)},
    "first": lambda rng, count: set(range(1, count + 1)),
    "consecutive": lambda rng, count: set(range(at := rng.getrandbits(40) + 1, at + count)),
    "gaps": lambda rng, count: {(rng.getrandbits(20) + n) * 1000 for n in range(1, count + 1)},
    "gaps of 2**32": lambda rng, count: {n << 32 | rng.getrandbits(4) for n in range(1, count + 1)},
    "one bit apart": lambda rng, count: {
        base ^ 1 << bit for base in (rng.getrandbits(64) for _ in range(28)) for bit in range(64)
    },
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("cells", "count", "runs", "least"),
    [(16, 8, 20, 20), (16, 32, 20, 19), (64, 80, 5, 5), (256, 384, 1, 1), (1024, 1792, 1, 1)],
)
def test_peel_names_outstanding_units(kind, cells, count, runs, least):
    rng = random.Random(f"{kind} {cells} {count}")
    named = 0
    for _ in range(1 if kind == "first" else runs):
        ids = set(sorted(KINDS[kind](rng, count), key=lambda unit: rng.random())[:count])
        outstanding = peel(fold(ids, cells))
        named += outstanding == (ids, True)
        assert outstanding.ids <= ids
    assert named >= (1 if kind == "first" else least)


@pytest.mark.parametrize(
    ("cells", "fewest", "most", "runs"),
    [
        (16, 33, 60, 10),
        (16, 60, 200, 50),
        (64, 150, 700, 8),
        (256, 600, 3000, 2),
        (1024, 2500, 6000, 1),
    ],
)
def test_no_id_is_wrong_when_there_are_too_many(cells, fewest, most, runs):
    rng = random.Random(cells + fewest)
    for _ in range(runs):
        ids = {rng.getrandbits(64) | 1 for _ in range(rng.randint(fewest, most))}
        outstanding = peel(fold(ids, cells))
        assert outstanding.ids <= ids
        assert outstanding.complete == (outstanding.ids == ids)


def hashes_at(rng, places):
    """Draw hashes that have given cells in the five tables of 16 cells."""
    return [
        sum(cell << 4 * table for table, cell in enumerate(cells)) | rng.getrandbits(44) << 20
        for cells in places
    ]


TRAPS = {
    # The XOR of three hashes that share a cell points to that cell.
    "three share two cells": ([[1, 2, 3, 4, 5], [1, 2, 6, 7, 8], [1, 2, 9, 10, 11]], True),
    "three share three cells": ([[1, 2, 3, 4, 5], [1, 2, 3, 7, 8], [1, 2, 3, 10, 11]], True),
    # The XOR of two hashes that share a cell points to cell 0.
    "two share cell 0": ([[0, 0, 3, 4, 5], [0, 0, 6, 7, 8]], True),
    "two share all cells": ([[1, 2, 3, 4, 5], [1, 2, 3, 4, 5]], False),
    # The XORs of three of these each have the same sum.
    "four for four others": (
        [[1, 2, 3, 4, 5], [1, 2, 3, 4, 6], [1, 2, 7, 8, 5], [1, 9, 3, 8, 5]],
        False,
    ),
}


@pytest.mark.parametrize("more", [0, 4, 12])
@pytest.mark.parametrize("trap", TRAPS)
def test_hashes_that_look_like_one_name_no_other_unit(trap, more):
    places, named = TRAPS[trap]
    for seed in range(30):
        rng = random.Random(seed)
        ids = ids_of_hashes(hashes_at(rng, places)) | KINDS["random"](rng, more)
        outstanding = peel(fold(ids))
        assert outstanding.ids <= ids
        assert outstanding.complete == named


def test_hashes_whose_xor_is_zero_are_not_all():
    """A larger set with the same sum consists of XORs of the true one: it is dependent."""
    rng = random.Random(4)
    hashes = [rng.getrandbits(64) for _ in range(9)]
    hashes.append(reduce(lambda one, other: one ^ other, hashes))
    assert peel(fold(ids_of_hashes(hashes[:9]))).complete
    assert peel(fold(ids_of_hashes(hashes))) == (frozenset(), False)


@pytest.mark.parametrize(("shared", "groups"), [(2, 1), (3, 1), (2, 100), (3, 100)])
def test_ids_that_were_chosen_to_share_cells_are_not_named(shared, groups):
    """To look for four of them that have another four's sum would take minutes."""
    rng = random.Random(shared)
    ids = ids_of_hashes(
        sum(((n % groups) * 7 % 1024 if table < shared else n) << 10 * table for table in range(5))
        | rng.getrandbits(14) << 50
        for n in range(1000)
    )
    outstanding = peel(fold(ids, 1024))
    assert outstanding.ids <= ids
    assert not outstanding.complete or outstanding.ids == ids


@pytest.mark.parametrize("count", [56, 60, 64])
def test_as_many_hashes_as_they_have_bits_are_peeled(count):
    """Of sets of 64 random hashes, 71 % are linearly dependent: they are not wrong for that."""
    rng = random.Random(count)
    for _ in range(20):
        ids = frozenset(rng.getrandbits(64) for _ in range(count))
        assert peel(fold(ids, 64)) == (ids, True)


def test_peel_needs_no_compiled_package(monkeypatch):
    stamp = fold({5, 6, 7})
    monkeypatch.setattr("xorack.core.hashing._xxh64", None)
    assert peel(stamp) == ({5, 6, 7}, True)


@pytest.mark.parametrize("length", [1, 8, 64, 647, 649, 2_560, 20_488, 65_536])
def test_plain_and_opaque_stamps_name_nothing(length):
    assert peel(b"\1" * length) == peel(bytes(length - 1) + b"\1") == (frozenset(), False)
    assert peel(bytes(length)) == (frozenset(), True)


@pytest.mark.parametrize("cells", [16, 64, 256, 1024])
def test_hostile_bytes_name_nothing(cells):
    rng, length = random.Random(11), len(traced(1, cells))
    nothing = (frozenset(), False)
    assert peel(rng.randbytes(length)) == nothing
    assert peel(b"\1" * length) == nothing
    half = length // 2
    assert peel(fold(range(1, 9), cells)[:half] + rng.randbytes(length - half)) == nothing
    # Each table has the XOR of word 0, as in a sum of stamps, but no stamps have this sum.
    table = rng.randbytes(8 * (cells - 1))
    first = reduce(xor, (table[at : at + 8] for at in range(0, len(table), 8)))
    assert peel(first + (table + bytes(8)) * 5) == nothing


def test_the_id_zero_is_never_named():
    y = xxh64_intdigest(bytes(8), 42)
    stamp = bytearray(648)
    for word in (0, *words_of(y, 16)):
        stamp[8 * word : 8 * word + 8] = y.to_bytes(8, "little")
    assert peel(stamp) == (frozenset(), False)
