"""Pairing: the rows of both sides that differ, beside each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from xorack.compare.report import Counts, by_rows
from xorack.core.errors import StateError
from xorack.spark._diff.digests import (
    differing_keys,
    differing_rows,
    in_buckets,
    key_hash,
    row_hash,
    rows_of_keys,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark._diff.columns import Comparison, Pair
    from xorack.spark._diff.digests import Digests, Hashed

    Names = dict[str, int]

__all__ = ["key_struct", "pair_rows"]

_FEW = 0.01
"""The share of rows in buckets that differ, up to which they are paired at once, equal ones too."""
_MOST = 0.2
"""The share of keys that differ, of the rows of both sides, above which these are not searched."""
_BROADCAST_HASHES = 2_000_000
"""Hashes of keys or rows that are sent to all tasks: some 100 MB."""
_ROWS_A_TASK = 50_000


def pair_rows(comparison: Comparison, digests: Digests) -> tuple[DataFrame, Counts, Names]:
    """Read the rows of the buckets that differ again, and pair them.

    Returns:
        A row for each pair of the keys that differ, without equal rows. ``k``: the key's canonical
        form. ``n``: the number of the pair among those of its key, from 1. ``l`` and ``r``: the
        whole rows. ``kind``: missing, extra, changed or, within a tolerance, equal. ``columns``:
        the places of columns with other values. ``lefts`` and ``rights``: the numbers of rows with
        this key. It is cached. How many there are, and how many differ in each column.
    """
    if not digests.buckets:
        counts = Counts(digests.left, digests.right, digests.left, 0, 0, 0, 0, 0)
        return _no_pairs(comparison), counts, {}
    number, total = digests.differing, digests.left + digests.right
    frames = [
        frame.where(in_buckets(comparison, side, digests.buckets))
        for side, frame in enumerate(comparison.frames)
    ]
    unique = not digests.are_shared and digests.keys > _MOST * total
    keys = None
    with ExitStack() as stack:
        if number > _FEW * total and not unique:
            search, hashed = differing_keys, key_hash
            if digests.are_shared:
                search, hashed = differing_rows, row_hash
                keys = rows_of_keys(comparison, frames)
            found = search(comparison, frames, number).persist()
            stack.callback(found.unpersist)
            sums = F.count(F.lit(1)), F.sum("rows"), F.count_if("several")
            hashes, rows, several = found.agg(*sums).collect()[0]
            if hashes <= _BROADCAST_HASHES:
                frames = [_with_hashes(comparison, side, found, hashed) for side in (0, 1)]
                number = rows or 0
            unique = not several
        pairs = _paired(comparison, frames, number, unique=unique, keys=keys).persist()
        counts, columns = _count(comparison, pairs, digests)
        if unique and counts.duplicate_keys_left + counts.duplicate_keys_right:
            pairs.unpersist()
            pairs = _paired(comparison, frames, number, unique=False).persist()
            counts, columns = _count(comparison, pairs, digests)
    if counts.missing - counts.extra != digests.left - digests.right:
        pairs.unpersist()
        raise StateError("the frames gave other rows when they were read again: write them first")
    return pairs, counts, columns


def _with_hashes(comparison: Comparison, side: int, found: DataFrame, hashed: Hashed) -> DataFrame:
    """Select the rows of a side that have these hashes, of their keys or of themselves."""
    frame = comparison.frames[side]
    name = "h" * (max(map(len, frame.columns)) + 1)  # unlike any column's
    chosen = F.broadcast(found.select(F.col("hash").alias(name)))
    return frame.join(chosen, F.expr(f"{hashed(comparison, side)} = {name}"), "left_semi")


def _rows(comparison: Comparison, frame: DataFrame, side: int, *, unique: bool) -> DataFrame:
    """Put the rows of a side into structs, with the hash and the forms of their keys.

    Where keys have several rows, the side and the forms of the compared columns are there, too.
    """
    columns = [
        f"{key_hash(comparison, side)} AS hash",
        f"{key_struct(comparison, side)} AS k",
        f"struct(*) AS {'lr'[side]}",
    ]
    if not unique:
        columns += [f"{side} AS side", f"{values_struct(comparison, side)} AS v"]
    return frame.selectExpr(*columns)


def key_struct(comparison: Comparison, side: int) -> str:
    """Return as SQL the canonical form of the whole key of a side."""
    return _struct("k", comparison.keys, side)


def values_struct(comparison: Comparison, side: int, row: str = "") -> str:
    """Return as SQL the canonical forms of a side's compared columns: of its frame, or of a struct.

    Columns with a tolerance come last: the others tell which rows belong together.
    """
    ordered = sorted(comparison.values, key=lambda pair: pair.limit is not None)
    return _struct("v", ordered, side, row)


def _struct(name: str, pairs: Iterable[Pair], side: int, row: str = "") -> str:
    """Return as SQL a struct of the forms of columns."""
    forms = (f", '{name}{i}', {pair.form(side, row)}" for i, pair in enumerate(pairs))
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
    comparison: Comparison,
    frames: list[DataFrame],
    number: int,
    *,
    unique: bool,
    keys: DataFrame | None = None,
) -> DataFrame:
    """Put rows of both sides, so many, beside each other.

    If keys are taken for unique, those that are not are there with their numbers of rows. Else
    these numbers are counted, or given where frames lack rows that are equal.
    """
    sides = [_rows(comparison, frame, side, unique=unique) for side, frame in enumerate(frames)]
    places = (f"IF({pair.differs()}, {i}, -1)" for i, pair in enumerate(comparison.values))
    # Not `filter`: Spark compiles no lambda.
    columns = f"array_remove(CAST(array({', '.join(places)}) AS array<int>), -1)"
    # Spark's 200 tasks, which a cached frame keeps, cost more for ten rows than reading both sides.
    tasks = 1 + number // _ROWS_A_TASK
    rows = sides[0].unionByName(sides[1], allowMissingColumns=True)
    rows = (rows if keys is None else rows.join(keys, "hash")).repartition(tasks, "hash")
    sums = [F.expr(f"first({side}, true) AS {side}") for side in _COUNTS.values()]
    if unique:
        sums += [F.count(side).alias(name) for name, side in _COUNTS.items()]
        grouped = rows.groupBy("hash", "k")
    else:
        sums += [F.first(name).alias(name) for name in _COUNTS]
        grouped = _numbered(rows if keys is not None else _counted(rows)).groupBy("hash", "k", "n")
    pairs = grouped.agg(*sums).selectExpr(
        "*",
        f"IF(l IS NULL OR r IS NULL, NULL, {columns}) AS columns",
        "monotonically_increasing_id() AS id",  # else filters compare the columns once more
    )
    pairs = pairs.withColumn("kind", F.expr(_KIND))
    if unique:
        found = pairs.where("kind <> 'equal' OR lefts > 1 OR rights > 1").withColumn("n", F.lit(1))
    else:
        differ = F.count_if(F.col("kind") != "equal").over(Window.partitionBy("hash", "k"))
        found = pairs.withColumn("differ", differ).where("differ > 0")
    return found.select("k", "n", "l", "r", "kind", "columns", "id", *_COUNTS)


_KIND = """
    CASE WHEN l IS NULL THEN 'extra' WHEN r IS NULL THEN 'missing'
    WHEN size(columns) > 0 THEN 'changed' ELSE 'equal' END
