"""How many rows share a key: whether rows can be joined by it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["are_shared"]

_MOST_ROWS = 1.2
"""Rows that have one row's key, on average, up to which a join multiplies few rows."""


def are_shared(sides: Iterable[Sequence[int]], buckets: int) -> bool:
    """Return true if many rows of a side have other rows' keys.

    Keys fall into buckets at random. If each key has m rows, the variance of the rows in a bucket
    is m times their mean, up to chance: some 2 % with 4,096 buckets.

    Args:
        sides: The number of rows in each bucket that has some, of each side.
        buckets: The number of all buckets.
    """
    return any(_sharing(numbers, sum(numbers) / buckets) > _MOST_ROWS for numbers in sides)


def _sharing(numbers: Sequence[int], mean: float) -> float:
    """Estimate how many rows have one row's key, on average: 1 if keys are unique."""
    return sum(number**2 for number in numbers) / (sum(numbers) or 1) - mean
