"""Pairing: the rows of both sides that differ, beside each other."""

from __future__ import annotations

from contextlib import ExitStack
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from xorack.compare.report import by_rows
from xorack.core.errors import StateError
from xorack.spark._diff.digests import differing_keys, hash_of, in_buckets
from xorack.spark.units import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark._diff.columns import Comparison
    from xorack.spark._diff.digests import Digests

__all__ = ["Found", "pair_rows"]

_FEW = 0.01
"""The share of rows in buckets that differ, up to which they are paired at once, equal ones too."""
_BROADCAST_KEYS = 2_000_000
"""Hashes of keys that are sent to all tasks: some 100 MB."""
_ROWS_A_TASK = 50_000


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
        A row for each pair of the keys that differ. ``k``: the key's canonical form. ``n``: the
        number of the pair among those of its key, from 1; 0 if its rows cancel each other out.
        ``l`` and ``r``: the whole rows. ``kind``: missing, extra, changed or equal. ``columns``:
        the names of columns with other values, and null in place of others. ``lefts`` and
        ``rights``: the numbers of rows with this key. It is cached. And how many there are.
    """
    if not digests.buckets:
        return _no_pairs(comparison), Found(0, 0, 0, 0, 0, {})
    frames = [
        frame.where(in_buckets(comparison, side, digests.buckets))
        for side, frame in enumerate(comparison.frames)
    ]
    number, unique = digests.differing, False
    with ExitStack() as stack:
        if number > _FEW * (digests.left + digests.right):
            keys = differing_keys(comparison, frames, number).persist()
            stack.callback(keys.unpersist)
            chosen = keys.where("differs")
            sums = F.count(F.lit(1)), F.sum("rows"), F.count_if("several")
            number_of_keys, rows, several = chosen.agg(*sums).collect()[0]
            if number_of_keys <= _BROADCAST_KEYS:
                frames = [_with_keys(comparison, side, chosen) for side in (0, 1)]
                number = rows or 0
            else:
                several = keys.where("several").count()  # all keys of the buckets are paired
            unique = not several
        sides = [_rows(comparison, frame, side, unique=unique) for side, frame in enumerate(frames)]
        pairs = _paired(comparison, sides, number, unique=unique).persist()
        found = _count(comparison, pairs)
    if found.missing - found.extra != digests.left - digests.right:
        pairs.unpersist()
        raise StateError("the frames gave other rows when they were read again: write them first")
    return pairs, found


def _with_keys(comparison: Comparison, side: int, keys: DataFrame) -> DataFrame:
    """Select the rows of a side whose keys have these hashes."""
    frame = comparison.frames[side]
    name = "h" * (max(map(len, frame.columns)) + 1)  # unlike any column's
    chosen = F.broadcast(keys.select(F.col("hash").alias(name)))
    return frame.join(chosen, hash_of(comparison.keys, side) == F.col(name), "left_semi")


def _rows(comparison: Comparison, frame: DataFrame, side: int, *, unique: bool) -> DataFrame:
    """Put the rows of a side into structs, with the hash and the forms of their keys.

    Where keys have several rows, the side and the forms of the compared columns are there, too.
    """
    forms = [pair.form(side).alias(f"k{i}") for i, pair in enumerate(comparison.keys)]
    row = F.struct(*(F.col(quoted(name)) for name in frame.columns))
    key = hash_of(comparison.keys, side).alias("hash"), F.struct(*forms).alias("k")
    if unique:
        return frame.select(*key, row.alias("lr"[side]))
    # Columns with a tolerance come last: the others tell which rows belong together.
    ordered = sorted(comparison.values, key=lambda pair: pair.limit is not None)
    # Of the frame, not of the struct: fields of a struct of n columns take n * n time to plan.
    of_values = [pair.form(side).alias(f"v{i}") for i, pair in enumerate(ordered)]
    values = F.struct(F.lit(0).alias("v"), *of_values)
    return frame.select(*key, row.alias("lr"[side]), F.lit(side).alias("side"), values.alias("v"))


def _no_pairs(comparison: Comparison) -> DataFrame:
    """Make an empty frame like `_paired`, whose plan costs a twentieth of comparing equal data."""
    left, right = (frame.schema for frame in comparison.frames)
    number, text = T.LongType(), T.StringType()
    types = {
        **{"k": number, "n": number, "l": left, "r": right},
        **{"kind": text, "columns": T.ArrayType(text), "lefts": number, "rights": number},
    }
    schema = T.StructType([T.StructField(name, type_) for name, type_ in types.items()])
    return comparison.left.sparkSession.createDataFrame([], schema)


def _paired(
    comparison: Comparison, sides: list[DataFrame], number: int, *, unique: bool
) -> DataFrame:
    """Put the rows of both sides, so many, beside each other."""
    differs = {pair.name: pair.differs("l", "r") for pair in comparison.values}
    names = F.array(*(F.when(differ, F.lit(name)) for name, differ in differs.items()))
    is_pair = F.col("l").isNotNull() & F.col("r").isNotNull()
    columns = F.when(is_pair, names.cast("array<string>"))
    kind = (
        F.when(F.col("l").isNull(), "extra")
        .when(F.col("r").isNull(), "missing")
        .when(F.exists("columns", lambda name: name.isNotNull()), "changed")
        .otherwise("equal")
    )
    # Spark's 200 tasks, which a cached frame keeps, cost more for ten rows than reading both sides.
    tasks = 1 + number // _ROWS_A_TASK
    rows = sides[0].unionByName(sides[1], allowMissingColumns=True).repartition(tasks, "hash")
    both = [F.first(side, ignorenulls=True).alias(side) for side in ("l", "r")]
    place = ["hash", "k"] if unique else ["hash", "k", "same", "n"]
    pairs = (rows if unique else _numbered(rows)).groupBy(*place).agg(*both)
    pairs = pairs.withColumn("columns", columns).withColumn("kind", kind)
    if unique:
        one = {name: F.col(side).isNotNull().cast("long") for name, side in _COUNTS.items()}
        found = pairs.where("kind <> 'equal'").withColumns({**one, "n": F.lit(1)})
    else:
        by_key = Window.partitionBy("hash", "k")
        counts = {name: F.count(side).over(by_key) for name, side in _COUNTS.items()}
        differ = F.count_if(F.col("kind") != "equal").over(by_key)
        number_of = F.when(F.col("same"), 0).otherwise(F.col("n"))
        columns_of = {**counts, "differ": differ, "n": number_of}
        found = pairs.withColumns(columns_of).where("differ > 0")
    return found.select("k", "n", "l", "r", "kind", "columns", *_COUNTS)


_COUNTS = {"lefts": "l", "rights": "r"}


def _numbered(rows: DataFrame) -> DataFrame:
    """Cancel equal rows of a key, and number the others on both sides."""
    steps = {
        "copy": F.row_number().over(Window.partitionBy("hash", "k", "v", "side").orderBy("side")),
        "same": F.count(F.lit(1)).over(Window.partitionBy("hash", "k", "v", "copy")) > 1,
        "n": F.row_number().over(Window.partitionBy("hash", "k", "same", "side").orderBy("v")),
    }
    return reduce(lambda frame, step: frame.withColumn(*step), steps.items(), rows)


def _count(comparison: Comparison, pairs: DataFrame) -> Found:
    kinds = [F.count_if(F.col("kind") == kind) for kind in ("missing", "extra", "changed")]
    # Each key that differs has one pair with the number 1.
    duplicates = [F.count_if((F.col(name) > 1) & (F.col("n") == 1)) for name in _COUNTS]
    missing, extra, changed, left, right = pairs.agg(*kinds, *duplicates).collect()[0]
    numbers = {pair.name: 0 for pair in comparison.values}
    if changed:  # as many sums as there are columns would be planned for minutes
        names = pairs.where("kind = 'changed'").select(F.explode("columns").alias("name"))
        of_names = names.where("name IS NOT NULL").groupBy("name").count().collect()
        numbers |= {row["name"]: row["count"] for row in of_names}
    return Found(missing, extra, changed, left, right, by_rows(numbers))
