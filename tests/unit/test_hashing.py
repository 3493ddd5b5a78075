"""XXH64 and unit ids."""

import random
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from zoneinfo import ZoneInfo

import pandas
import pytest
from xxhash import xxh64_intdigest

from xorack import unit_id
from xorack.core.errors import ArgumentError
from xorack.core.hashing import _pure_xxh64, xxh64_long_inverse


def test_the_pure_form_is_xxh64():
    rng = random.Random(1)
    for size in [*range(100), *[8] * 1000, 1023, 1024, 4097]:
        data, seed = rng.randbytes(size), rng.getrandbits(64)
        assert _pure_xxh64(data, seed) == xxh64_intdigest(data, seed), size


def test_the_inverse_leads_back_to_the_id():
    rng = random.Random(2)
    edges = [0, 1, 2**63, 2**64 - 1, *(1 << bit for bit in range(64))]
    for x in (*edges, *range(1000), *(rng.getrandbits(64) for _ in range(10_000))):
        assert xxh64_long_inverse(xxh64_intdigest(x.to_bytes(8, "little"), 42)) == x


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ((), "parts"),
        ((None,), "None"),
        ((1.5,), "1.5"),
        ((2**63,), str(2**63)),
        ((-(2**63) - 1,), str(-(2**63) - 1)),
        ((Decimal("NaN"),), "NaN"),
        ((Decimal("-Infinity"),), "Infinity"),
        ((time(12),), "12"),
        ((timedelta(1),), "timedelta"),
        ((pandas.NaT,), "nan"),
        (("\ud800",), "surrogates"),
    ],
)
def test_unit_id_names_the_invalid_part(parts, named):
    with pytest.raises(ArgumentError, match="expected") as caught:
        unit_id(*parts)
    assert named in str(caught.value)


TWICE = datetime(2026, 11, 1, 1, 30, tzinfo=ZoneInfo("America/New_York"))
EAST = timezone(timedelta(hours=14))
DIGITS = "12345678901234567890123456789012345678"


@pytest.mark.parametrize(
    ("part", "canonical"),
    [
        (False, 0),
        (date.min, -719162),
        (date.max, 2932896),
        (datetime(1969, 12, 31, 23, 59, 59, 999999), -1),
        (datetime.min, -62135596800000000),
        (datetime.max, 253402300799999999),
        (datetime.max.replace(tzinfo=timezone.utc), 253402300799999999),
        (datetime.min.replace(tzinfo=EAST), -62135596800000000 - 14 * 3600 * 10**6),
        (datetime(1970, 1, 1, 14, 0, 0, 1, tzinfo=EAST), 1),
        (TWICE, 1793511000 * 10**6),
        (TWICE.replace(fold=1), 1793514600 * 10**6),
        (pandas.Timestamp("1970-01-01T00:00:00.000001999Z"), 1),
        (Decimal("1E+2"), "100"),
        (Decimal("-0.250"), "-0.25"),
        (Decimal("-0.000"), "0"),
        (Decimal("0E+5"), "0"),
        (Decimal("-1E-18"), "-0.000000000000000001"),
        (Decimal(f"{DIGITS}.{DIGITS}"), f"{DIGITS}.{DIGITS}"),
    ],
)
def test_unit_id_hashes_the_canonical_form_beyond_the_vectors(part, canonical):
    assert unit_id(part) == unit_id(canonical)
    assert unit_id("salt", part, 1) == unit_id("salt", canonical, 1)


def test_an_id_is_never_zero(monkeypatch):
    monkeypatch.setattr("xorack.core.hashing.xxh64_long", lambda x, seed=42: 0)
    assert unit_id(5) == 1
