"""Pairing: the rows of both sides that differ, beside each other."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from xorack.compare.report import Counts, by_rows
from xorack.core.errors import StateError
from xorack.spark._diff.digests import differing_keys, hash_of, in_buckets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark._diff.columns import Comparison, Pair
    from xorack.spark._diff.digests import Digests

    Names = dict[str, int]

__all__ = ["key_struct", "pair_rows"]

_FEW = 0.01
"""The share of rows in buckets that differ, up to which they are paired at once, equal ones too."""
_MOST = 0.2
"""The share of keys that differ, of the rows of both sides, above which these are not searched."""
_BROADCAST_KEYS = 2_000_000
"""Hashes of keys that are sent to all tasks: some 100 MB."""
_ROWS_A_TASK = 50_000


def pair_rows(comparison: Comparison, digests: Digests) -> tuple[DataFrame, Counts, Names]:
    """Read the rows of the buckets that differ again, and pair them.

    Returns:
        A row for each pair of the keys that differ. ``k``: the key's canonical form. ``n``: the
        number of the pair among those of its key, from 1; 0 if its rows cancel each other out.
        ``l`` and ``r``: the whole rows. ``kind``: missing, extra, changed or equal. ``columns``:
        the places of columns with other values. ``lefts`` and ``rights``: the numbers of rows with
        this key. It is cached. How many there are, and how many differ in each column.
    """
    if not digests.buckets:
        counts = Counts(digests.left, digests.right, digests.left, 0, 0, 0, 0, 0)
        return _no_pairs(comparison), counts, {}
    frames = [
        frame.where(in_buckets(comparison, side, digests.buckets))
        for side, frame in enumerate(comparison.frames)
    ]
    number, total = digests.differing, digests.left + digests.right
    unique = digests.keys > _MOST * total
    with ExitStack() as stack:
        if number > _FEW * total and not unique:
            keys = differing_keys(comparison, frames, number).persist()
            stack.callback(keys.unpersist)
            sums = F.count(F.lit(1)), F.sum("rows"), F.count_if("several")
            number_of_keys, rows, several = keys.agg(*sums).collect()[0]
            if number_of_keys <= _BROADCAST_KEYS:
                frames = [_with_keys(comparison, side, keys) for side in (0, 1)]
                number = rows or 0
            unique = not several
        pairs = _paired(comparison, frames, number, unique=unique).persist()
        counts, columns = _count(comparison, pairs, digests)
        if unique and counts.duplicate_keys_left + counts.duplicate_keys_right:
            pairs.unpersist()
            pairs = _paired(comparison, frames, number, unique=False).persist()
            counts, columns = _count(comparison, pairs, digests)
    if counts.missing - counts.extra != digests.left - digests.right:
        pairs.unpersist()
        raise StateError("the frames gave other rows when they were read again: write them first")
    return pairs, counts, columns


def _with_keys(comparison: Comparison, side: int, keys: DataFrame) -> DataFrame:
    """Select the rows of a side whose keys have these hashes."""
    frame = comparison.frames[side]
    name = "h" * (max(map(len, frame.columns)) + 1)  # unlike any column's
    chosen = F.broadcast(keys.select(F.col("hash").alias(name)))
    is_chosen = F.expr(f"{hash_of(comparison.keys, side)} = {name}")
    return frame.join(chosen, is_chosen, "left_semi")


def _rows(comparison: Comparison, frame: DataFrame, side: int, *, unique: bool) -> DataFrame:
    """Put the rows of a side into structs, with the hash and the forms of their keys.

    Where keys have several rows, the side and the forms of the compared columns are there, too.
    """
    columns = [
        f"{hash_of(comparison.keys, side)} AS hash",
        f"{key_struct(comparison, side)} AS k",
        f"struct(*) AS {'lr'[side]}",
    ]
    if not unique:
        # Columns with a tolerance come last: the others tell which rows belong together.
        ordered = sorted(comparison.values, key=lambda pair: pair.limit is not None)
        columns += [f"{side} AS side", f"{_struct('v', ordered, side)} AS v"]
    return frame.selectExpr(*columns)


def key_struct(comparison: Comparison, side: int) -> str:
    """Return as SQL the canonical form of the whole key of a side."""
    return _struct("k", comparison.keys, side)


def _struct(name: str, pairs: Iterable[Pair], side: int) -> str:
    """Return as SQL a struct of the forms of columns."""
    forms = (f", '{name}{i}', {pair.form(side)}" for i, pair in enumerate(pairs))
    return f"named_struct('{name}', 0{''.join(forms)})"


def _no_pairs(comparison: Comparison) -> DataFrame:
    """Make an empty frame like `_paired`, whose plan costs a twentieth of comparing equal data."""
    left, right = (frame.schema for frame in comparison.frames)
    places, number = T.ArrayType(T.IntegerType()), T.LongType()
    types = {
        **{"k": number, "n": number, "l": left, "r": right},
        **{"kind": T.StringType(), "columns": places, "lefts": number, "rights": number},
    }
    schema = T.StructType([T.StructField(name, type_) for name, type_ in types.items()])
    return comparison.frames[0].sparkSession.createDataFrame([], schema)


def _paired(
    comparison: Comparison, frames: list[DataFrame], number: int, *, unique: bool
) -> DataFrame:
    """Put rows of both sides, so many, beside each other.

    If keys are taken for unique, those that are not are there with their numbers of rows.
    """
    sides = [_rows(comparison, frame, side, unique=unique) for side, frame in enumerate(frames)]
    places = (f"IF({pair.differs()}, {i}, NULL)" for i, pair in enumerate(comparison.values))
    columns = f"filter(array({', '.join(places)}), place -> place IS NOT NULL)"
    # Spark's 200 tasks, which a cached frame keeps, cost more for ten rows than reading both sides.
    tasks = 1 + number // _ROWS_A_TASK
    rows = sides[0].unionByName(sides[1], allowMissingColumns=True).repartition(tasks, "hash")
    place = ["hash", "k"] if unique else ["hash", "k", "same", "n"]
    grouped = (rows if unique else _numbered(rows)).groupBy(*place)
    sums = [F.expr(f"first({side}, true) AS {side}") for side in _COUNTS.values()]
    sums += [F.count(side).alias(name) for name, side in _COUNTS.items()]
    pairs = grouped.agg(*sums).selectExpr(
        "*",
        f"IF(l IS NULL OR r IS NULL, NULL, CAST({columns} AS array<int>)) AS columns",
        "monotonically_increasing_id() AS id",  # else filters compare the columns once more
    )
    pairs = pairs.withColumn("kind", F.expr(_KIND))
    if unique:
        found = pairs.where("kind <> 'equal' OR lefts > 1 OR rights > 1").withColumn("n", F.lit(1))
    else:
        by_key = Window.partitionBy("hash", "k")
        counts = {name: F.count(side).over(by_key) for name, side in _COUNTS.items()}
        differ = F.count_if(F.col("kind") != "equal").over(by_key)
        number_of = F.when(F.col("same"), 0).otherwise(F.col("n"))
        columns_of = {**counts, "differ": differ, "n": number_of}
        found = pairs.withColumns(columns_of).where("differ > 0")
    return found.select("k", "n", "l", "r", "kind", "columns", "id", *_COUNTS)


_KIND = """
    CASE WHEN l IS NULL THEN 'extra' WHEN r IS NULL THEN 'missing'
    WHEN size(columns) > 0 THEN 'changed' ELSE 'equal' END
