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

from xorack.core.errors import ColumnsError
from xorack.core.hashing import unit_id
from xorack.spark.errors import plain_errors

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    Line = dict[str, Any]

__all__ = ["Record", "Summary", "Totals", "folder_part", "summarize"]

_CHAINS = "tag string, units long, count long, fold binary, detail string, failed string"
_ATTEMPTS = (
    "op string, tag string, id string, units long, fold binary, units_2 long, fold_2 binary, "
    "count long, started long, finished long, attempt int"
)
_GLOB = str.maketrans({character: f"\\{character}" for character in "\\*?[]{}"})
_FOLDER_CHARACTERS = 200
"""Beyond it, names of folders are cut: file systems allow 255 bytes."""


class Totals(NamedTuple):
    """The XOR of the unit ids of rows, signed 64 bits, and how many these are."""

    units: int
    rows: int


class Summary(NamedTuple):
    """What chains sum up to.

    Attributes:
        units: The XOR of all unit ids, signed 64 bits.
        rows: The number of units.
        chains: The number of chains with units.
        fingerprint: The XOR of hashes of each chain's tag, units and count.
    """

    units: int
    rows: int
    chains: int
    fingerprint: int

    @property
    def totals(self) -> Totals:
        """What an output must sum up to."""
        return Totals(self.units, self.rows)


def summarize(chains: DataFrame) -> Summary:
    """Sum up chains.

    Args:
        chains: ``tag``, ``units`` and ``count``.

    Raises:
        ColumnsError: The units of a chain cancel each other out.
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
    *sums, cancelled = row or (0, 0, 0, 0, None)
    if cancelled is not None:
        raise ColumnsError(
            f"the units of chain {cancelled!r} cancel each other out: "
            "the unit columns do not tell its rows apart"
        )
    return Summary(*sums)


def _or_zero(column: Column) -> Column:
    return F.coalesce(column, F.lit(0).cast("long"))


class Record:
    """The record of one name in one run and label, or in one batch of it."""

    def __init__(self, spark: SparkSession, label: str, name: str, batch_id: int | None) -> None:
        """Use the record in the folder of a label, which need not exist."""
        self._spark, self._label = spark, label
        self._pattern = label.translate(_GLOB)  # what Spark reads is a pattern
        self._of = {"name": name, "batch": batch_id}
        self._name = f"name={name}"
        self._place = self._name if batch_id is None else f"{self._name}/batch={batch_id}"

    def read(self) -> tuple[Line | None, Line | None]:
        """Read the line of the name that starts the label's chains, and this record's own line.

        Returns:
            What `write` or `claim` was given, with ``name`` and ``batch``, and for a record that is
            whole ``summary``. None for what is not there.
        """
        places = f"{{name=*,{self._place}}}/summary"
        try:
            read = self._spark.read.text(f"{self._pattern}/{places}").select("value")
            lines = [json.loads(row["value"]) for row in read.collect()]
        except AnalysisException as error:
            if not _is_missing(error):
                raise
            lines = []
        first = next((line for line in lines if line["starts"]), None)
        own = (line for line in lines if "summary" in line and line.items() >= self._of.items())
        return first, next(own, None)

    def write(self, chains: DataFrame, facts: Line) -> Summary:
        """Write the chains, then a line with their summary and facts about how they were made."""
        writer = chains.write.mode("overwrite").option("compression", "lz4")
        with plain_errors():
            writer.parquet(f"{self._label}/{self._place}/chains")
        summary = summarize(self.chains())
        self._write_line(self._place, {**facts, "summary": summary})
        return summary

    def claim(self, facts: Line) -> None:
        """Write the line of a name whose batches start chains."""
        self._write_line(self._name, facts)

    def _write_line(self, place: str, line: Line) -> None:
        text = json.dumps({**line, **self._of})
        writer = self._spark.range(0, 1, 1, 1).select(F.lit(text).alias("value")).write
        writer.mode("overwrite").text(f"{self._label}/{place}/summary")

    def chains(self) -> DataFrame:
        """Return the chains."""
        # With a schema, Spark runs no job to find it.
        return self._spark.read.schema(_CHAINS).parquet(f"{self._pattern}/{self._place}/chains")

    def add_attempt(self, requests: DataFrame) -> None:
        """Keep the requests of an attempt that finishes some chains in part."""
        # Appended: an attempt that adds nothing has no number, and what is read stays as it is.
        requests.write.mode("append").parquet(f"{self._label}/{self._place}/attempts")

    def attempts(self) -> DataFrame | None:
        """Return the requests of all attempts that finished a part, with their ``attempt``."""
        folder = f"{self._pattern}/{self._place}/attempts"
        try:
            attempts = self._spark.read.schema(_ATTEMPTS).parquet(folder)
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


def _is_missing(error: AnalysisException) -> bool:
    return "PATH_NOT_FOUND" in str(error) or "Path does not exist" in str(error)
