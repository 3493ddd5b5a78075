"""The estimate of how many rows share a key."""

from collections import Counter

import pytest

from xorack.compare.sharing import are_shared
from xorack.core.hashing import unit_id

BUCKETS, FEWER = 4096, 64


def numbers(keys, buckets):
    """Return the number of rows in each bucket that has some."""
    return [*Counter(unit_id(str(key)) % buckets for key in keys).values()], buckets


@pytest.mark.parametrize(
    ("keys", "shared"),
    [
        ([], False),
        (range(1), False),
        (range(100_000), False),
        ([*range(100_000), *range(1000)], False),
        ([*range(50_000)] * 2, True),
        ([*range(100_000), *[7] * 200], True),
        ([7, 7], True),
    ],
    ids=["none", "one", "unique", "1 % doubled", "all doubled", "a frequent key", "two rows"],
)
def test_rows_share_a_key(keys, shared):
    assert are_shared(numbers(keys, BUCKETS)) == shared


@pytest.mark.parametrize(("copies", "shared"), [(1, False), (200, True)])
def test_a_frequent_key_is_in_the_other_kind_of_buckets(copies, shared):
    others = numbers([*range(1000), *[7] * copies], FEWER)
    assert are_shared(numbers(range(100_000), BUCKETS), others) == shared
