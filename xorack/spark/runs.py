"""Runs of consecutive numbers in Parquet files: stored by their firsts, seen without each number.

What a column of units costs is mostly that the JVM writes a value a row. Where a row is, as a rule,
the one after the row before it, only the exceptions need to be stored: a column that is null where
it is one more than in the row before. `consecutive` fills such a column in, in the JVM; `fold_runs`
tells what is there by the runs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as F

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

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Runs", "consecutive", "fold_runs"]

_QUICKER = 8
"""How many times the bytes a task is given that looks at nothing but runs."""
_AT_HAND_BYTES = 64 << 20
"""What is read in the driver: its column of places is some KB, and a job takes half a second."""


class Runs(NamedTuple):
    """What runs of consecutive numbers there are: see `fold_runs`.

    Attributes:
        rows: How many numbers.
        bounds: The XOR of their bounds, signed.
    """

    rows: int
    bounds: int


def fold_runs(
    spark: SparkSession, files: Iterable[str], column: str, *, shift: int = 0
) -> dict[int, Runs]:
    """Tell which rows of chains Parquet files hold, at the price of a look at each run of them.

    `xorack.spark.arrays.bounds_of_runs` gives the bounds of a run of consecutive numbers. Those
    of a chain are the XOR over its runs: the place of a cut comes twice and cancels out. Bounds
    and count together tell, as surely as plain stamps, that each number comes once. So the stamp
    of all rows of a chain need not be computed again if bounds and count are those of all rows.

    Args:
        spark: The session. Its tasks read, but what is less than 64 MiB is read here: a task takes
            longer to start.
        files: URIs of the files, such as ``spark.read.parquet(folder).inputFiles()`` gives: only
            what a job committed.
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
    known = with_sizes(files)
    if sum(size for _, size in known) <= _AT_HAND_BYTES:
        here = _folded_runs((Slice(uri, 0, size) for uri, size in known), column, shift)
        found: Iterable[tuple[Any, ...]] = [row for some in here for row in zip(*some, strict=True)]
    else:
        cores = spark.sparkContext.defaultParallelism
        tasks = slices_of(known, cores, a_core=1, times=_QUICKER)
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
    more than most things that are done to them.

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


def _run_reader(
    tasks: list[list[Slice]], column: str, shift: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for columns in _folded_runs(parts_of(tasks, batches), column, shift):
            yield pa.RecordBatch.from_arrays(
                [pa.array(one, pa.int64()) for one in columns], ["key", "bounds", "count"]
            )

    return read


def _folded_runs(
    parts: Iterable[Slice], column: str, shift: int
) -> Iterator[tuple[list[int], NDArray[np.int64], NDArray[np.int64]]]:
    """Keys, bounds and counts of the rows of slices of files."""
    import numpy as np

    from xorack.spark.arrays import Folds, bounds_of_runs

    folds = Folds("plain")
    for part in parts:
        for firsts, lengths in _runs(part, column):
            folds.add(firsts >> shift, bounds_of_runs(firsts, lengths), lengths)
    for keys, bounds, counts in folds.results():
        yield keys, bounds[:, 0].view(np.int64), counts


def _runs(part: Slice, column: str) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the runs of a slice of a file: their first numbers and lengths."""
    import numpy as np
    import pyarrow.parquet as pq

    system, path = located(part.uri)
    with system.open_input_file(path) as opened, pq.ParquetFile(opened) as file:
        check_columns(part.uri, [column], file.schema_arrow.names)
        groups = groups_in(part, file.metadata)
        following = _following(file, groups[0], column, part.uri) if groups else None
        for rows in file.iter_batches(BATCH_ROWS, groups, [column], use_threads=False):
            begins, firsts = _stored(long_column(rows, column, part.uri))
            if not (len(begins) and begins[0] == 0):
                if following is None:
                    raise ValueError(
                        f"xorack: column {column} is null in the first row of {part.uri}, "
                        "from which the others count on"
                    )
                begins, firsts = np.append(0, begins), np.append(following, firsts)
            lengths = np.diff(begins, append=len(rows))
            following = int(firsts[-1] + lengths[-1])
            yield firsts, lengths


def _stored(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows that are not null, and what they have.

    By the column's own buffers: to make a mask of numpy's, pyarrow loads pandas, 45 MiB and half a
    second of CPU.
    """
    import numpy as np

    validity, values = column.buffers()
    rows = slice(column.offset, column.offset + len(column))
    longs = np.frombuffer(values, np.int64)[rows]
    if validity is None:
        return np.arange(len(column)), longs
    bits = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")[rows]
    begins = np.flatnonzero(bits)
    return begins, longs[begins]


def _following(file: Any, group: int, consecutive: str, uri: str) -> int | None:
    """What a row group's first row has where it has null; None if nothing is before it."""
    since = 0
    for before in reversed(range(group)):
        batches = file.iter_batches(BATCH_ROWS, [before], [consecutive], use_threads=False)
        for rows in reversed(list(batches)):
            begins, firsts = _stored(long_column(rows, consecutive, uri))
            if len(begins):
                return int(firsts[-1] - begins[-1]) + len(rows) + since
            since += len(rows)
    return None
