"""Folds over Parquet files and over stamps, by Python in the tasks: no row passes through the JVM.

`xorack.spark.fold` takes any frame and stays in the JVM. Where the units are rows of Parquet files
and their columns are integers, `fold_parquet` gives the same at a fraction of the CPU: a task reads
the few columns with pyarrow, folds them with numpy (`xorack.spark.arrays`), and hands on one row a chain.
Reading the files is what makes it cheap: sending rows from the JVM to Python costs more than
folding them in the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from xorack.spark.errors import UnsuitableColumns
from xorack.spark.files import (
    BATCH_ROWS,
    Slice,
    check_columns,
    groups_in,
    located,
    long_column,
    parts_of,
    slices_of,
    with_sizes,
)
from xorack.spark.runs import filled_rows

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyarrow.compute import Expression
    from pyspark.sql import DataFrame, SparkSession

    from xorack.spark.columns import Kind

__all__ = ["fold_parquet", "xor_stamps"]


def fold_parquet(
    spark: SparkSession,
    files: Iterable[str],
    key: str,
    *columns: str,
    kind: Kind = "traced",
    consecutive: str | None = None,
    where: Expression | None = None,
    derived: Mapping[str, Expression] | None = None,
    merged: bool = True,
    stamp: str = "stamp",
    count: str = "count",
) -> DataFrame:
    """XOR the stamps of the units in Parquet files together: one row a chain.

    The same as ``fold(spark.read.parquet(...), key, unit(*columns))``. Tasks read the files
    themselves, with pyarrow: from this machine, or where pyarrow has a file system for the URI
    (``s3``, ``gs``, ``hdfs``) and finds credentials by itself.

    Args:
        spark: The session.
        files: URIs of the files, such as ``spark.read.parquet(folder).inputFiles()`` gives: only
            what a job committed.
        key: The column that tells the chains apart: long.
        *columns: The columns that the unit is made of, at least one: long. The key may be among
            them, and should be where positions repeat from chain to chain.
        kind: ``traced`` or ``plain``: see `xorack.spark.fold`.
        consecutive: A column, one of those or what they are derived from, of which the files have
            only what is not one more than in the row before: see `consecutive`.
        where: Which rows count: an expression of pyarrow's, of any columns; all if None.
        derived: Columns, by name, that the files do not have: expressions of pyarrow's. Where there
            is a ``consecutive`` column, expressions are of it, of the key and of unit columns only.
        merged: Whether a chain has one row. If not, it has one for each task that read units of
            it: a shuffle less, where rows are folded again anyway, as `send` does in the driver.
        stamp: The name of the column of stamps.
        count: The name of the column of counts.

    Returns:
        A frame of ``key`` (long), ``stamp`` (binary) and ``count`` (long). Its job fails, naming
        file and column, where a column is null, is not there or is no long.

    Raises:
        UnsuitableColumns: No columns, or ``kind`` is neither of the two.
        OSError: A file is not there.
    """
    if not columns:
        raise UnsuitableColumns("fold_parquet needs at least one unit column")
    if kind not in ("traced", "plain"):
        raise UnsuitableColumns(f"kind: {kind!r}, expected 'traced' or 'plain'")
    tasks = slices_of(with_sizes(files), spark.sparkContext.defaultParallelism)
    numbers = spark.range(0, len(tasks), 1, max(len(tasks), 1))
    rows = _Rows(list(dict.fromkeys((key, *columns))), consecutive, where, dict(derived or {}))
    reader = _reader(tasks, key, columns, kind, rows)
    partial = numbers.mapInArrow(reader, "key long, stamp binary, count long")
    folded = xor_stamps(partial, "key") if merged else partial
    return folded.select(
        F.col("key").alias(key), F.col("stamp").alias(stamp), F.col("count").alias(count)
    )


def xor_stamps(df: DataFrame, key: str, *, stamp: str = "stamp", count: str = "count") -> DataFrame:
    """XOR stamps that are made already: one row a chain. For some rows a chain; units: see `fold`.

    Args:
        df: Rows of a chain's key (long), a stamp (binary, all of one length; null is none) and how
            many units it stands for (long).
        key: The name of the column of keys.
        stamp: The name of the column of stamps.
        count: The name of the column of counts.

    Returns:
        A frame of the three columns: the XOR of each chain's stamps (null if it has none) and the
        sum of its counts.
        What a task holds in memory is the stamps of its chains.
    """
    rows = df.select(f"`{key}`", f"`{stamp}`", f"`{count}`").toDF("key", "stamp", "count")
    schema = "key long, stamp binary, count long"
    return rows.repartition(F.col("key")).mapInArrow(_merged, schema).toDF(key, stamp, count)


def _merged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Adds up the rows of each key."""
    import pyarrow as pa

    stamps: dict[int, int] = {}
    counts: dict[int, int] = {}
    length = 0
    for batch in batches:
        for key, stamp, count in zip(
            *(column.to_pylist() for column in batch.columns), strict=True
        ):
            counts[key] = counts.get(key, 0) + count
            if stamp is not None:
                length = length or len(stamp)
                if len(stamp) != length:
                    raise ValueError(
                        f"xorack: stamp of {len(stamp)} bytes for key {key}, expected {length}"
                    )
                stamps[key] = stamps.get(key, 0) ^ int.from_bytes(stamp, "little")
    keys = list(counts)
    for begin in range(0, len(keys), BATCH_ROWS):
        some = keys[begin : begin + BATCH_ROWS]
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(some, pa.int64()),
                pa.array(
                    [
                        stamps[key].to_bytes(length, "little") if key in stamps else None
                        for key in some
                    ],
                    pa.binary(),
                ),
                pa.array([counts[key] for key in some], pa.int64()),
            ],
            ["key", "stamp", "count"],
        )


