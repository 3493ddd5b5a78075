"""Digests of two frames: which buckets of keys hold other rows on the two sides.

A row falls into a bucket by the hash of its key. A bucket's digest is the number of rows and the
sums of the two halves of their hashes. XOR would not do: it is blind to pairs of equal rows.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from xorack.compare.sharing import are_shared
from xorack.spark.units import signed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark._diff.columns import Comparison, Pair

    Hashed = Callable[[Comparison, int], str]

__all__ = [
    "Digests",
    "compare_digests",
    "differing_keys",
    "differing_rows",
    "in_buckets",
    "key_hash",
    "row_hash",
    "rows_of_keys",
]

_BUCKETS = 1 << 12
"""A task's digests fit into the processor's cache: four times as many cost a fifth more CPU."""
_HASHES_A_TASK = 250_000
_STRATA = 12
_OF_STRATUM = 64
"""One key in so many falls into a stratum, which has so many buckets."""
_EQUAL = 0.3
"""The share of equal buckets with which a stratum tells the number of keys."""
_HALF = 32
_ODD = 0x9E3779B97F4A7C15


class Digests(NamedTuple):
    """What the digests of both sides say.

    Attributes:
        left: The rows of the left side.
        right: The rows of the right side.
        buckets: The buckets that differ.
        differing: The rows of both sides in these.
        keys: An estimate of the keys that differ.
        are_shared: True if many rows of a side have other rows' keys.
    """

    left: int
    right: int
    buckets: Sequence[int]
    differing: int
    keys: float
    are_shared: bool


def hash_of(pairs: Sequence[Pair], side: int, *seed: str) -> str:
    """Return as SQL the hash of the columns of a side, and of which of them are null."""
    parts = list(seed)
    for place, pair in enumerate(pairs, 1):
        parts.append(pair.form(side))
        if pair.nullable:
            # xxhash64 skips nulls: (1, null) and (null, 1) would have one hash.
            parts.append(f"{signed(place * _ODD)}L")
    return f"xxhash64({', '.join(parts)})"


def key_hash(comparison: Comparison, side: int) -> str:
    """Return as SQL the hash of the key of a side."""
    return hash_of(comparison.keys, side)


def row_hash(comparison: Comparison, side: int) -> str:
    """Return as SQL the hash of the key and the compared columns of a side."""
    return hash_of(comparison.values, side, key_hash(comparison, side))


def in_buckets(comparison: Comparison, side: int, buckets: Iterable[int]) -> str:
    """Return as SQL whether the key of a row of a side is in one of the buckets."""
    return f"{_bucket(key_hash(comparison, side))} IN ({', '.join(map(str, buckets))})"


def compare_digests(comparison: Comparison) -> Digests:
    """Read both sides, and find the buckets that differ."""
    sides = []
    for side, frame in enumerate(comparison.frames):
        hashes = frame.selectExpr(*_hashes(comparison, side))
        rows = hashes.selectExpr(f"{_bucket('hash')} AS bucket", "row")
        sums = "count(1) AS n", *(f"sum({half})" for half in _halves("row"))
        sums_of = rows.groupBy("bucket").agg(*map(F.expr, sums))
        sides.append(sums_of.select(F.lit(side), "*"))
    digests: list[dict[int, tuple[int, int, int]]] = [{}, {}]
    for side, bucket, *digest in sides[0].union(sides[1]).collect():
        digests[side][bucket] = tuple(digest)
    left, right = digests
    differing = [b for b in left.keys() | right.keys() if left.get(b) != right.get(b)]
    rows_in = [sum(side[b][0] for b in differing if b in side) for side in digests]
    totals = [sum(count for count, *_ in side.values()) for side in digests]
    shared = any(are_shared(*_numbers(side)) for side in digests)
    keys = _keys_in(differing)
    return Digests(totals[0], totals[1], sorted(differing), sum(rows_in), keys, shared)


def _numbers(side: Mapping[int, tuple[int, int, int]]) -> Iterator[tuple[Sequence[int], int]]:
    """Yield the numbers of rows in buckets, by stratum, and how many buckets such a one has."""
    found = defaultdict[int, list[int]](list)
    for bucket, (number, *_) in side.items():
        found[_stratum(bucket)].append(number)
    for stratum, numbers in found.items():
        yield numbers, _BUCKETS if stratum < 0 else _OF_STRATUM


def _stratum(bucket: int) -> int:
    """Return the stratum that a bucket is of, from 0; -1 if of none."""
    return max(-1, (bucket - _BUCKETS) // _OF_STRATUM)


def _keys_in(buckets: Iterable[int]) -> float:
    """Estimate the keys that differ by the first stratum that has enough equal buckets."""
    found = Counter(map(_stratum, buckets))
    for stratum in range(_STRATA):
        equal = 1 - found[stratum] / _OF_STRATUM
        if equal > _EQUAL:
            break
    return -math.log(equal or 1 / _OF_STRATUM) * _OF_STRATUM**2 * (2 << stratum)


def differing_keys(comparison: Comparison, frames: Sequence[DataFrame], number: int) -> DataFrame:
    """Find the keys whose rows differ between the sides, among some rows of each.

    Args:
        comparison: The comparison.
        frames: The rows of the sides.
        number: How many rows these are, by which tasks are made.

    Returns:
        ``hash``, of the key; ``rows``, how many both sides have; ``several``, true if a side has
        more than one.
    """
    # The sign tells the side, ~ on the right: two longs a row are shuffled, equal rows sum to -1.
    signed_rows = ("shiftrightunsigned(row, 1) AS row", "~shiftrightunsigned(row, 1) AS row")
    left, right = (
        frame.selectExpr(*_hashes(comparison, side)).selectExpr("hash", signed_rows[side])
        for side, frame in enumerate(frames)
    )
    # Nearly all keys are different: partial sums in the first tasks would be in vain.
    rows = left.union(right).repartition(1 + number // _HASHES_A_TASK, "hash")
    # Both counts in one sum: that of the left in its lower half.
    counts = f"sum(IF(row < 0, {1 << _HALF}, 1)) AS counts"
    keys = rows.groupBy("hash").agg(F.expr("try_sum(row) AS total"), F.expr(counts))
    lefts, rights = _halves("counts")
    # Null: the hashes of duplicates overflowed.
    differ = keys.where(f"total IS NULL OR total != -{rights} OR {lefts} != {rights}")
    return differ.selectExpr(
        "hash",
        f"{lefts} + {rights} AS rows",
        f"{lefts} > 1 OR {rights} > 1 AS several",
    )


def differing_rows(comparison: Comparison, frames: Sequence[DataFrame], number: int) -> DataFrame:
    """Find the rows of which a side has more copies; the arguments are as in `differing_keys`.

    Returns:
        ``hash``, of the row; ``rows``, how many both sides have; ``several``, true.
    """
    rows = _both(comparison, frames, row_hash).repartition(1 + number // _HASHES_A_TASK, "hash")
    copies = rows.groupBy("hash").agg(F.count("side").alias("rows"), F.sum("side").alias("rights"))
    return copies.where("rows != 2 * rights").selectExpr("hash", "rows", "true AS several")


def rows_of_keys(comparison: Comparison, frames: Sequence[DataFrame]) -> DataFrame:
    """Count ``lefts`` and ``rights``, the rows of both sides, by ``hash``, that of the key."""
    counts = "count_if(side = 0) AS lefts", "count_if(side = 1) AS rights"
    return _both(comparison, frames, key_hash).groupBy("hash").agg(*map(F.expr, counts))


def _both(comparison: Comparison, frames: Sequence[DataFrame], hashed: Hashed) -> DataFrame:
    """Put ``hash``, of the rows or their keys, and ``side`` of both sides into one frame."""
    left, right = (
        frame.selectExpr(f"{hashed(comparison, side)} AS hash", f"{side} AS side")
        for side, frame in enumerate(frames)
    )
    return left.union(right)


def _bucket(key: str) -> str:
    """Return as SQL the bucket of the hash of a key; one of 64 is in that of a stratum.

    A stratum has half the keys of the one before: those with as many zeros at the end of a part of
    the hash.
    """
    zeros = f"bit_count((shiftright({key}, 24) & -shiftright({key}, 24)) - 1)"
    of_stratum = f"least({zeros}, {_STRATA - 1}) * {_OF_STRATUM} + (shiftright({key}, 18) & 63)"
    is_sampled = f"shiftright({key}, 12) & 63 = 0"
    return f"int(IF({is_sampled}, {_BUCKETS} + {of_stratum}, {key} & {_BUCKETS - 1}))"


def _hashes(comparison: Comparison, side: int) -> tuple[str, str]:
    """Return as SQL ``hash``, that of the key, and ``row``, that of the compared columns."""
    return f"{key_hash(comparison, side)} AS hash", f"{row_hash(comparison, side)} AS row"


def _halves(name: str) -> list[str]:
    """Return as SQL the two halves of a hash: sums of them do not overflow."""
    return [f"({name} & {(1 << _HALF) - 1})", f"shiftright({name}, {_HALF})"]
