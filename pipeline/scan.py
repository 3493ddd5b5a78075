"""From files to words: tasks read pieces of files, Spark splits them into rows.

No Python code runs for each word.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.errors import UnreadableFile
from pipeline.folder import InputFile, opened, shown
from pipeline.reading import PIECE, Encoding, read_words

__all__ = ["PIECES", "Part", "batch_of", "scan_database", "tasks_of", "words_of"]

PIECES = "file string, position long, text string, error string"
"""The words of a piece and the position of the first; or why a file cannot be read."""
_BATCH_BYTES = 1 << 20
_TASK_BYTES = 16 * PIECE
"""The most bytes of a task, if the encoding lets files be cut."""
_FILE_COSTS = 64 << 10
"""The bytes that can be read in the time that it takes to open a file."""

_Row = tuple[str, int, str | None, str | None]


class Part(NamedTuple):
    """The bytes from start to before end of a file; the names are those of `InputFile`."""

    relative: str
    path: bytes
    start: int
    end: int
    size: int


def tasks_of(files: Iterable[InputFile], encoding: Encoding) -> list[list[Part]]:
    """Divide readable files among tasks: large ones are cut, small ones share a task.

    The words and their positions do not depend on the division.
    """
    tasks: list[list[Part]] = []
    free = 0
    for relative, path, size, _ in files:
        step = _TASK_BYTES if encoding.unit else max(size, 1)
        for start in range(0, max(size, 1), step):
            end = min(start + step, size)
            cost = end - start + _FILE_COSTS
            if cost > free:
                tasks.append([])
                free = _TASK_BYTES + _FILE_COSTS
            tasks[-1].append(Part(relative, path, start, end, size))
            free -= cost
    return tasks


def scan_database(spark: SparkSession, files: Iterable[InputFile], encoding: Encoding) -> DataFrame:
    """Read the words of readable files: the rows of `words_of`."""
    # A task unpickles only its own parts.
    packed = [pickle.dumps(task) for task in tasks_of(files, encoding)]

    def scan(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _scan_parts(pickle.loads(packed[number]), encoding)  # noqa: S301

    numbers = spark.range(0, len(packed), 1, max(len(packed), 1))  # one number a partition
    return words_of(numbers.mapInArrow(scan, PIECES))


def _scan_parts(parts: Iterable[Part], encoding: Encoding) -> Iterator[pa.RecordBatch]:
    rows: list[_Row] = []
    gathered = 0
    for name, path, start, end, size in parts:
        try:
            with opened(path, size) as file:
                for position, text in read_words(file, start, end, size, encoding):
                    rows.append((name, position, text.decode(), None))
                    gathered += len(text)
                    if gathered >= _BATCH_BYTES:
                        yield batch_of(rows)
                        rows, gathered = [], 0
        except UnreadableFile as error:
            rows.append((name, -1, None, f"{shown(path)} {error}"))
    if rows:
        yield batch_of(rows)


def batch_of(rows: Iterable[_Row]) -> pa.RecordBatch:
    """Make a batch of rows of `PIECES`."""
    files, positions, texts, errors = zip(*rows, strict=True)
    columns = {"file": pa.array(files), "position": pa.array(positions, pa.int64())}
    columns |= {"text": pa.array(texts, pa.string()), "error": pa.array(errors, pa.string())}
    return pa.RecordBatch.from_pydict(columns)


def words_of(pieces: DataFrame) -> DataFrame:
    """Split pieces into words: file, position, word, error. A piece without a text is one row."""
    word = F.posexplode_outer(F.split("text", " ")).alias("number", "word")
    rows = pieces.select("file", "position", "error", word)
    position = F.col("position") + F.coalesce("number", F.lit(0))
    return rows.select("file", position.alias("position"), "word", "error")
