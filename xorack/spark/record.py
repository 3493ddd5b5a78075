"""The record of a start: which chains, with how many units, and what their stamps are made of.

It is kept apart from the data. The chains are a Parquet folder; one line of JSON, written last,
says that the record is whole, and what it must equal when the run is repeated.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
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
    "read_claim",
    "summarize",
    "write_claim",
]

_FOLDER_CHARACTERS = 200
"""Beyond it, names of folders are cut: file systems allow 255 bytes."""


@dataclass(frozen=True)
class Totals:
    """The XOR and the count of units.

    Attributes:
        units: The XOR of the unit ids, signed 64 bits.
        count: The number of units.
    """

    units: int = 0
    count: int = 0


@dataclass(frozen=True)
class Summary:
    """What a record says of all its chains together.

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
        rows = _lines(self._spark, f"{self._folder}/summary")
        if not rows:
            return None
        facts = rows[0]
        totals = Totals(facts.pop("units"), facts.pop("count"))
        return Summary(totals, facts.pop("chains"), facts.pop("fingerprint")), facts

    def write(self, chains: DataFrame, facts: dict[str, Any]) -> Summary:
        """Write the chains, then their summary; what an interrupted start left is overwritten.

        Args:
            chains: ``tag``, ``units``, ``count``, ``fold``, and more.
            facts: JSON values that say how the chains were made.

        Returns:
            The summary.
        """
        with plain_errors():
            # Hashes do not compress.
            chains.write.mode("overwrite").option("compression", "lz4").parquet(
                f"{self._folder}/chains"
            )
        summary = summarize(self.chains())
        numbers = {**asdict(summary.totals), "chains": summary.chains}
        line = {**facts, **numbers, "fingerprint": summary.fingerprint}
        _write_line(self._spark, f"{self._folder}/summary", line)
        return summary

    def chains(self) -> DataFrame:
        """Return the chains."""
        return self._spark.read.parquet(f"{self._folder}/chains")

    def add_attempt(self, requests: DataFrame) -> None:
        """Keep the requests of an attempt that finishes some chains in part."""
        before = self.attempts()
        last = None if before is None else before.agg(F.max("attempt")).first()
        number = 1 + ((last and last[0]) or 0)
        requests.write.mode("overwrite").parquet(f"{self._folder}/attempts/attempt={number}")

    def attempts(self) -> DataFrame | None:
        """Return the requests of all attempts that finished a part, with their ``attempt``."""
        try:
            return self._spark.read.parquet(f"{self._folder}/attempts")
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


def read_claim(spark: SparkSession, folder: str) -> dict[str, Any] | None:
    """Return the claim of a label's chains; None if nobody has started them."""
    return next(iter(_lines(spark, f"{folder}/started_by")), None)


def write_claim(spark: SparkSession, folder: str, claim: dict[str, Any]) -> None:
    """Claim a label's chains for who starts them: JSON values."""
    _write_line(spark, f"{folder}/started_by", claim)


def _write_line(spark: SparkSession, path: str, line: dict[str, Any]) -> None:
    text = spark.createDataFrame([(json.dumps(line),)], "value string").coalesce(1)
    text.write.mode("overwrite").text(path)


def _lines(spark: SparkSession, path: str) -> list[dict[str, Any]]:
    try:
        return [json.loads(row[0]) for row in spark.read.text(path).select("value").collect()]
    except AnalysisException as error:
        if _is_missing(error):
            return []
        raise


def _is_missing(error: AnalysisException) -> bool:
    return "PATH_NOT_FOUND" in str(error) or "Path does not exist" in str(error)
