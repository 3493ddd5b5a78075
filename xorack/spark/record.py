"""The record of a start: which chains, with how many units, and what their stamps are made of.

It is kept apart from the data. Each attempt has a folder of Parquet files of its own. One line of
JSON, written last, names the attempt that counts, and what a repeated run must equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

from pyspark.sql import Observation

from xorack.core.errors import StateError
from xorack.core.hashing import unit_id
from xorack.spark import folding
from xorack.spark.folding import Summary
from xorack.spark.storage import Texts
from xorack.spark.units import GLOB

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Line = dict[str, Any]

_CHAINS = "tag string, xor long, count long, sum long, detail string, failed string"
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
        self._pattern = label.translate(GLOB)  # what Spark reads is a pattern
        self._of = {"name": name, "batch": batch_id}
        self._name = f"name={name}"
        self._place = self._name if batch_id is None else f"{self._name}/batch={batch_id}"

    def read(self) -> tuple[Line | None, Line | None]:
        """Read the line of the name that starts the label's chains, and this record's own line.

        Returns:
            What `write` or `write_line` wrote, with ``name`` and ``batch``; None for what is not
            there.
        """
        texts = Texts(self._spark).read(f"{self._pattern}/{{name=*,{self._place}}}/summary")
        lines = _parsed(texts)
        first = next((line for line in lines if line["starts"]), None)
        own = (line for line in lines if "summary" in line and line.items() >= self._of.items())
        return first, next(own, None)

    def follower(self) -> str | None:
        """Return the name that `advance` has started in place of this one."""
        place = self._place.replace(self._name, "name=*", 1)
        lines = _parsed(Texts(self._spark).read(f"{self._pattern}/{place}/summary"))
        return next((one["name"] for one in lines if one.get("follows") == self._of["name"]), None)

    @staticmethod
    def lines(spark: SparkSession, records: str, name: str) -> list[Line]:
        """Return the lines of the records of a name, of all runs in a folder of records."""
        pattern = f"{records.rstrip('/').translate(GLOB)}/run=*/label=*/name={name}/summary"
        return [line for line in _parsed(Texts(spark).read(pattern)) if "summary" in line]

    def write(self, chains: DataFrame, units: DataFrame | None, facts: Line) -> Line:
        """Write the chains, and the columns of the chain and ``unit`` a unit; then a line.

        Returns:
            The line: these facts, the attempt, and the summary of the chains.
        """
        line = {**facts, "attempt": uuid4().hex[:12]}
        folder, observation = f"{self._label}/{self._place}/{line['attempt']}", Observation()
        observed = chains.observe(observation, *folding.summary_columns())
        with folding.folding(self._spark):
            observed.write.option("compression", "lz4").parquet(f"{folder}/chains")
            if units is not None:
                units.write.option("compression", "lz4").parquet(f"{folder}/units")
        row = folding.metrics_of(observation)
        summary = folding.summary_of(row) if row else folding.summarize(self.chains(line))
        line["summary"] = asdict(summary)
        self.write_line(line)
        return line

    def write_line(self, line: Line, *, of_name: bool = False) -> None:
        """Write the line of the record, or with `of_name` of a name whose batches start chains."""
        place = self._name if of_name else self._place
        text = json.dumps({**line, **self._of})
        Texts(self._spark).write(f"{self._label}/{place}/summary", text)

    def chains(self, line: Line | None = None) -> DataFrame:
        """Return the chains of the record with this line, by default its own."""
        line = line or self.read()[1]
        assert line is not None
        # With a schema, Spark runs no job to find it.
        return self._spark.read.schema(_CHAINS).parquet(f"{self._attempt(line)}/chains")

    def check(self, line: Line) -> None:
        """Compare the chains of the record with this line.

        Raises:
            StateError: Some are gone, or cannot be read.
        """
        with suppress(Exception):  # whatever Java raises
            if folding.summarize(self.chains(line)) == summary_in(line):
                return
        raise StateError(
            f"the record in {self._label}/{self._place} is damaged: call start again with the "
            "same rows, then repeat this call"
        )

    def units(self, line: Line) -> DataFrame:
        """Return the units of the record with this line: the chain's columns and ``unit``."""
        return self._spark.read.parquet(f"{self._attempt(line)}/units")

    def _attempt(self, line: Line) -> str:
        return f"{self._pattern}/{self._place}/{line['attempt']}"


def _parsed(texts: Iterable[str]) -> list[Line]:
    """Return the lines that are whole: to `start`, others are not there."""
    lines = []
    for text in texts:
        with suppress(ValueError):
            lines.append(json.loads(text))
    return [line for line in lines if isinstance(line, dict) and "starts" in line]


def folder_part(key: str, value: str) -> str:
    """Return a folder's name, as Spark names partitions: any value is safe in it."""
    text = quote(value, safe="")
    if len(text) > _FOLDER_CHARACTERS:
        text = f"{text[:_FOLDER_CHARACTERS]}...{unit_id(text):016x}"
    return f"{key}={text}"
