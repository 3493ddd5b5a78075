"""Stamps, their XOR, and peeling."""

import random
import struct

import pytest

import xorack
from xorack import Stamp, errors, peel, plain, traced, unit_id, xor
from xorack.core.hashing import xxh64_long
from xorack.core.stamp import UnackedStamp


def test_the_example_of_the_npm_package():
    file, one, two, three = (bytes.fromhex(h) for h in ("29", "25", "a9", "e9"))
    folded = xor(file, one, two, three)
    assert folded == bytes.fromhex("4c")
    assert not folded.acked
    assert xor(file, folded, one, two, three).acked
    assert isinstance(folded, Stamp)


def test_xor_takes_two_or_more_stamps_of_one_length():
    assert xor(b"\0\0\1", b"\0\0\2") == b"\0\0\3"
    for stamps in ((b"a",), ()):
        with pytest.raises(errors.LessThanTwoBuffers) as caught:
            xor(*stamps)
        assert caught.value.code == "LessThanTwoBuffers"
    for stamps in ((b"a", b"ab"), (b"ab", b"ab", b"abc"), (b"", b"a")):
        with pytest.raises(errors.BufferLengthsUnequal):
            xor(*stamps)


@pytest.mark.parametrize("value", ["text", 7, None, [1, 2, 3, 4]])
def test_only_bytes_are_stamps(value):
    with pytest.raises(errors.InvalidRequest, match="stamp: "):
        xor(b"four", value)
    with pytest.raises(errors.InvalidRequest, match="residual: "):
        peel(value)


def test_an_unacked_stamp_may_be_zero():
    assert not UnackedStamp(bytes(8)).acked
    assert UnackedStamp(bytes(8)) == bytes(8)


def test_a_plain_stamp_is_the_id_in_little_endian():
    assert plain(1) == b"\1" + bytes(7)
    assert plain(-1) == plain(2**64 - 1) == b"\xff" * 8


def test_the_layout_of_a_traced_stamp():
    x = 0x0123456789ABCDEF
    assert len(traced(x)) == 648
    words = struct.unpack("<81Q", traced(x))
    y = xxh64_long(x)
    expected = {0} | {1 + 16 * j + (y >> 4 * j & 15) for j in range(5)}
    assert {i for i, word in enumerate(words) if word} == expected
    assert {words[i] for i in expected} == {x}


@pytest.mark.parametrize("unit", [0, 2**64, -(2**63) - 1, True, "7", None])
@pytest.mark.parametrize("make", [plain, traced])
def test_the_error_names_an_invalid_id(make, unit):
    with pytest.raises(errors.InvalidRequest, match="unit: "):
        make(unit)


def fold(ids):
    return xor(bytes(648), bytes(648), *map(traced, ids))


@pytest.mark.parametrize(("count", "least"), [(1, 1.0), (8, 1.0), (16, 0.997), (24, 0.98)])
def test_peel_names_outstanding_units(count, least):
    rng = random.Random(count)
    runs = 400
    whole = 0
    for _ in range(runs):
        ids = {rng.getrandbits(64) for _ in range(count)}
        outstanding = peel(fold(ids))
        whole += outstanding.complete
        assert outstanding.ids == ids if outstanding.complete else outstanding.ids < ids
    assert whole / runs >= least


def test_too_many_units_are_incomplete_and_hardly_an_id_is_wrong():
    rng = random.Random(7)
    wrong = 0
    for _ in range(60):
        ids = {rng.getrandbits(64) for _ in range(100)}
        outstanding = peel(fold(ids))
        assert not outstanding.complete
        wrong += not outstanding.ids <= ids
    assert wrong == 0  # fewer than one of a hundred chains


def test_ids_that_share_cells():
    """The XOR of two ids that share two cells looks like an id once in some hundred cases."""
    rng = random.Random(3)
    for _ in range(3000):
        ids = {rng.randrange(1, 2**16) for _ in range(4)}
        outstanding = peel(fold(ids))
        assert outstanding == (ids, True) or (not outstanding.complete and outstanding.ids <= ids)


def test_peel_of_zero_plain_and_opaque_stamps():
    assert peel(bytes(648)) == peel(b"") == peel(bytes(8)) == (frozenset(), True)
    unit = unit_id("a word")
    assert peel(plain(unit)) == peel(traced(unit)) == (frozenset({unit}), True)
    for opaque in (b"\1", b"\1" * 64, b"\1" * 647, b"\1" * 649):
        assert peel(opaque) == (frozenset(), False)


def test_hostile_bytes_name_nothing():
    rng = random.Random(11)
    for _ in range(60):
        assert peel(rng.randbytes(648)) == (frozenset(), False)
    for word in (1, 2**64 - 1, 0x0101010101010101):
        assert not peel(struct.pack("<81Q", *[word] * 81)).complete
    half = fold({rng.getrandbits(64) for _ in range(6)})[:400] + rng.randbytes(248)
    assert not peel(half).complete


@pytest.mark.parametrize(
    "name",
    ["Acker", "DynamoDBAcker", "Stamp", "errors", "peel", "plain", "traced", "unit_id", "xor"],
)
def test_the_package_exports(name):
    assert getattr(xorack, name)
    assert name in dir(xorack)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = xorack.nonsense


@pytest.mark.parametrize(
    "name",
    [
        "BufferLengthsUnequal",
        "LessThanTwoBuffers",
        "StaleLocalData",
        "TagExists",
        "TagNotFound",
        "ZeroBufferNoOp",
    ],
)
def test_the_errors_of_the_npm_packages_are_xorack_errors(name):
    assert issubclass(getattr(errors, name), errors.XorAckError)
