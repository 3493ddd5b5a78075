"""How many rows share a key: whether rows can be joined by it."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["are_shared"]

_MOST_ROWS = 1.2
"""Rows that have one row's key, on average, up to which a join multiplies few rows."""


def are_shared(*kinds: tuple[Sequence[int], int]) -> bool:
    """Return true if many rows of a side have other rows' keys.

    Keys fall into buckets at random. If each key has m rows, the variance of the rows in a bucket
    is m times their mean, up to chance: some 2 % with 4,096 buckets.

    Args:
        kinds: The numbers of rows in the buckets that have some, and how many buckets there are,
            of each kind of buckets.
    """
    rows = sum(sum(numbers) for numbers, _ in kinds)
    squares = sum(
        sum(number**2 for number in numbers) - sum(numbers) ** 2 / buckets
        for numbers, buckets in kinds
    )
    return squares > _MOST_ROWS * rows
