"""Folding a frame's units: one row a chain, whatever the number of units.

Plain stamps are an aggregate in the JVM. Traced ones take two longs a row to Python, where numpy
folds them: first what a task has, then, after a shuffle by chain, what all tasks have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from xorack.spark.units import chain_columns, tag_column

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

__all__ = ["fold_chains", "fold_units", "merge_folds"]

_FOLDED_ROWS = 1 << 20
"""Rows that a task folds at a time: some 100 MB."""
_MERGED_BYTES = 1 << 23
"""Bytes of the folds that a task merges at a time."""


def fold_units(
    frame: DataFrame, chain: Sequence[str], sums: tuple[Column, Column], prefix: str
) -> DataFrame:
    """Fold a frame's units per chain, without stamps.

    Args:
        frame: The rows.
        chain: The names of the columns that tell chains apart.
        sums: The XOR and the count, longs, of the units that a row stands for.
        prefix: The beginning of tags.

    Returns:
        ``tag``, ``units`` (long, the XOR of the unit ids) and ``count`` (long), a row a chain.
    """
    units, count = sums
    columns = chain_columns(frame, chain)
    selected = frame.select(*columns, units.alias("units"), count.alias("count"))
    grouped = selected.groupBy(*selected.columns[:-2]).agg(
        F.bit_xor("units").alias("units"), F.sum("count").alias("count")
    )
    return grouped.select(tag_column(grouped, prefix, len(columns)).alias("tag"), "units", "count")


def fold_chains(
    frame: DataFrame, chain: Sequence[str], unit: Column, prefix: str, cells: int | None
) -> DataFrame:
    """Fold a frame's units per chain, with what their stamps are made of.

    Args:
        frame: One row a unit.
        chain: The names of the columns that tell chains apart.
        unit: The unit of a row, a long.
        prefix: The beginning of tags.
        cells: The cells of each table of traced stamps; None for plain stamps.

    Returns:
        As `fold_units`, and ``fold`` (binary): see `xorack.spark.vectors`. Null for plain stamps.
    """
    if cells is None:
        folded = fold_units(frame, chain, (unit, F.lit(1).cast("long")), prefix)
        return folded.withColumn("fold", F.lit(None).cast("binary"))
    columns = chain_columns(frame, chain)
    rows = frame.select(*columns, unit.alias("unit"))
    names = rows.columns[:-1]
    fields = [StructField("units", LongType()), StructField("count", LongType())]
    fields = [*(rows.schema[name] for name in names), *fields, StructField("fold", BinaryType())]
    schema = StructType(fields)
    # A chain's folds meet in one task; a chain of very many rows is folded where it lies first.
    parts = rows.mapInArrow(_fold_rows(names, cells), schema).repartition(*names)
    merged = parts.sortWithinPartitions(*names).mapInArrow(merge_folds(names, cells), schema)
    return merged.select(
        tag_column(merged, prefix, len(names)).alias("tag"), "units", "count", "fold"
    )


_Batches = Callable[[Iterator[Any]], Iterator[Any]]


def _fold_rows(names: Sequence[str], cells: int) -> _Batches:
    def fold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from xorack.spark.vectors import combine, single_units

        for rows in _tables(batches, "num_rows", _FOLDED_ROWS):
            yield from combine(single_units(rows), names, cells).to_batches()

    return fold


def merge_folds(names: Sequence[str], cells: int) -> _Batches:
    """Return a function that merges the folds of each chain; its rows are sorted by chain."""

    def merge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.compute as pc

        from xorack.spark.vectors import combine

        rest: list[pa.Table] = []
        for table in _tables(batches, "nbytes", _MERGED_BYTES):
            rows = pa.concat_tables([*rest, table])
            # The rows are sorted: only the last chain's go on in the next table.
            is_last = (pc.equal(column, column[-1]) for column in rows.select(names).columns)
            end = rows.num_rows - pc.sum(reduce(pc.and_, is_last)).as_py()
            rest = [rows.slice(end)]
            if end:
                yield from combine(rows.slice(0, end), names, cells).to_batches()
        for rows in rest:
            yield from combine(rows, names, cells).to_batches()

    return merge


def _tables(batches: Iterable[pa.RecordBatch], measure: str, size: int) -> Iterator[pa.Table]:
    """Yield tables of at least a size, the last one excepted."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    total = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            total += getattr(batch, measure)
        if total >= size:
            yield pa.Table.from_batches(held)
            held, total = [], 0
    if held:
        yield pa.Table.from_batches(held)