"""
_COUNTS = {"lefts": "l", "rights": "r"}


def _counted(rows: DataFrame) -> DataFrame:
    """Count the rows of both sides for each key."""
    by_key = Window.partitionBy("hash", "k")
    counts = {name: F.count(side).over(by_key) for name, side in _COUNTS.items()}
    return rows.withColumns(counts)


def _numbered(rows: DataFrame) -> DataFrame:
    """Cancel equal rows of a key, and number the others on both sides."""
    steps = {
        "copy": F.row_number().over(Window.partitionBy("hash", "k", "v", "side").orderBy("side")),
        "same": F.count(F.lit(1)).over(Window.partitionBy("hash", "k", "v", "copy")) > 1,
    }
    alone = reduce(lambda frame, step: frame.withColumn(*step), steps.items(), rows)
    number = F.row_number().over(Window.partitionBy("hash", "k", "side").orderBy("v"))
    return alone.where("NOT same").withColumn("n", number)


def _count(comparison: Comparison, pairs: DataFrame, digests: Digests) -> tuple[Counts, Names]:
    """Count pairs in one reading; a sum for each of many columns would be planned for minutes."""
    # Each key that differs has one pair with the number 1.
    several = (f"{name} > 1 AND n = 1 AS {side}" for name, side in _COUNTS.items())
    exploded = pairs.selectExpr("kind", *several, "posexplode_outer(columns) AS (at, place)")
    marked = exploded.withColumn("is_row", F.expr("coalesce(at = 0, true)"))
    numbers = marked.groupBy("kind", *_COUNTS.values(), "place", "is_row").count()
    found, columns = Counter[str](), Counter[str]()
    for row in numbers.collect():
        if row.place is not None:
            columns[comparison.values[row.place].name] += row["count"]
        if row.is_row:
            found[row.kind] += row["count"]
            found["l"] += row.l * row["count"]
            found["r"] += row.r * row["count"]
    equal = digests.left - found["missing"] - found["changed"]
    kinds = (found[of] for of in ("missing", "extra", "changed", "l", "r"))
    return Counts(digests.left, digests.right, equal, *kinds), by_rows(columns)