class _Rows(NamedTuple):
    """Which rows of a file are read, and what of them.

    Attributes:
        columns: The columns, longs, some of them perhaps derived.
        consecutive: As `fold_parquet` has it.
        where: As `fold_parquet` has it.
        derived: As `fold_parquet` has it.
    """

    columns: list[str]
    consecutive: str | None
    where: Expression | None
    derived: dict[str, Expression]

    def of(self, part: Slice) -> Iterator[pa.RecordBatch]:
        """The rows of a slice of a file."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        wanted = {name: self.derived.get(name, ds.field(name)) for name in self.columns}
        stored = [name for name in self.columns if name not in self.derived]
        if self.consecutive is not None:
            stored = list(dict.fromkeys((*stored, self.consecutive)))
            schema = pa.schema([(name, pa.int64()) for name in stored])
            rows = filled_rows(part, stored, self.consecutive)
            yield from ds.Scanner.from_batches(
                rows, schema=schema, columns=wanted, filter=self.where, use_threads=False
            ).to_batches()
            return
        system, path = located(part.uri)
        fragment = ds.ParquetFileFormat().make_fragment(path, system)
        check_columns(part.uri, stored, fragment.physical_schema.names)
        if groups := groups_in(part, fragment.metadata):
            yield from fragment.subset(row_group_ids=groups).to_batches(
                columns=wanted,
                filter=self.where,
                batch_size=BATCH_ROWS,
                use_threads=False,
                batch_readahead=1,
                fragment_readahead=1,
            )


def _reader(
    tasks: list[list[Slice]], key: str, columns: Sequence[str], kind: Kind, rows: _Rows
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from xorack.spark.arrays import Folds, stamp_bytes, unit_ids

        folds = Folds(kind)
        for part in parts_of(tasks, batches):
            for some in rows.of(part):
                arrays = {name: _longs(some, name, part.uri) for name in rows.columns}
                folds.add(arrays[key], unit_ids(*(arrays[name] for name in columns)))
        for keys, words, counts in folds.results():
            yield pa.RecordBatch.from_arrays(
                [pa.array(keys), pa.array(stamp_bytes(words), pa.binary()), pa.array(counts)],
                ["key", "stamp", "count"],
            )

    return read


def _longs(rows: pa.RecordBatch, name: str, uri: str) -> NDArray[np.int64]:
    column = long_column(rows, name, uri)
    if column.null_count:
        raise ValueError(f"xorack: unit column {name} is null in {uri}; a unit needs a value")
    found: NDArray[np.int64] = column.to_numpy()
    return found
