"""XXH64 and unit ids."""

import random

import pytest
import xxhash

from xorack import unit_id
from xorack.core.errors import InvalidRequest
from xorack.core.hashing import _xxh64_long, xxh64_long


def test_the_pure_form_is_xxh64():
    rng = random.Random(1)
    for _ in range(2000):
        x, seed = rng.getrandbits(64), rng.getrandbits(64)
        assert _xxh64_long(x, seed) == xxhash.xxh64_intdigest(x.to_bytes(8, "little"), seed)


def test_signed_and_unsigned_are_the_same_long():
    assert xxh64_long(-1) == xxh64_long(2**64 - 1) == _xxh64_long(-1)


def test_unit_id_known_values():
    # As Spark SQL prints them, read as unsigned:
    # SELECT xxhash64('Spark'), xxhash64(1L), xxhash64('Spark', 1L)
    assert unit_id("Spark") == xxhash.xxh64_intdigest(b"Spark", 42)
    assert unit_id(1) == xxhash.xxh64_intdigest((1).to_bytes(8, "little"), 42)
    assert unit_id("Spark", 1) == xxhash.xxh64_intdigest(
        (1).to_bytes(8, "little"), xxhash.xxh64_intdigest(b"Spark", 42)
    )
    assert unit_id(b"Spark") == unit_id("Spark")


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ((), "parts"),
        ((None,), "None"),
        ((True,), "True"),
        ((1.5,), "1.5"),
        ((2**63,), str(2**63)),
        (("\ud800",), "surrogates"),
    ],
)
def test_unit_id_names_what_is_wrong(parts, named):
    with pytest.raises(InvalidRequest, match="expected") as caught:
        unit_id(*parts)
    assert named in str(caught.value)


def test_an_id_is_never_zero(monkeypatch):
    monkeypatch.setattr("xorack.core.hashing.xxh64_long", lambda x, seed=42: 0)
    assert unit_id(5) == 1