"""
_COUNTS = {"lefts": "l", "rights": "r"}


def _numbered(rows: DataFrame) -> DataFrame:
    """Cancel equal rows of a key, and number the others on both sides."""
    steps = {
        "copy": F.row_number().over(Window.partitionBy("hash", "k", "v", "side").orderBy("side")),
        "same": F.count(F.lit(1)).over(Window.partitionBy("hash", "k", "v", "copy")) > 1,
        "n": F.row_number().over(Window.partitionBy("hash", "k", "same", "side").orderBy("v")),
    }
    return reduce(lambda frame, step: frame.withColumn(*step), steps.items(), rows)


def _count(comparison: Comparison, pairs: DataFrame, digests: Digests) -> tuple[Counts, Names]:
    kinds = [F.count_if(F.col("kind") == kind) for kind in ("missing", "extra", "changed")]
    # Each key that differs has one pair with the number 1.
    duplicates = [F.count_if((F.col(name) > 1) & (F.col("n") == 1)) for name in _COUNTS]
    (found,) = pairs.agg(*kinds, *duplicates).collect()
    missing, _, changed, *_ = found
    columns = {}
    if changed:  # as many sums as there are columns would be planned for minutes
        places = pairs.selectExpr("explode(columns) AS place").groupBy("place").count().collect()
        columns = {comparison.values[row.place].name: row["count"] for row in sorted(places)}
    equal = digests.left - missing - changed
    return Counts(digests.left, digests.right, equal, *found), by_rows(columns)
