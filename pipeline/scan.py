"""From files to rows, in the tasks: what Spark cannot read by itself with stable positions.

Python reads bytes, decodes and finds the words' borders with functions that run over whole pieces
(no Python code runs for each word), and hands Arrow batches to the JVM, which does all the rest.
docs/adr/0020 says why.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.folder import Found, opened, shown_path
from pipeline.reading import PIECE, Encoding, UnreadableFile, read_words

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Part", "scan_words", "tasks_of"]

_BATCH_WORDS = 1 << 16
_TASK_BYTES = 32 << 20
"""The most that a task is given, if files can be cut so."""
_TASK_FILES = 2_000
_TASKS_A_CORE = 3
_FILE_COSTS = 64 << 10
"""What opening a file costs, in bytes that could have been read instead."""
_WORDS = pa.schema(
    [("chain", pa.int64()), ("pos", pa.int64()), ("word", pa.string()), ("error", pa.string())]
)


class Part(NamedTuple):
    """What one task reads of one file.

    Attributes:
        chain: The key of the file's chain, signed 64 bits.
        path: As `pipeline.folder.Found` has it.
        start: The first byte.
        end: The byte after the last.
        size: The file's size.
    """

    chain: int
    path: bytes
    start: int
    end: int
    size: int


def tasks_of(
    files: Iterable[tuple[int, Found]], encoding: Encoding, cores: int
) -> list[list[Part]]:
    """Share files out to tasks: small ones together, large ones cut.

    Nothing but the work's spread depends on it: words and positions come out the same.

    Args:
        files: Chain's key and file.
        encoding: The files' encoding: not all can be cut.
        cores: How many tasks run at once.

    Returns:
        What each task reads, none of them nothing.
    """
    files = list(files)
    cost = sum(file.size + _FILE_COSTS for _, file in files)
    target = min(_TASK_BYTES, max(PIECE, cost // (cores * _TASKS_A_CORE)))
    target -= target % PIECE
    tasks: list[list[Part]] = [[]]
    filled = 0
    for chain, file in files:
        step = target if encoding.unit else max(file.size, 1)
        for start in range(0, max(file.size, 1), step):
            end = min(start + step, file.size)
            size = end - start + _FILE_COSTS
            if tasks[-1] and (filled + size > target or len(tasks[-1]) >= _TASK_FILES):
                tasks.append([])
                filled = 0
            tasks[-1].append(Part(chain, file.path, start, end, file.size))
            filled += size
    return [task for task in tasks if task]


def scan_words(spark: SparkSession, tasks: list[list[Part]], encoding: Encoding) -> DataFrame:
    """The words of files, one task of Spark's for each task given.

    Args:
        spark: The session.
        tasks: What `tasks_of` made.
        encoding: The files' encoding.

    Returns:
        Rows of `pipeline.layout.WORDS_SCHEMA`. A file that cannot be read has a row that says why,
        perhaps after some of its words.
    """
    from pipeline.layout import WORDS_SCHEMA

    # The tasks travel with the function, each packed by itself: a task unpacks only its own.
    packed = [pickle.dumps(task) for task in tasks]
    numbers = spark.range(0, len(tasks), 1, max(len(tasks), 1))  # one number a partition
    return numbers.mapInArrow(_scanner(encoding, packed), WORDS_SCHEMA)


def _scanner(
    encoding: Encoding, packed: list[bytes]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def scan(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out = _Rows()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for part in pickle.loads(packed[number]):  # noqa: S301 - packed by ourselves
                    yield from out.of(part, encoding)
        yield from out.flush()

    return scan


class _Rows:
    """Words gathered into batches, so that small files do not make one each."""

    def __init__(self) -> None:
        self._columns: list[list[pa.Array]] = [[], [], [], []]
        self._words = 0

    def of(self, part: Part, encoding: Encoding) -> Iterator[pa.RecordBatch]:
        try:
            with opened(part.path, part.size) as file:
                for position, text in read_words(file, part.start, part.end, part.size, encoding):
                    whole = pa.array([text], pa.binary()).cast(pa.string())
                    words = pc.split_pattern(whole, " ").flatten()
                    positions = np.arange(position, position + len(words), dtype=np.int64)
                    self._add(part.chain, pa.array(positions), words, None)
                    if self._words >= _BATCH_WORDS:
                        yield from self.flush()
        except UnreadableFile as error:
            reason = f"{shown_path(part.path)} {error}"
            self._add(part.chain, pa.array([-1], pa.int64()), pa.nulls(1, pa.string()), reason)

    def _add(self, chain: int, positions: pa.Array, words: pa.Array, error: str | None) -> None:
        count = len(words)
        columns = (
            pa.array(np.full(count, chain, dtype=np.int64)),
            positions,
            words,
            pa.nulls(count, pa.string()) if error is None else pa.array([error]),
        )
        for gathered, column in zip(self._columns, columns, strict=True):
            gathered.append(column)
        self._words += count

    def flush(self) -> Iterator[pa.RecordBatch]:
        if self._words:
            yield pa.RecordBatch.from_arrays(
                [pa.concat_arrays(column) for column in self._columns], schema=_WORDS
            )
            self.__init__()  # type: ignore[misc]
