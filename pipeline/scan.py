"""From files to words: tasks read pieces of files, Spark splits them into rows.

No Python code runs for each word.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from io import BytesIO
from typing import TYPE_CHECKING, NamedTuple

from pipeline.errors import UnreadableFile
from pipeline.folder import InputFile, opened, shown
from pipeline.reading import PIECE, Encoding, read_words

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["PIECES", "Part", "scan_database", "scan_parts", "tasks_of", "words_of"]

PIECES = "file string, position long, text string, error string"
"""The words of a piece and the position of the first; or why a file cannot be read."""
_BATCH_BYTES = 1 << 20
_TASK_BYTES = 16 << 20
"""The most bytes of a task, if the encoding lets files be cut."""
_FILE_COSTS = 64 << 10
"""The bytes that can be read in the time that it takes to open a file."""


class Part(NamedTuple):
    """The bytes from start to before end of a file.

    Attributes:
        file: Its path in the database.
        path: As in `InputFile`.
        start: The first byte.
        end: The byte after the last.
        size: The file's size.
        content: The file's bytes; by default they are read from the path.
    """

    file: str
    path: bytes
    start: int
    end: int
    size: int
    content: bytes | None = None


def tasks_of(files: Iterable[InputFile], encoding: Encoding) -> list[list[Part]]:
    """Divide files among tasks: large ones are cut, small ones share a task.

    Args:
        files: Readable files.
        encoding: Their encoding.

    Returns:
        The parts of each task. The words and their positions do not depend on the division.
    """
    tasks: list[list[Part]] = []
    free = 0
    for name, path, size, _ in files:
        step = _TASK_BYTES if encoding.unit else max(size, 1)
        for start in range(0, max(size, 1), step):
            end = min(start + step, size)
            cost = end - start + _FILE_COSTS
            if cost > free:
                tasks.append([])
                free = _TASK_BYTES + _FILE_COSTS
            tasks[-1].append(Part(name, path, start, end, size))
            free -= cost
    return tasks


def scan_database(spark: SparkSession, files: Iterable[InputFile], encoding: Encoding) -> DataFrame:
    """Read the words of files.

    Args:
        spark: The session.
        files: Readable files, as far as is known.
        encoding: Their encoding.

    Returns:
        The rows of `words_of`.
    """
    # A task unpickles only its own parts.
    packed = [pickle.dumps(task) for task in tasks_of(files, encoding)]

    def scan(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from scan_parts(pickle.loads(packed[number]), encoding)  # noqa: S301

    numbers = spark.range(0, len(packed), 1, max(len(packed), 1))  # one number a partition
    return words_of(numbers.mapInArrow(scan, PIECES))


def scan_parts(parts: Iterable[Part], encoding: Encoding) -> Iterator[RecordBatch]:
    """Read parts of files; yields batches of `PIECES`."""
    rows: list[tuple[str, int, str | None, str | None]] = []
    size = 0
    for part in parts:
        try:
            with _opened(part) as file:
                for position, text in read_words(file, part.start, part.end, part.size, encoding):
                    rows.append((part.file, position, text.decode(), None))
                    size += len(text)
                    if size >= _BATCH_BYTES:
                        yield _batch(rows)
                        rows, size = [], 0
        except UnreadableFile as error:
            rows.append((part.file, -1, None, f"{shown(part.path)} {error}"))
    if rows:
        yield _batch(rows)


def _opened(part: Part):
    return opened(part.path, part.size) if part.content is None else nullcontext(BytesIO(part.content))


def _batch(rows):
    import pyarrow as pa

    types = {"file": pa.string(), "position": pa.int64(), "text": pa.string(), "error": pa.string()}
    columns = zip(zip(*rows, strict=True), types.values(), strict=True)
    return pa.RecordBatch.from_arrays([pa.array(*column) for column in columns], list(types))


def words_of(pieces: DataFrame) -> DataFrame:
    """Split pieces into words.

    Args:
        pieces: Rows of `PIECES`.

    Returns:
        Rows of `WORDS`; an error is a row of its own, with the position -1.
    """
    from pyspark.sql import functions as F

    word = F.posexplode_outer(F.split("text", " ")).alias("number", "word")
    rows = pieces.select("file", "position", "error", word)
    position = F.col("position") + F.coalesce("number", F.lit(0))
    return rows.select("file", position.alias("position"), "word", "error")
