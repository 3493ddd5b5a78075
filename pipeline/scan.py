"""Turns files into words: tasks read the files in pieces, and Spark splits the pieces into rows."""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.folder import InputFile, UnreadableFile, opened, shown
from pipeline.reading import PIECE, read_words
from xorack import unit_id

PIECES = "file string, file_id long, position long, text string, error string"
"""The words of a piece and the position of the first; or the reason why a file is unreadable."""
UNIT = ("file_id", "position")
"""The columns that identify a word. Spark hashes two longs three times as fast as strings."""
_FILES = "file string, path binary, size long"
_TASK_BYTES = 16 * PIECE
_FILE_COSTS = 64 << 10
"""The number of bytes that can be read in the time of opening a file."""


def scan_database(spark: SparkSession, files: Iterable[InputFile], encoding: str) -> DataFrame:
    """Read the words of readable files, as rows of `words_of`."""
    read = [(file, path, size) for file, path, size, _ in files]
    tasks = 1 + sum(size + _FILE_COSTS for *_, size in read) // _TASK_BYTES

    def scan(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from _scan_files(zip(*batch.to_pydict().values(), strict=True), encoding)

    spread = spark.createDataFrame(read, _FILES).repartition(tasks)
    return words_of(spread.mapInArrow(scan, PIECES))


def _scan_files(files: Iterable[Any], encoding: str) -> Iterator[pa.RecordBatch]:
    rows: list[Any] = []
    gathered = 0
    for file, path, size in files:
        try:
            with opened(path, size) as opened_file:
                for position, text in read_words(opened_file, size, encoding):
                    rows.append((file, position, text.decode(), None))
                    gathered += len(text)
                    if gathered >= PIECE:
                        yield batch_of(rows)
                        rows, gathered = [], 0
        except UnreadableFile as error:
            rows.append((file, -1, None, f"{shown(path)} {error}"))
    if rows:
        yield batch_of(rows)


def batch_of(rows: Iterable[Any]) -> pa.RecordBatch:
    """Make a batch from rows of `PIECES`."""
    files, positions, texts, errors = zip(*rows, strict=True)
    columns = {"file": pa.array(files), "file_id": pa.array(map(file_id, files), pa.int64())}
    columns |= {"position": pa.array(positions, pa.int64())}
    columns |= {"text": pa.array(texts, pa.string()), "error": pa.array(errors, pa.string())}
    return pa.RecordBatch.from_pydict(columns)


def file_id(file: str) -> int:
    """Return a number for a file's name, which is the same in every run."""
    return unit_id(file) - (1 << 63)  # a signed long


def words_of(pieces: DataFrame) -> DataFrame:
    """Split pieces into words, a row for each. A piece without a text is one row."""
    word = F.posexplode_outer(F.split("text", " ")).alias("number", "word")
    rows = pieces.select("file", "file_id", "position", "error", word)
    position = F.col("position") + F.coalesce("number", F.lit(0))
    return rows.select("file", "file_id", position.alias("position"), "word", "error")
