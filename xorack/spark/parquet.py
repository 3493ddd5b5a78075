"""Folds over Parquet files and over stamps, by Python in the tasks: no row passes through the JVM.

`xorack.spark.fold` takes any frame and stays in the JVM. Where the units are rows of Parquet files
and their columns are integers, `fold_parquet` gives the same at a fraction of the CPU: a task reads
the few columns with pyarrow, folds them with numpy (`xorack.bulk`), and hands on one row a chain.
Reading the files is what makes it cheap: sending rows from the JVM to Python costs more than
folding them in the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from pyspark.sql import functions as F

from xorack.spark.errors import UnsuitableColumns

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyarrow.compute import Expression
    from pyspark.sql import DataFrame, SparkSession

    from xorack.spark.columns import Kind

__all__ = ["can_read", "fold_parquet", "xor_stamps"]

_BATCH_ROWS = 1 << 16
_TASK_BYTES = 32 << 20
_LEAST_TASK_BYTES = 1 << 20
_TASKS_A_CORE = 3
_TASK_FILES = 1_000
_URI_CHARACTERS = "%:/?#[]@!$&'()*+,;=~"


class _Slice(NamedTuple):
    """A part of a file: the row groups whose first byte is in it."""

    uri: str
    start: int
    end: int


def fold_parquet(
    spark: SparkSession,
    files: Iterable[str],
    key: str,
    *columns: str,
    kind: Kind = "traced",
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
        where: Which rows count: an expression of pyarrow's, of any columns; all if None.
        derived: Columns, by name, that the files do not have: expressions of pyarrow's.
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
    tasks = _tasks(files, spark.sparkContext.defaultParallelism)
    numbers = spark.range(0, len(tasks), 1, max(len(tasks), 1))
    reader = _reader(tasks, key, columns, kind, where, dict(derived or {}))
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
    for begin in range(0, len(keys), _BATCH_ROWS):
        some = keys[begin : begin + _BATCH_ROWS]
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


def _tasks(files: Iterable[str], cores: int) -> list[list[_Slice]]:
    """Share files out to tasks: small ones together, large ones cut."""
    sized = [(uri, size) for uri, size in ((uri, _size(uri)) for uri in sorted(files)) if size]
    total = sum(size for _, size in sized)
    target = min(_TASK_BYTES, max(_LEAST_TASK_BYTES, total // (cores * _TASKS_A_CORE)))
    tasks: list[list[_Slice]] = []
    filled = 0
    for uri, size in sized:
        for start in range(0, size, target):
            end = min(start + target, size)
            if not tasks or filled + end - start > target or len(tasks[-1]) >= _TASK_FILES:
                tasks.append([])
                filled = 0
            tasks[-1].append(_Slice(uri, start, end))
            filled += end - start
    return tasks


def can_read(uri: str) -> bool:
    """Whether tasks can read a place's files by themselves: see `fold_parquet`.

    Args:
        uri: A file or a folder, as Spark names it.

    Returns:
        Whether pyarrow has a file system for it.
    """
    import pyarrow as pa

    try:
        _located(uri)
    except (pa.ArrowException, OSError, ValueError):
        return False
    return True


def _located(uri: str) -> tuple[Any, str]:
    """The file system and the path of a URI as Spark writes them."""
    from pyarrow import fs

    scheme, _, rest = uri.partition(":")
    if scheme == "file":
        return fs.LocalFileSystem(), unquote(urlsplit(uri).path)
    if scheme in ("s3a", "s3n"):  # Hadoop's names
        scheme = "s3"
    # Spark leaves letters beyond ASCII as they are.
    system, path = fs.FileSystem.from_uri(f"{scheme}:{quote(rest, safe=_URI_CHARACTERS)}")
    return system, path


def _size(uri: str) -> int:
    system, path = _located(uri)
    info = system.get_file_info(path)
    if not info.is_file:
        raise FileNotFoundError(f"Parquet file {uri} is not there")
    return int(info.size)


def _reader(
    tasks: list[list[_Slice]],
    key: str,
    columns: Sequence[str],
    kind: Kind,
    where: Expression | None,
    derived: dict[str, Expression],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    wanted = list(dict.fromkeys((key, *columns)))

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from xorack.bulk import Folds, stamp_bytes, unit_ids

        folds = Folds(kind)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for part in tasks[number]:
                    for rows in _row_groups(part, wanted, where, derived):
                        arrays = {name: _longs(rows, name, part.uri) for name in wanted}
                        folds.add(arrays[key], unit_ids(*(arrays[name] for name in columns)))
        for keys, words, counts in folds.results():
            yield pa.RecordBatch.from_arrays(
                [pa.array(keys), pa.array(stamp_bytes(words), pa.binary()), pa.array(counts)],
                ["key", "stamp", "count"],
            )

    return read


def _row_groups(
    part: _Slice, columns: list[str], where: Expression | None, derived: dict[str, Expression]
) -> Iterator[pa.RecordBatch]:
    """The rows of a slice of a file."""
    import pyarrow.dataset as ds

    system, path = _located(part.uri)
    fragment = ds.ParquetFileFormat().make_fragment(path, system)
    metadata = fragment.metadata
    inside = []
    for group in range(metadata.num_row_groups):
        chunk = metadata.row_group(group).column(0)
        first = chunk.dictionary_page_offset or chunk.data_page_offset
        if part.start <= first < part.end:
            inside.append(group)
    known = {*fragment.physical_schema.names, *derived}
    missing = [name for name in columns if name not in known]
    if missing:
        raise ValueError(
            f"xorack: {part.uri} has no column {', '.join(missing)}: "
            f"it has {', '.join(fragment.physical_schema.names)}"
        )
    if inside:
        yield from fragment.subset(row_group_ids=inside).to_batches(
            columns={name: derived.get(name, ds.field(name)) for name in columns},
            filter=where,
            batch_size=_BATCH_ROWS,
            use_threads=False,
            batch_readahead=1,
            fragment_readahead=1,
        )


def _longs(rows: pa.RecordBatch, name: str, uri: str) -> NDArray[np.int64]:
    import pyarrow as pa

    column = rows.column(name)
    if column.type != pa.int64():
        raise ValueError(f"xorack: unit column {name} of {uri} is {column.type}, expected int64")
    if column.null_count:
        raise ValueError(f"xorack: unit column {name} is null in {uri}; a unit needs a value")
    found: NDArray[np.int64] = column.to_numpy()
    return found
