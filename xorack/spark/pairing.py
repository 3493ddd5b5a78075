"""Pairing: the rows of both sides that differ, beside each other."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as F

from xorack.spark.digests import bucket_of
from xorack.spark.errors import NotDeterministic
from xorack.spark.units import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from xorack.spark.columns import Comparison
    from xorack.spark.digests import Digests

__all__ = ["Found", "pair_rows"]


class Found(NamedTuple):
    """How many rows were found of each kind; see `xorack.spark.Counts`."""

    missing: int
    extra: int
    changed: int
    duplicate_keys_left: int
    duplicate_keys_right: int
    columns: dict[str, int]


def pair_rows(comparison: Comparison, digests: Digests) -> tuple[DataFrame, Found]:
    """Read the rows of the buckets that differ again, and pair them.

    Returns:
        A row for each pair of the keys that differ: ``k``, the key's canonical form; ``n``, a
        number; ``l`` and ``r``, the whole rows of the sides; ``kind``, missing, extra, changed or
        equal; ``columns``, the names of columns with other values; ``lefts`` and ``rights``, the
        numbers of rows with this key. It is cached.
    """
    sides = [_candidates(comparison, side, digests.buckets) for side in (0, 1)]
    pairs = _pairs(comparison, sides[0].unionByName(sides[1], allowMissingColumns=True))
    if not digests.buckets:
        return pairs, Found(0, 0, 0, 0, 0, {})
    pairs = pairs.persist()
    found = _count(comparison, pairs)
    if found.missing - found.extra != digests.left - digests.right:
        pairs.unpersist()
        raise NotDeterministic(
            "the frames gave other rows when they were read again: write them first"
        )
    return pairs, found


def _candidates(comparison: Comparison, side: int, buckets: Collection[int]) -> DataFrame:
    frame = (comparison.left, comparison.right)[side]
    keys = [pair.form(side).alias(f"k{i}") for i, pair in enumerate(comparison.keys)]
    # Columns with a tolerance come last: the others tell which rows belong together.
    ordered = sorted(comparison.values, key=lambda pair: pair.tolerance is not None)
    values = [pair.form(side).alias(f"v{i}") for i, pair in enumerate(ordered)]
    row = F.struct(*(F.col(quoted(name)) for name in frame.columns))
    wanted = frame.where(
        F.lit(False) if not buckets else bucket_of(comparison, side).isin(list(buckets))
    )
    return wanted.select(
        F.struct(*keys).alias("k"),
        F.struct(F.lit(0).alias("v"), *values).alias("v"),
        F.lit(side).alias("side"),
        row.alias("lr"[side]),
    )


def _pairs(comparison: Comparison, rows: DataFrame) -> DataFrame:
    """Cancel equal rows of a key, number the others on both sides, and put them together."""
    copy = F.row_number().over(Window.partitionBy("k", "v", "side").orderBy("v"))
    both = F.count(F.lit(1)).over(Window.partitionBy("k", "v", "copy")) > 1
    number = F.row_number().over(Window.partitionBy("k", "same", "side").orderBy("v"))
    numbered = (
        rows.repartition("k")
        .withColumn("copy", copy)
        .withColumn("same", both)
        .withColumn("n", number)
    )
    pairs = numbered.groupBy("k", "same", "n").agg(
        F.first("l", ignorenulls=True).alias("l"), F.first("r", ignorenulls=True).alias("r")
    )
    names = F.array(
        *(F.when(pair.differs("l", "r"), F.lit(pair.name)) for pair in comparison.values)
    ).cast("array<string>")
    is_pair = F.col("l").isNotNull() & F.col("r").isNotNull()
    columns = F.when(is_pair, F.filter(names, lambda name: name.isNotNull()))
    by_key = Window.partitionBy("k")
    return (
        pairs.withColumn("columns", columns)
        .withColumn("kind", _kind())
        .withColumn("lefts", F.count("l").over(by_key))
        .withColumn("rights", F.count("r").over(by_key))
        .withColumn("differ", F.count_if(F.col("kind") != "equal").over(by_key))
        .where("differ > 0")
        .select("k", "n", "l", "r", "kind", "columns", "lefts", "rights")
    )


def _kind() -> Column:
    return (
        F.when(F.col("l").isNull(), "extra")
        .when(F.col("r").isNull(), "missing")
        .when(F.col("same") | (F.size("columns") == 0), "equal")
        .otherwise("changed")
    )


def _count(comparison: Comparison, pairs: DataFrame) -> Found:
    kinds = [F.count_if(F.col("kind") == kind) for kind in ("missing", "extra", "changed")]
    duplicates = [F.count_distinct(F.when(F.col(n) > 1, F.col("k"))) for n in ("lefts", "rights")]
    names = [pair.name for pair in comparison.values]
    is_changed = F.col("kind") == "changed"
    columns = [F.count_if(is_changed & F.array_contains("columns", name)) for name in names]
    row = pairs.agg(*kinds, *duplicates, *columns).collect()[0]
    numbers = dict(zip(names, row[5:], strict=True))
    ordered = sorted((name for name in names if numbers[name]), key=lambda name: -numbers[name])
    return Found(*row[:5], {name: numbers[name] for name in ordered})
