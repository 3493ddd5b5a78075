"""Digests of two frames: which buckets of keys hold other rows on the two sides.

A row falls into a bucket by the hash of its key. A bucket's digest is the number of rows and the
sums of the two halves of their hashes. XOR would not do: it is blind to pairs of equal rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F

from xorack.spark.units import signed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark._diff.columns import Comparison, Pair

__all__ = ["Digests", "compare_digests", "differing_keys", "hash_of", "in_buckets"]

_BUCKETS = 1 << 12
"""A task's digests fit into the processor's cache: four times as many cost a fifth more CPU."""
_HASHES_A_TASK = 250_000
_MASK_BITS = 62
_WORD = 64
_HALF = 32


class Digests(NamedTuple):
    """What the digests of both sides say.

    Attributes:
        left: The rows of the left side.
        right: The rows of the right side.
        buckets: The buckets that differ.
        differing: The rows of both sides in these.
    """

    left: int
    right: int
    buckets: Sequence[int]
    differing: int


def hash_of(pairs: Sequence[Pair], side: int, *seed: Column) -> Column:
    """Return the hash of the columns of a side, and of which of them are null."""
    nullable = [pair.column(side).isNull() for pair in pairs if pair.nullable]
    # xxhash64 skips nulls: (1, null) and (null, 1) would have one hash.
    flags = [
        F.when(is_null, F.lit(1 << i % _MASK_BITS)).otherwise(F.lit(0)).cast("long")
        for i, is_null in enumerate(nullable)
    ]
    masks = [
        reduce(Column.bitwiseOR, flags[i : i + _MASK_BITS])
        for i in range(0, len(flags), _MASK_BITS)
    ]
    return F.xxhash64(*seed, *(pair.form(side) for pair in pairs), *masks)


def in_buckets(comparison: Comparison, side: int, buckets: Iterable[int]) -> Column:
    """Return true for the rows of a side whose key is in one of the buckets."""
    words = [0] * (_BUCKETS // _WORD)
    for bucket in buckets:
        words[bucket // _WORD] |= 1 << bucket % _WORD
    bits = F.array(*(F.lit(signed(word)).cast("long") for word in words))
    of_row = _bucket(comparison, side)
    word = F.get(bits, F.shiftright(of_row, 6))
    bit = F.call_function("shiftright", word, of_row.bitwiseAND(F.lit(_WORD - 1)))
    return bit.bitwiseAND(F.lit(1)) == 1


def compare_digests(comparison: Comparison) -> Digests:
    """Read both sides, and find the buckets that differ."""
    sides = []
    for side, frame in enumerate(comparison.frames):
        row = _row_hash(comparison, side)
        rows = frame.select(_bucket(comparison, side).alias("bucket"), row.alias("row"))
        sums = [F.sum(half) for _, half in _halves("row")]
        sums_of = rows.groupBy("bucket").agg(F.count(F.lit(1)), *sums)
        sides.append(sums_of.select(F.lit(side), "*"))
    digests: list[dict[int, tuple[int, int, int]]] = [{}, {}]
    for side, bucket, *digest in sides[0].union(sides[1]).collect():
        digests[side][bucket] = tuple(digest)
    left, right = digests
    differing = [b for b in left.keys() | right.keys() if left.get(b) != right.get(b)]
    rows_in = [sum(side[b][0] for b in differing if b in side) for side in digests]
    totals = [sum(count for count, *_ in side.values()) for side in digests]
    return Digests(totals[0], totals[1], sorted(differing), sum(rows_in))


def differing_keys(comparison: Comparison, frames: Sequence[DataFrame], number: int) -> DataFrame:
    """Read some rows of both sides, so many, and find the keys with other rows on the two sides.

    Returns:
        ``hash``, of the key; ``rows``, how many both sides have; ``differs``; ``several``, true if
        a side has more than one row. Keys of several equal rows are there, too.
    """
    sides = []
    for side, frame in enumerate(frames):
        # The sign is the side: two longs a row are shuffled, and equal rows add up to -1.
        row = F.shiftrightunsigned(_row_hash(comparison, side), 1)
        key = hash_of(comparison.keys, side).alias("hash")
        sides.append(frame.select(key, (F.bitwise_not(row) if side else row).alias("row")))
    # Nearly all keys are different: partial sums in the first tasks would be in vain.
    rows = sides[0].union(sides[1]).repartition(1 + number // _HASHES_A_TASK, "hash")
    is_right = F.col("row") < 0
    counts = F.sum(F.when(is_right, F.lit(1 << _HALF)).otherwise(F.lit(1)))
    keys = rows.groupBy("hash").agg(F.try_sum("row").alias("total"), counts.alias("counts"))
    lefts, rights = (half for _, half in _halves("counts"))
    # Null: the hashes of duplicates overflowed.
    differs = F.col("total").isNull() | (F.col("total") != -rights) | (lefts != rights)
    columns = {
        "rows": lefts + rights,
        "differs": differs,
        "several": (lefts > 1) | (rights > 1),
    }
    found = keys.select("hash", *(column.alias(name) for name, column in columns.items()))
    return found.where("differs OR several")


def _bucket(comparison: Comparison, side: int) -> Column:
    return hash_of(comparison.keys, side).bitwiseAND(F.lit(_BUCKETS - 1)).cast("int")


def _row_hash(comparison: Comparison, side: int) -> Column:
    return hash_of(comparison.values, side, hash_of(comparison.keys, side))


def _halves(name: str) -> list[tuple[str, Column]]:
    """Return the two halves of a hash: sums of them do not overflow."""
    low = F.col(name).bitwiseAND(F.lit((1 << _HALF) - 1))
    return [("low", low), ("high", F.shiftright(name, _HALF))]
