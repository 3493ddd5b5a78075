"""The record of a start: which chains, with how many units, and what their stamps are made of.

It is kept apart from the data. Each attempt has a folder of Parquet files of its own. One line of
JSON, written last, names the attempt that counts, and what a repeated run must equal.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

from pyspark.sql import Observation

from xorack.core.hashing import unit_id
from xorack.spark.folding import Summary, folding, metrics_of, summarize, summary_columns
from xorack.spark.folding import summary_of as summary_of_row
from xorack.spark.storage import read_texts, write_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Line = dict[str, Any]

__all__ = ["Record", "folder_part", "summary_in"]

_CHAINS = "tag string, xor long, count long, sum long, detail string, failed string"
_GLOB = str.maketrans({character: f"\\{character}" for character in "\\*?[]{}"})
_FOLDER_CHARACTERS = 200
"""Beyond it, names of folders are cut: file systems allow 255 bytes."""


def summary_in(line: Line) -> Summary:
    """Return the summary that a line has."""
    return Summary(**line["summary"])


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
            whole ``attempt`` and ``summary``. None for what is not there.
        """
        texts = read_texts(self._spark, f"{self._pattern}/{{name=*,{self._place}}}/summary")
        lines = [json.loads(text) for text in texts]
        first = next((line for line in lines if line["starts"]), None)
        own = (line for line in lines if "summary" in line and line.items() >= self._of.items())
        return first, next(own, None)

    @staticmethod
    def lines(spark: SparkSession, records: str, name: str) -> list[Line]:
        """Return the lines of the records of a name, of all runs in a folder of records."""
        pattern = f"{records.rstrip('/').translate(_GLOB)}/run=*/label=*/name={name}/summary"
        lines = [json.loads(text) for text in read_texts(spark, pattern)]
        return [line for line in lines if "summary" in line]

    def write(self, chains: DataFrame, units: DataFrame | None, facts: Line) -> Line:
        """Write the chains, then a line with their summary and facts about how they were made.

        Args:
            chains: A row a chain: the columns of `chains`.
            units: The columns of the chain and ``unit``, a row a unit, to be kept too.
            facts: What the line says beside the summary.

        Returns:
            The line.
        """
        line = {**facts, "attempt": uuid4().hex[:12]}
        folder, observation = f"{self._label}/{self._place}/{line['attempt']}", Observation()
        observed = chains.observe(observation, *summary_columns())
        with folding(self._spark):
            observed.write.option("compression", "lz4").parquet(f"{folder}/chains")
            if units is not None:
                units.write.option("compression", "lz4").parquet(f"{folder}/units")
        row = metrics_of(observation)
        summary = summary_of_row(row) if row else summarize(self.chains(line))
        line["summary"] = summary.as_json()
        self._write_line(self._place, line)
        return line

    def claim(self, facts: Line) -> None:
        """Write the line of a name whose batches start chains."""
        self._write_line(self._name, facts)

    def _write_line(self, place: str, line: Line) -> None:
        text = json.dumps({**line, **self._of})
        write_text(self._spark, f"{self._label}/{place}/summary", text)

    def chains(self, line: Line | None = None) -> DataFrame:
        """Return the chains of the record with this line, by default its own."""
        # With a schema, Spark runs no job to find it.
        return self._spark.read.schema(_CHAINS).parquet(self._folder(line, "chains"))

    def units(self, line: Line) -> DataFrame:
        """Return the units of the record with this line: the chain's columns and ``unit``."""
        return self._spark.read.parquet(self._folder(line, "units"))

    def _folder(self, line: Line | None, what: str) -> str:
        line = line or self.read()[1]
        assert line is not None
        return f"{self._pattern}/{self._place}/{line['attempt']}/{what}"


def folder_part(key: str, value: str) -> str:
    """Return a folder's name, as Spark names partitions: any value is safe in it."""
    text = quote(value, safe="")
    if len(text) > _FOLDER_CHARACTERS:
        text = f"{text[:_FOLDER_CHARACTERS]}...{unit_id(text):016x}"
    return f"{key}={text}"
