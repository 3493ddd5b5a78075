"""The record of a start: which chains, with how many units, and what their stamps are made of.

It is kept apart from the data. The chains are a Parquet folder; one line of JSON, written last,
says that the record is whole, and what it must equal when the run is repeated.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from xorack.core.hashing import unit_id
from xorack.spark.errors import DuplicateUnits, plain_errors

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = [
    "Record",
    "Summary",
    "Totals",
    "folder_part",
    "read_line",
    "summarize",
    "write_line",
]

_CHAINS = "tag string, units long, count long, fold binary, detail string, failed string"
_ATTEMPTS = (
    "op string, tag string, id string, units long, fold binary, units_2 long, fold_2 binary, "
    "count long, started long, finished long, attempt int"
)
_FOLDER_CHARACTERS = 200
"""Beyond it, names of folders are cut: file systems allow 255 bytes."""


class Totals(NamedTuple):
    """The XOR of the unit ids of rows, signed 64 bits, and how many these are."""

    units: int
    rows: int


class Summary(NamedTuple):
    """What chains sum up to.

    Attributes:
        totals: Of all units.
        chains: The number of chains with units.
        fingerprint: The XOR of hashes of each chain's tag, units and count.
    """

    totals: Totals
    chains: int
    fingerprint: int


def summarize(chains: DataFrame) -> Summary:
    """Sum up chains.

    Args:
        chains: ``tag``, ``units`` and ``count``.

    Raises:
        DuplicateUnits: The units of a chain cancel each other out.
    """
    counted = F.col("count") > 0
    with plain_errors():
        row = chains.agg(
            _or_zero(F.bit_xor(F.when(counted, F.col("units")))),
            _or_zero(F.sum("count")),
            F.count_if(counted),
            _or_zero(F.bit_xor(F.xxhash64("tag", "units", "count"))),
            F.min(F.when(counted & (F.col("units") == 0), F.col("tag"))),
        ).first()
    units, count, number, fingerprint, cancelled = row or (0, 0, 0, 0, None)
    if cancelled is not None:
        raise DuplicateUnits(
            f"the units of chain {cancelled!r} cancel each other out: "
            "the unit columns do not tell its rows apart"
        )
    return Summary(Totals(units, count), number, fingerprint)


def _or_zero(column: Column) -> Column:
    return F.coalesce(column, F.lit(0).cast("long"))


class Record:
    """The record of one name in one run, or in one batch of it."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        """Use the record in a folder, which need not exist."""
        self._spark = spark
        self._folder = folder

    def read(self) -> tuple[Summary, dict[str, Any]] | None:
        """Read the summary, and the facts that were written with it; None if there is none."""
        if (line := read_line(self._spark, f"{self._folder}/summary")) is None:
            return None
        (units, count), chains, fingerprint = line["summary"]
        return Summary(Totals(units, count), chains, fingerprint), line

    def write(self, chains: DataFrame, facts: dict[str, Any]) -> Summary:
        """Write the chains, then their summary with facts about how they were made."""
        writer = chains.write.mode("overwrite").option("compression", "lz4")
        with plain_errors():
            writer.parquet(f"{self._folder}/chains")
        summary = summarize(self.chains())
        write_line(self._spark, f"{self._folder}/summary", {**facts, "summary": summary})
        return summary

    def chains(self) -> DataFrame:
        """Return the chains."""
        # With a schema, Spark runs no job to find it.
        return self._spark.read.schema(_CHAINS).parquet(f"{self._folder}/chains")

    def add_attempt(self, requests: DataFrame) -> None:
        """Keep the requests of an attempt that finishes some chains in part."""
        before = self.attempts()
        last = None if before is None else before.agg(F.max("attempt")).first()
        number = 1 + ((last and last[0]) or 0)
        # Appended: an attempt that adds nothing has no number, and what is read stays as it is.
        requests = requests.withColumn("attempt", F.lit(number))
        requests.write.mode("append").parquet(f"{self._folder}/attempts")

    def attempts(self) -> DataFrame | None:
        """Return the requests of all attempts that finished a part, with their ``attempt``."""
        try:
            attempts = self._spark.read.schema(_ATTEMPTS).parquet(f"{self._folder}/attempts")
            return attempts if attempts.columns else None  # Connect looks for the path only now
        except AnalysisException as error:
            if _is_missing(error):
                return None
            raise


def folder_part(key: str, value: str) -> str:
    """Return a folder's name, as Spark names partitions: any value is safe in it."""
    text = quote(value, safe="")
    if len(text) > _FOLDER_CHARACTERS:
        text = f"{text[:_FOLDER_CHARACTERS]}...{unit_id(text):016x}"
    return f"{key}={text}"


def write_line(spark: SparkSession, path: str, line: dict[str, Any]) -> None:
    """Write a folder with one line of JSON."""
    text = spark.createDataFrame([(json.dumps(line),)], "value string").coalesce(1)
    text.write.mode("overwrite").text(path)


def read_line(spark: SparkSession, path: str) -> dict[str, Any] | None:
    """Read what `write_line` wrote; None if there is nothing."""
    try:
        row = spark.read.text(path).select("value").first()
    except AnalysisException as error:
        if _is_missing(error):
            return None
        raise
    return None if row is None else dict(json.loads(row["value"]))


def _is_missing(error: AnalysisException) -> bool:
    return "PATH_NOT_FOUND" in str(error) or "Path does not exist" in str(error)
