"""Stamps, their XOR, and peeling."""

import random
import struct

import pytest

import xorack
from xorack import Stamp, errors, peel, plain, traced, unit_id, xor
from xorack.core.hashing import xxh64_long
from xorack.core.stamp import TRACED_LENGTH, UnackedStamp


def test_xor_of_the_seeds_example():
    file, one, two, three = (bytes.fromhex(h) for h in ("29", "25", "a9", "e9"))
    folded = xor(file, one, two, three)
    assert folded == bytes.fromhex("4c")
    assert not folded.acked
    assert xor(file, folded, one, two, three).acked
    assert isinstance(folded, Stamp)
    assert isinstance(folded, bytes)


def test_xor_wants_two_of_one_length():
    with pytest.raises(errors.LessThanTwoBuffers) as caught:
        xor(b"a")
    assert caught.value.code == "LessThanTwoBuffers"
    with pytest.raises(errors.LessThanTwoBuffers):
        xor()
    for stamps in ((b"a", b"ab"), (b"ab", b"ab", b"abc"), (b"", b"a")):
        with pytest.raises(errors.BufferLengthsUnequal):
            xor(*stamps)


def test_leading_zeros_survive():
    assert xor(b"\0\0\1", b"\0\0\2") == b"\0\0\3"


def test_plain_is_the_id_little_endian():
    assert plain(1) == b"\1" + bytes(7)
    assert plain(-1) == plain(2**64 - 1) == b"\xff" * 8


def test_traced_is_laid_out_as_the_protocol_says():
    x = 0x0123456789ABCDEF
    words = struct.unpack("<81Q", traced(x))
    y = xxh64_long(x)
    expected = {0} | {1 + 16 * j + (y >> 4 * j & 15) for j in range(5)}
    assert {i for i, word in enumerate(words) if word} == expected
    assert {words[i] for i in expected} == {x}
    assert len(traced(x)) == TRACED_LENGTH == 648


@pytest.mark.parametrize("unit", [0, 2**64, -(2**63) - 1, True, "7", None])
@pytest.mark.parametrize("make", [plain, traced])
def test_what_is_no_id_is_named(make, unit):
    with pytest.raises(errors.InvalidRequest, match="unit: "):
        make(unit)


def fold(ids):
    return xor(bytes(TRACED_LENGTH), *map(traced, ids), bytes(TRACED_LENGTH))


@pytest.mark.parametrize(("count", "least"), [(1, 1.0), (8, 1.0), (16, 0.997), (24, 0.98)])
def test_peel_names_outstanding_units(count, least):
    rng = random.Random(count)
    runs = 400
    whole = 0
    for _ in range(runs):
        ids = {rng.getrandbits(64) for _ in range(count)}
        found = peel(fold(ids))
        if found.complete:
            assert found.ids == ids
            whole += 1
        else:
            assert found.ids < ids
    assert whole / runs >= least


def test_peel_of_an_overfull_chain_says_so_and_names_hardly_a_wrong_id():
    rng = random.Random(7)
    wrong = 0
    for _ in range(200):
        ids = {rng.getrandbits(64) for _ in range(100)}
        found = peel(fold(ids))
        assert not found.complete
        wrong += not found.ids <= ids
    assert wrong <= 2


def test_peel_of_ids_that_share_cells():
    # A mixture of two ids in two cells looks like an id there once in some hundred times.
    rng = random.Random(3)
    for _ in range(3000):
        ids = {rng.randrange(1, 2**16) for _ in range(4)}
        found = peel(fold(ids))
        assert found == (ids, True) or (not found.complete and found.ids <= ids)


def test_peel_of_nothing_plain_and_opaque():
    assert peel(bytes(648)) == peel(b"") == peel(bytes(8)) == (frozenset(), True)
    unit = unit_id("a word")
    assert peel(plain(unit)) == (frozenset({unit}), True)
    assert peel(traced(unit)) == (frozenset({unit}), True)
    for opaque in (b"\1", b"\1" * 64, b"\1" * 647, b"\1" * 649):
        assert peel(opaque) == (frozenset(), False)


def test_peel_of_hostile_bytes_ends_and_claims_nothing():
    rng = random.Random(11)
    for _ in range(60):
        assert peel(rng.randbytes(648)) == (frozenset(), False)
    for word in (1, 2**64 - 1, 0x0101010101010101):
        assert not peel(struct.pack("<81Q", *[word] * 81)).complete


def test_peel_of_a_half_corrupted_residual_is_not_complete():
    rng = random.Random(5)
    ids = {rng.getrandbits(64) for _ in range(6)}
    residual = bytearray(fold(ids))
    residual[400:648] = rng.randbytes(248)
    assert not peel(bytes(residual)).complete


def test_an_unacked_stamp_of_zeros_is_not_acked():
    assert not UnackedStamp(bytes(8)).acked
    assert UnackedStamp(bytes(8)) == bytes(8)


def test_the_package_offers_what_the_protocol_names():
    for name in (
        "Acker",
        "DynamoDBAcker",
        "Stamp",
        "errors",
        "peel",
        "plain",
        "traced",
        "unit_id",
        "xor",
    ):
        assert getattr(xorack, name)
        assert name in dir(xorack)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = xorack.nonsense
    for name in (
        "BufferLengthsUnequal",
        "LessThanTwoBuffers",
        "StaleLocalData",
        "TagExists",
        "TagNotFound",
        "ZeroBufferNoOp",
    ):
        assert issubclass(getattr(errors, name), errors.XorAckError)


@pytest.mark.parametrize("wrong", ["text", 7, None, [1, 2, 3, 4]])
def test_what_is_not_bytes_is_refused_by_name(wrong):
    with pytest.raises(errors.InvalidRequest, match="stamp: "):
        xorack.xor(b"four", wrong)
    with pytest.raises(errors.InvalidRequest, match="residual: "):
        xorack.peel(wrong)
