"""The data between the jobs: folders of Parquet files that anybody may compact, sort or copy.

    WORDS/words   file, position, word, error: a row a word; see `pipeline.reading` for positions.
                  A row of its own, with the position -1, says why a file cannot be read to its end
    WORDS/files   file, path, bytes, error, repairs: a row a file, written last. The words of a file
                  with an error do not count. Of repairs only: the tag of the chain that failed
    COUNTS        word, count, and the two columns of `TrackedRows.evidence`
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from pipeline.errors import JobError
from pipeline.scan import scan_database

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.folder import InputFile
    from pipeline.reading import Encoding
    from xorack.spark.rows import TrackedRows

__all__ = ["FILES", "WORDS", "chains_in", "counts_of", "files_in", "read", "words_in", "write_words"]

WORDS = "file string, position long, word string, error string"
FILES = "file string, path string, bytes long, error string, repairs string"
_DETAIL_BYTES = 4096
_GLOB = str.maketrans({character: "\\" + character for character in "\\*?[]{}"})


def read(spark: SparkSession, place: str, schema: str) -> DataFrame:
    """Read the Parquet files of a folder, whose path is no pattern."""
    return spark.read.schema(schema).parquet(place.translate(_GLOB))


def write_words(
    spark: SparkSession,
    place: str,
    files: Iterable[InputFile],
    encoding: Encoding,
    *,
    keep: Callable[[DataFrame], DataFrame] = lambda words: words,
    repairs: Mapping[str, str] | None = None,
) -> None:
    """Write the words of files, then the list of the files.

    Args:
        spark: The session.
        place: The folder, claimed by this run.
        files: The files.
        encoding: Their encoding.
        keep: Selects the rows to write.
        repairs: By file, the tag of the failed chain.
    """
    from pyspark.sql import functions as F

    words, files = f"{place}/words", list(files)
    readable = [file for file in files if file.problem is None]
    keep(scan_database(spark, readable, encoding)).write.parquet(words)
    # The errors are those of the attempts whose words were written.
    failed = read(spark, words, WORDS).where("error IS NOT NULL")
    errors = dict(failed.groupBy("file").agg(F.min("error")).collect())
    rows = []
    for file in files:
        path = file.path.decode("utf-8", "backslashreplace")
        error = f"{path} {file.problem}" if file.problem else errors.get(file.relative)
        rows.append((file.relative, path, file.size, error, (repairs or {}).get(file.relative)))
    spark.createDataFrame(rows, FILES).coalesce(1).write.parquet(f"{place}/files")


def files_in(spark: SparkSession, place: str) -> DataFrame:
    """Read the list of files: rows of `FILES`.

    Raises:
        JobError: There is none.
    """
    from pyspark.errors import AnalysisException

    try:
        return read(spark, f"{place}/files", FILES)
    except AnalysisException:
        raise JobError(
            f"--words {place} is not what split writes, or split has not ended"
        ) from None


def words_in(spark: SparkSession, place: str) -> DataFrame:
    """Read the words of the files without an error: file, position, word."""
    from pyspark.sql import functions as F

    failed = files_in(spark, place).where("error IS NOT NULL").select("file")
    words = read(spark, f"{place}/words", WORDS).drop("error")
    return words.join(F.broadcast(failed), "file", "left_anti")


def chains_in(spark: SparkSession, place: str) -> DataFrame:
    """Read the chains of the files, as `TrackedRows.start` takes them."""
    from pyspark.sql import functions as F

    detail = F.to_json(F.struct("path", "bytes", "repairs"))
    short = F.when(F.octet_length(detail) <= _DETAIL_BYTES, detail)
    return files_in(spark, place).select("file", short.alias("detail"), F.col("error").alias("failed"))


def counts_of(words: DataFrame, tracked: TrackedRows) -> DataFrame:
    """Count words: word, count and the evidence of which words were counted."""
    from pyspark.sql import functions as F

    counted = words.transform(tracked.with_unit).groupBy("word")
    return counted.agg(F.count("word").alias("count"), *tracked.evidence())
