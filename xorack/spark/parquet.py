"""Folds over Parquet files and over stamps, by Python in the tasks: no row passes through the JVM.

`xorack.spark.fold` takes any frame and stays in the JVM. Where the units are rows of Parquet files
and their columns are integers, `fold_parquet` gives the same at a fraction of the CPU: a task reads
the few columns with pyarrow, folds them with numpy (`xorack.bulk`), and hands on one row a chain.
Reading the files is what makes it cheap: sending rows from the JVM to Python costs more than
folding them in the JVM.

What such a column costs is mostly that the JVM writes a value a row. Where a row is, as a rule, the
one after the row before it, only the exceptions need to be stored: a column that is null where it
is one more than in the row before. ``consecutive`` says that of a column; `consecutive` fills one
in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from pyspark.sql import Window
from pyspark.sql import functions as F

from xorack.spark.errors import UnsuitableColumns

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyarrow.compute import Expression
    from pyspark.sql import DataFrame, SparkSession

    from xorack.spark.columns import Kind

__all__ = ["Runs", "can_read", "consecutive", "fold_parquet", "fold_runs", "xor_stamps"]

_BATCH_ROWS = 1 << 16
_BATCH_RUNS = 1 << 18
_TASK_BYTES = 32 << 20
_LEAST_TASK_BYTES = 1 << 20
_TASKS_A_CORE = 3
_RUNS_QUICKER = 8
"""How many times the bytes a task is given that only looks at runs, which takes no time."""
_TASK_FILES = 1_000
_ASKED_AT_ONCE = 16
_AT_HAND_BYTES = 64 << 20
"""What is read in the driver: its column of places is some KB, and a job takes half a second."""
_URI_CHARACTERS = "%:/?#[]@!$&'()*+,;=~"


class Runs(NamedTuple):
    """What runs of consecutive numbers there are: see `fold_runs`.

    Attributes:
        rows: How many numbers.
        bounds: The XOR of their bounds, signed.
    """

    rows: int
    bounds: int


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
    tasks = _tasks(_sized(files), spark.sparkContext.defaultParallelism)
    numbers = spark.range(0, len(tasks), 1, max(len(tasks), 1))
    rows = _Rows(list(dict.fromkeys((key, *columns))), consecutive, where, dict(derived or {}))
    reader = _reader(tasks, key, columns, kind, rows)
    partial = numbers.mapInArrow(reader, "key long, stamp binary, count long")
    folded = xor_stamps(partial, "key") if merged else partial
    return folded.select(
        F.col("key").alias(key), F.col("stamp").alias(stamp), F.col("count").alias(count)
    )


def fold_runs(
    spark: SparkSession, files: Iterable[str], column: str, *, shift: int = 0
) -> dict[int, Runs]:
    """Tell which rows of chains Parquet files hold, at the price of a look at each run of them.

    The bounds of a run of consecutive numbers are `xorack.bulk.bounds_of_runs`, those of a chain
    the XOR over its runs: wherever a run is cut, the place of the cut comes twice and is gone. The
    bounds say which numbers come an odd number of times, and with the count that each comes once,
    as surely as plain stamps do, of which they are made. So what is known of all rows of a chain,
    their stamp above all, need not be made again where bounds and count are those of all rows.

    Args:
        spark: The session. Its tasks read, but what is less than 64 MiB is read here: a task takes
            longer to start.
        files: As for `fold_parquet`.
        column: The column of numbers, long, stored as `consecutive` has it.
        shift: By how many bits the number is shifted to the right to get the key of its chain; a
            run is within a chain.

    Returns:
        What there is of each chain, by its key.

    Raises:
        OSError: A file is not there.
        ValueError: The column is not there, is no long, or does not begin with a value; names
            column and file. From tasks, it comes as Spark's PythonException.
    """
    sized, cores = _sized(files), spark.sparkContext.defaultParallelism
    if sum(size for _, size in sized) <= _AT_HAND_BYTES:
        here = (_Slice(uri, 0, size) for uri, size in sized)
        told = _folded_runs(here, column, shift)
        found: Iterable[tuple[Any, ...]] = [row for some in told for row in zip(*some, strict=True)]
    else:
        tasks = _tasks(sized, cores, _RUNS_QUICKER * _TASK_BYTES, 1)
        numbers = spark.range(0, len(tasks), 1, len(tasks))
        reader = _run_reader(tasks, column, shift)
        found = numbers.mapInArrow(reader, "key long, bounds long, count long").collect()
    chains: dict[int, Runs] = {}
    for key, bounds, count in found:
        before = chains.get(key, Runs(0, 0))
        chains[key] = Runs(before.rows + int(count), before.bounds ^ int(bounds))
    return chains


def consecutive(df: DataFrame, column: str) -> DataFrame:
    """Fill in a column that Parquet files have where it is not one more than in the row before.

    In Spark's terms, and in the JVM: rows of a file are brought together and sorted, which costs
    more than most things that are done to them. `fold_parquet` does without.

    Args:
        df: What ``spark.read.parquet`` gave, nothing done to it: the files' rows have their order.
        column: The column, long. It has a value in the first row of each file, and wherever it is
            not one more than in the row before; elsewhere null. What writes such files writes each
            in one piece: ``option("maxRecordsPerFile", 0)``, no sorting or sharing out of rows.

    Returns:
        The frame with the column filled in; null from the first row of a file to its first value.
    """
    file, row = F.col("_metadata.file_path"), F.col("_metadata.row_index")
    place = df.select("*", file.alias("_xorack_file"), row.alias("_xorack_row"))
    before = Window.partitionBy("_xorack_file").orderBy("_xorack_row")
    ahead = F.last(F.col(column) - F.col("_xorack_row"), ignorenulls=True).over(before)
    filled = place.withColumn(column, ahead + F.col("_xorack_row"))
    return filled.select(*df.columns)


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


def _tasks(
    sized: Sequence[tuple[str, int]],
    cores: int,
    most: int | None = None,
    a_core: int = _TASKS_A_CORE,
) -> list[list[_Slice]]:
    """Share files out to tasks: small ones together, large ones cut."""
    total = sum(size for _, size in sized)
    target = min(most or _TASK_BYTES, max(_LEAST_TASK_BYTES, -(-total // (cores * a_core))))
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


def _sized(files: Iterable[str]) -> list[tuple[str, int]]:
    """Files that are not empty, and their sizes; asked side by side, as each may be a request."""
    names = sorted(files)
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
        return [
            (uri, size) for uri, size in zip(names, pool.map(_size, names), strict=True) if size
        ]


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

    def of(self, part: _Slice) -> Iterator[pa.RecordBatch]:
        """The rows of a slice of a file."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        wanted = {name: self.derived.get(name, ds.field(name)) for name in self.columns}
        stored = [name for name in self.columns if name not in self.derived]
        if self.consecutive is not None:
            stored = list(dict.fromkeys((*stored, self.consecutive)))
            schema = pa.schema([(name, pa.int64()) for name in stored])
            rows = _filled(part, stored, self.consecutive)
            yield from ds.Scanner.from_batches(
                rows, schema=schema, columns=wanted, filter=self.where, use_threads=False
            ).to_batches()
            return
        system, path = _located(part.uri)
        fragment = ds.ParquetFileFormat().make_fragment(path, system)
        _check_columns(part.uri, stored, fragment.physical_schema.names)
        if groups := _groups_in(part, fragment.metadata):
            yield from fragment.subset(row_group_ids=groups).to_batches(
                columns=wanted,
                filter=self.where,
                batch_size=_BATCH_ROWS,
                use_threads=False,
                batch_readahead=1,
                fragment_readahead=1,
            )


