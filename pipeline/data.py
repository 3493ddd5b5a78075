"""The data between the jobs: folders of Parquet files that anybody may compact, sort or copy.

WORDS/words   file, file_id, position, word, error: a row a word; see `pipeline.reading` for
              positions. The id stands for the file in units. A row of its own, with the
              position -1, says why a file cannot be read
WORDS/files   file, path, bytes, error: a row a file, written last. The words of a file with an
              error do not count
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
    """Read the Parquet files of a folder, whose path is not a pattern."""
    return spark.read.schema(schema).parquet(place.translate(GLOB))


def write_words(spark: SparkSession, place: str, files: Sequence[InputFile], encoding: str) -> None:
    """Write the words of files, then the list of the files."""
    readable = [file for file in files if file.problem is None]
    scan_database(spark, readable, encoding).write.parquet(f"{place}/words")
    # The errors are those of the attempts of tasks whose words were written.
    failed = read(spark, f"{place}/words", WORDS).where("error IS NOT NULL")
    errors: dict[str, str] = dict(failed.groupBy("file").agg(F.min("error")).collect())
    rows = []
    for file, path, size, problem in files:
        error = f"{shown(path)} {problem}" if problem else errors.get(file)
        rows.append((file, shown(path), size, error))
    spark.createDataFrame(rows, _FILES).coalesce(1).write.parquet(f"{place}/files")


def files_in(spark: SparkSession, place: str) -> DataFrame:
    """Read the list of the files in WORDS; raises `JobError` if there is none."""
    try:
        return read(spark, f"{place}/files", _FILES)
    except AnalysisException:
        problem = "is not what split writes, or split has not ended"
        raise JobError(f"--words {place} {problem}") from None


def words_in(spark: SparkSession, place: str) -> DataFrame:
    """Read the words of the files without an error in WORDS."""
    failed = files_in(spark, place).where("error IS NOT NULL").select("file")
    words = read(spark, f"{place}/words", WORDS).drop("error")
    # The join looks each word's file up: without it, counting does not even read the column.
    return words if failed.isEmpty() else words.join(F.broadcast(failed), "file", "left_anti")


def chains_in(spark: SparkSession, place: str) -> DataFrame:
    """Read the chains of the files in WORDS, as `TrackedRows.start` takes them."""
    detail = F.to_json(F.struct("path", "bytes"))
    # A longer detail would be rejected, and its create with it.
    short = F.when(F.octet_length(detail) <= 4096, detail).alias("detail")
    return files_in(spark, place).select("file", short, F.col("error").alias("failed"))


def counts_of(rows: DataFrame, words: TrackedRows) -> DataFrame:
    """Count words: word, count and the evidence of the words that were counted."""
    units = rows.transform(words.with_unit)
    return units.groupBy("word").agg(F.count("word").alias("count"), *words.evidence(units))


def totals(counts: DataFrame) -> dict[str, Any]:
    """Return the numbers of words and of distinct words in COUNTS."""
    row = counts.selectExpr("coalesce(sum(count), 0) AS words", "count(1) AS distinct").first()
    return row.asDict() if row else {}
