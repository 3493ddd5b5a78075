"""Digests of two frames: which buckets of keys hold other rows on the two sides.

A row falls into a bucket by the hash of its key. A bucket's digest is the number of rows and the
sums of the two halves of their hashes. XOR would not do: it is blind to pairs of equal rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from xorack.spark.columns import Comparison, Pair

__all__ = ["BUCKETS", "Digests", "bucket_of", "digest"]

BUCKETS = 1 << 14
"""Their digests fit into the processor's cache, and are half a megabyte a task."""
_MASK_BITS = 62


class Digests(NamedTuple):
    """What the digests say.

    Attributes:
        left: The rows of the left side.
        right: The rows of the right side.
        buckets: The buckets that differ.
    """

    left: int
    right: int
    buckets: Sequence[int]


def hash_of(pairs: Sequence[Pair], side: int, *seed: Column) -> Column:
    """Return the hash of the columns of a side, and of which of them are null."""
    # xxhash64 skips nulls: (1, null) and (null, 1) would have one hash.
    flags = [
        F.when(pair.column(side).isNull(), F.lit(1 << i % _MASK_BITS))
        .otherwise(F.lit(0))
        .cast("long")
        for i, pair in enumerate(pair for pair in pairs if pair.nullable)
    ]
    masks = [
        reduce(Column.bitwiseOR, flags[i : i + _MASK_BITS])
        for i in range(0, len(flags), _MASK_BITS)
    ]
    return F.xxhash64(*seed, *(pair.form(side) for pair in pairs), *masks)


def bucket_of(comparison: Comparison, side: int) -> Column:
    """Return the bucket of each row of a side."""
    return hash_of(comparison.keys, side).bitwiseAND(F.lit(BUCKETS - 1)).cast("int")


def digest(comparison: Comparison) -> Digests:
    """Read both sides and find the buckets that differ."""
    sides = []
    for side, frame in enumerate((comparison.left, comparison.right)):
        key = hash_of(comparison.keys, side)
        hashed = frame.select(
            bucket_of(comparison, side).alias("bucket"),
            hash_of(comparison.values, side, key).alias("hash"),
        )
        sides.append(
            hashed.select("bucket", F.lit(1 - 2 * side).cast("long").alias("sign"), "hash")
        )
    sign, low = F.col("sign"), F.col("hash").bitwiseAND(F.lit((1 << 32) - 1))
    high = F.shiftright("hash", 32)
    buckets = (
        sides[0]
        .union(sides[1])
        .groupBy("bucket")
        .agg(
            F.count_if(sign > 0).alias("left"),
            F.count_if(sign < 0).alias("right"),
            F.sum(sign * low).alias("low"),
            F.sum(sign * high).alias("high"),
        )
    )
    differs = (F.col("left") != F.col("right")) | (F.col("low") != 0) | (F.col("high") != 0)
    row = buckets.agg(
        F.coalesce(F.sum("left"), F.lit(0)),
        F.coalesce(F.sum("right"), F.lit(0)),
        F.collect_list(F.when(differs, F.col("bucket"))),
    ).collect()[0]
    return Digests(row[0], row[1], row[2])
