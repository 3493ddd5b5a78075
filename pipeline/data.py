"""The data between the jobs: folders of Parquet files, which anyone may compact, sort or copy.

WORDS/words   file, file_id, position, word, error: a row for each word. `pipeline.reading` explains
              positions. The id stands for the file in units. If a file cannot be read, a row with
              the position -1 says why
WORDS/files   file, path, bytes, error: a row for each file, written last. The words of a file with
              an error do not count
COUNTS        word, count, and the columns of `TrackedRows.evidence`
"""

from collections.abc import Sequence
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pipeline.folder import InputFile, JobError, shown
from pipeline.scan import scan_database
from xorack.spark import TrackedRows

WORDS = "file string, file_id long, position long, word string, error string"
_FILES = "file string, path string, bytes long, error string"
GLOB = str.maketrans({character: "\\" + character for character in "\\*?[]{}"})


def read(spark: SparkSession, place: str, schema: str | StructType) -> DataFrame:
    """Read the Parquet files of a folder. The path is taken literally, not as a pattern."""
    return spark.read.schema(schema).parquet(place.translate(GLOB))


def write_words(spark: SparkSession, place: str, files: Sequence[InputFile], encoding: str) -> None:
    """Write the words of files, and then the list of the files."""
    readable = [file for file in files if file.problem is None]
    scan_database(spark, readable, encoding).write.parquet(f"{place}/words")
    # These are the errors of the task attempts whose words were written.
    failed = read(spark, f"{place}/words", WORDS).where("error IS NOT NULL")
    errors: dict[str, str] = dict(failed.groupBy("file").agg(F.min("error")).collect())
    rows = []
    for file, path, size, problem in files:
        error = f"{shown(path)} {problem}" if problem else errors.get(file)
        rows.append((file, shown(path), size, error))
    spark.createDataFrame(rows, _FILES).coalesce(1).write.parquet(f"{place}/files")


def files_in(spark: SparkSession, place: str) -> DataFrame:
    """Read the list of the files in WORDS; raise `JobError` if it does not exist."""
    try:
        return read(spark, f"{place}/files", _FILES)
    except AnalysisException:
        problem = "was not written by split, or split has not ended: run split first"
        raise JobError(f"--words {place} {problem}") from None


def words_in(spark: SparkSession, place: str) -> DataFrame:
    """Read the words of the files in WORDS that have no error."""
    failed = files_in(spark, place).where("error IS NOT NULL").select("file")
    words = read(spark, f"{place}/words", WORDS).drop("error")
    # The join looks up the file of each word. Without it, counting does not read that column.
    return words if failed.isEmpty() else words.join(F.broadcast(failed), "file", "left_anti")


def chains_in(spark: SparkSession, place: str) -> DataFrame:
    """Read the chains of the files in WORDS, as `TrackedRows.start` expects them."""
    detail = F.to_json(F.struct("path", "bytes"))
    # A longer detail would be rejected together with its create.
    short = F.when(F.octet_length(detail) <= 4096, detail).alias("detail")
    return files_in(spark, place).select("file", short, F.col("error").alias("failed"))


def counts_of(rows: DataFrame, words: TrackedRows) -> DataFrame:
    """Count words. Return the words, their counts and the evidence of the counted words."""
    units = rows.transform(words.with_unit)
    return units.groupBy("word").agg(F.count("word").alias("count"), *words.evidence(units))


def totals(counts: DataFrame) -> dict[str, Any]:
    """Return the numbers of words and of distinct words in COUNTS."""
    row = counts.selectExpr("coalesce(sum(count), 0) AS words", "count(1) AS distinct").first()
    return row.asDict() if row else {}
