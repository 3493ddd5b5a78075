"""XXH64 and unit ids."""

import random

import pytest
from xxhash import xxh64_intdigest

from xorack import unit_id
from xorack.core.errors import InvalidRequest
from xorack.core.hashing import _xxh64_long, xxh64_long, xxh64_long_inverse


def test_the_pure_form_is_xxh64():
    rng = random.Random(1)
    for _ in range(2000):
        x, seed = rng.getrandbits(64), rng.getrandbits(64)
        assert _xxh64_long(x, seed) == xxh64_intdigest(x.to_bytes(8, "little"), seed)


def test_the_inverse_leads_back_to_the_id():
    rng = random.Random(2)
    edges = [0, 1, 2**63, 2**64 - 1, *(1 << bit for bit in range(64))]
    for x in (*edges, *range(1000), *(rng.getrandbits(64) for _ in range(10_000))):
        assert xxh64_long_inverse(xxh64_intdigest(x.to_bytes(8, "little"), 42)) == x


@pytest.mark.parametrize("compiled", [True, False])
def test_signed_and_unsigned_are_the_same_long(monkeypatch, compiled):
    if not compiled:
        monkeypatch.setattr("xorack.core.hashing._xxh64", None)
        with pytest.raises(ModuleNotFoundError, match="pip install xxhash"):
            unit_id("text")
    assert xxh64_long(-1) == xxh64_long(2**64 - 1) == _xxh64_long(-1)


def test_unit_id_is_xxhash64_of_spark_read_as_unsigned():
    one = (1).to_bytes(8, "little")
    spark = xxh64_intdigest(b"Spark", 42)
    assert unit_id("Spark") == unit_id(b"Spark") == spark
    assert unit_id(1) == xxh64_intdigest(one, 42)
    assert unit_id("Spark", 1) == xxh64_intdigest(one, spark)


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
def test_unit_id_names_the_invalid_part(parts, named):
    with pytest.raises(InvalidRequest, match="expected") as caught:
        unit_id(*parts)
    assert named in str(caught.value)


def test_an_id_is_never_zero(monkeypatch):
    monkeypatch.setattr("xorack.core.hashing.xxh64_long", lambda x, seed=42: 0)
    assert unit_id(5) == 1