def _reader(
    tasks: list[list[_Slice]], key: str, columns: Sequence[str], kind: Kind, rows: _Rows
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from xorack.bulk import Folds, stamp_bytes, unit_ids

        folds = Folds(kind)
        for part in _parts(tasks, batches):
            for some in rows.of(part):
                arrays = {name: _longs(some, name, part.uri) for name in rows.columns}
                folds.add(arrays[key], unit_ids(*(arrays[name] for name in columns)))
        for keys, words, counts in folds.results():
            yield pa.RecordBatch.from_arrays(
                [pa.array(keys), pa.array(stamp_bytes(words), pa.binary()), pa.array(counts)],
                ["key", "stamp", "count"],
            )

    return read


def _run_reader(
    tasks: list[list[_Slice]], column: str, shift: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for columns in _folded_runs(_parts(tasks, batches), column, shift):
            yield pa.RecordBatch.from_arrays(
                [pa.array(one, pa.int64()) for one in columns], ["key", "bounds", "count"]
            )

    return read


def _folded_runs(
    parts: Iterable[_Slice], column: str, shift: int
) -> Iterator[tuple[list[int], NDArray[np.int64], NDArray[np.int64]]]:
    """Keys, bounds and counts of the rows of slices of files."""
    import numpy as np

    from xorack.bulk import Folds, bounds_of_runs

    folds = Folds("plain")
    for part in parts:
        for _, firsts, lengths in _runs(part, [column], column, _BATCH_RUNS):
            folds.add(firsts >> shift, bounds_of_runs(firsts, lengths), lengths)
    for keys, bounds, counts in folds.results():
        yield keys, bounds[:, 0].view(np.int64), counts


def _parts(tasks: list[list[_Slice]], batches: Iterator[pa.RecordBatch]) -> Iterator[_Slice]:
    """What the tasks read whose numbers come."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from tasks[number]


def _groups_in(part: _Slice, metadata: Any) -> list[int]:
    """The row groups of a slice of a file."""
    inside = []
    for group in range(metadata.num_row_groups):
        chunk = metadata.row_group(group).column(0)
        first = chunk.dictionary_page_offset or chunk.data_page_offset
        if part.start <= first < part.end:
            inside.append(group)
    return inside


def _check_columns(uri: str, wanted: list[str], there: list[str]) -> None:
    if missing := [name for name in wanted if name not in there]:
        raise ValueError(
            f"xorack: {uri} has no column {', '.join(missing)}: it has {', '.join(there)}"
        )


def _filled(part: _Slice, columns: list[str], consecutive: str) -> Iterator[pa.RecordBatch]:
    """The rows of a slice of a file, with what one column leaves out."""
    import numpy as np
    import pyarrow as pa

    for rows, firsts, lengths in _runs(part, columns, consecutive, _BATCH_ROWS):
        begins = np.cumsum(lengths) - lengths
        values = np.arange(len(rows)) + np.repeat(firsts - begins, lengths)
        arrays = [
            pa.array(values) if name == consecutive else _checked(rows, name, part.uri)
            for name in columns
        ]
        yield pa.RecordBatch.from_arrays(arrays, columns)


def _runs(
    part: _Slice, columns: list[str], consecutive: str, batch_rows: int
) -> Iterator[tuple[pa.RecordBatch, NDArray[np.int64], NDArray[np.int64]]]:
    """The rows of a slice of a file, and of one column the runs: first numbers, lengths."""
    import numpy as np
    import pyarrow.parquet as pq

    system, path = _located(part.uri)
    with system.open_input_file(path) as opened, pq.ParquetFile(opened) as file:
        _check_columns(part.uri, columns, file.schema_arrow.names)
        groups = _groups_in(part, file.metadata)
        following = _following(file, groups[0], consecutive, part.uri) if groups else None
        for rows in file.iter_batches(batch_rows, groups, columns, use_threads=False):
            column = _checked(rows, consecutive, part.uri)
            begins = np.flatnonzero(column.is_valid())
            firsts = column.drop_null().to_numpy()
            if not (len(begins) and begins[0] == 0):
                if following is None:
                    raise ValueError(
                        f"xorack: column {consecutive} is null in the first row of {part.uri}, "
                        "from which the others count on"
                    )
                begins, firsts = np.append(0, begins), np.append(following, firsts)
            lengths = np.diff(begins, append=len(rows))
            following = int(firsts[-1] + lengths[-1])
            yield rows, firsts, lengths


def _following(file: Any, group: int, consecutive: str, uri: str) -> int | None:
    """What a row group's first row has where it has null; None if nothing is before it."""
    import numpy as np

    since = 0
    for before in reversed(range(group)):
        batches = file.iter_batches(_BATCH_ROWS, [before], [consecutive], use_threads=False)
        for rows in reversed(list(batches)):
            column = _checked(rows, consecutive, uri)
            if len(begins := np.flatnonzero(column.is_valid())):
                last = int(begins[-1])
                return int(column[last].as_py()) + len(rows) - last + since
            since += len(rows)
    return None


def _checked(rows: pa.RecordBatch, name: str, uri: str) -> pa.Array:
    """A column of longs."""
    import pyarrow as pa

    column = rows.column(name)
    if column.type != pa.int64():
        raise ValueError(f"xorack: unit column {name} of {uri} is {column.type}, expected int64")
    return column


def _longs(rows: pa.RecordBatch, name: str, uri: str) -> NDArray[np.int64]:
    column = _checked(rows, name, uri)
    if column.null_count:
        raise ValueError(f"xorack: unit column {name} is null in {uri}; a unit needs a value")
    found: NDArray[np.int64] = column.to_numpy()
    return found
