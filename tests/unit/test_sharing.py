"""The estimate of how many rows share a key."""

from collections import Counter

import pytest

from xorack.compare.sharing import are_shared
from xorack.core.hashing import unit_id

BUCKETS = 4096


def numbers(keys):
    """Return the number of rows in each bucket that has some."""
    return [*Counter(unit_id(str(key)) % BUCKETS for key in keys).values()]


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
    assert are_shared([numbers(keys), numbers(range(1000))], BUCKETS) == shared
    assert are_shared([numbers(range(1000)), numbers(keys)], BUCKETS) == shared
