"""The record of a start: its chains, with the sums of their units.

It is stored apart from the data. Each attempt has a folder of Parquet files. The header is one line
of JSON, which is written last. It names the valid attempt, and has the sums that a repeated run
must equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

from pyspark.errors import AnalysisException
from pyspark.sql import Observation

from xorack.core.errors import StateError
from xorack.core.hashing import unit_id
from xorack.spark import folding
from xorack.spark.folding import Summary
from xorack.spark.messages import one_line, plain_errors
from xorack.spark.storage import read_texts, write_text
from xorack.spark.units import GLOB

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Header = dict[str, Any]

_CHAINS = "tag string, xor long, count long, sum long, detail string, failed string"
_SENDING = "sending"
_MAX_CHARACTERS = 200
"""Most bytes of a folder's name, because file systems allow 255."""


def summary_in(header: Header) -> Summary:
    """Return the summary in a header."""
    return Summary(**header["summary"])


class Record:
    """The record of one name in one run and label, or in one batch."""

    def __init__(self, spark: SparkSession, label: str, name: str, batch_id: int | None) -> None:
        """Use the record in the folder of a label, which need not exist."""
        self._spark, self._label = spark, label
        # Spark reads paths as patterns, so special characters are escaped.
        self._pattern = label.translate(GLOB)
        self._of = {"name": name, "batch": batch_id}
        self._name = f"name={name}"
        self._place = self._name if batch_id is None else f"{self._name}/batch={batch_id}"

    def read(self) -> tuple[Header | None, Header | None]:
        """Read the header of the name that started the label's chains, and this record's header."""
        place = f"{self._pattern}/{{name=*,{self._place}}}"
        headers = _headers(self._spark, place)
        first = (header for header in headers if header["starts"])
        own = (each for each in headers if "summary" in each and each.items() >= self._of.items())
        return next(first, None), next(own, None)

    def follower(self) -> str | None:
        """Return the name that `advance` started for the rows that follow this name."""
        place = self._place.replace(self._name, "name=*", 1)
        headers = _headers(self._spark, f"{self._pattern}/{place}")
        names = (each["name"] for each in headers if each.get("follows") == self._of["name"])
        return next(names, None)

    def write(self, chains: DataFrame, facts: Header) -> Header:
        """Write the chains, then a header with the facts, the attempt and the summary."""
        header = {**facts, "attempt": uuid4().hex[:12]}
        folder, observation = f"{self._label}/{self._place}/{header['attempt']}", Observation()
        observed = chains.observe(observation, *folding.summary_columns())
        with plain_errors():
            observed.write.option("compression", "lz4").parquet(f"{folder}/chains")
        row = folding.metrics_of(observation)
        summary = folding.summary_of(row) if row else folding.summarize(self.chains(header))
        header["summary"] = asdict(summary)
        self.write_header(header)
        return header

    def write_header(self, header: Header, *, of_name: bool = False) -> None:
        """Write the record's header. With `of_name`, write the header of all batches of a name."""
        place = self._name if of_name else self._place
        text = json.dumps({**header, **self._of})
        write_text(self._spark, f"{self._label}/{place}/summary", text)

    def chains(self, header: Header | None = None) -> DataFrame:
        """Return the chains of the record with this header, by default the record's own header."""
        header = header or self.read()[1] or {}
        # With a schema, Spark needs no job to find it.
        place = f"{self._pattern}/{self._place}/{header['attempt']}/chains"
        return self._spark.read.schema(_CHAINS).parquet(place)

    @contextmanager
    def finishing(self, header: Header, chains: DataFrame | None = None) -> Iterator[None]:
        """Record which chains a call finishes, by default all, after the block has sent the stamps.

        A text shows a call that died in between.
        """
        place = f"{self._label}/{self._place}/{header['attempt']}"
        write_text(self._spark, call := f"{place}/finished_by={uuid4().hex}", _SENDING)
        yield
        if chains is None:
            write_text(self._spark, f"{place}/finished", "all")
        else:
            chains.select("tag").write.mode("append").parquet(f"{place}/finished_chains")
            write_text(self._spark, call, "sent")

    def may_have_sent(self, header: Header) -> bool:
        """Return whether a call may have finished chains that are not in `finished`."""
        place = f"{self._pattern}/{self._place}/{header['attempt']}"
        is_sending = _SENDING in read_texts(self._spark, f"{place}/finished_by=*")
        return is_sending and not read_texts(self._spark, f"{place}/finished")

    def finished(self, header: Header) -> DataFrame | None:
        """Return the ``tag`` of each chain that calls have finished, or None without any."""
        place = f"{self._pattern}/{self._place}/{header['attempt']}"
        if read_texts(self._spark, f"{place}/finished"):
            return self.chains(header).where("count > 0").select("tag")
        with suppress(AnalysisException):  # the record does not exist
            frame = self._spark.read.schema("tag string").parquet(f"{place}/finished_chains")
            return frame if frame.columns else None
        return None

    def check(self, header: Header) -> None:
        """Compare the chains of the record with this header, or raise `StateError`."""
        why = ""
        try:
            if folding.summarize(self.chains(header)) == summary_in(header):
                return
        except Exception as error:  # noqa: BLE001 - Java may raise any error
            why = f" ({one_line(error)})"
        raise StateError(
            f"the record in {self._label}/{self._place} is corrupt: call start again with the "
            f"same rows, then repeat this call{why}"
        )


def _headers(spark: SparkSession, place: str) -> list[Header]:
    """Read the headers of records in the folders of a pattern, except corrupt headers."""
    texts = json_texts(spark, f"{place}/summary")
    return [header for header in texts if isinstance(header, dict) and "starts" in header]


def json_texts(spark: SparkSession, pattern: str) -> list[Any]:
    """Read the values of the texts in the folders of a pattern, except corrupt texts."""
    values = []
    for text in read_texts(spark, pattern):
        with suppress(ValueError):
            values.append(json.loads(text))
    return values


def folder_part(key: str, value: str) -> str:
    """Return a folder's name in Spark's form of partitions, in which any value is safe."""
    text = quote(value, safe="")
    if len(text) > _MAX_CHARACTERS:
        text = f"{text[:_MAX_CHARACTERS]}...{unit_id(text):016x}"
    return f"{key}={text}"
