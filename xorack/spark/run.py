"""A run of Spark jobs: where its stamps and records go, and the names of rows in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F

from xorack.core.errors import ArgumentError, ColumnsError
from xorack.core.request import Request
from xorack.core.stamp import plain
from xorack.spark.evidence import Observed, has_evidence
from xorack.spark.folding import together
from xorack.spark.messages import plain_errors
from xorack.spark.record import Record, folder_part
from xorack.spark.sending import Queue
from xorack.spark.units import has_columns, parse_id, signed, unit_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_MAX_RUN_BYTES = 200
_RUN = "a name of the run: a string without '/', of at most 200 bytes"
_TEXTS = {
    "queue_url": (r"https?://[^/\s]+/\S+", "the URL of a queue"),
    "run_id": (r"(?=.*\S)[^/\0]+", _RUN),
    "records": (r"\S.*", "a folder's path or URI"),
    "region": (r"[a-z]{2,}(-[a-z]+)+-\d+", "one such as eu-west-1"),
    "endpoint_url": (r"https?://[^/\s]+(/\S*)?", "http(s)://HOST"),
}
"""The patterns of options that are strings, and what they are."""


@dataclass(frozen=True)
class Run:
    """A run of Spark jobs.

    Attributes:
        spark: The session, classic or Spark Connect.
        queue_url: The queue of stamp requests (the stack's output ``QueueUrl``).
        run_id: The run's name, the first part of every tag. Repeat it to repeat the run: what is
            sent twice counts once. Another run has other chains.
        records: A folder that Spark can write to, where the record of each start is kept.
        timeout: Seconds, or a timedelta, from the start of a chain to its failure, if it is not
            acked. By default that of the stack.
        idle_timeout: The same, from the last stamp.
        keep_units: Keep the id of each unit in the record, 8 bytes a row and the chain's columns.
            Rows that vanish from storage between the jobs have names then.
        region: The queue's region; by default the one in its URL.
        endpoint_url: Another endpoint than that of AWS.

    Raises:
        ArgumentError: An option is invalid.
    """

    spark: SparkSession
    queue_url: str
    run_id: str
    records: str
    timeout: float | timedelta | None = None
    idle_timeout: float | timedelta | None = None
    keep_units: bool = False
    region: str | None = None
    endpoint_url: str | None = None

    def __post_init__(self) -> None:
        for option, (pattern, expected) in _TEXTS.items():
            value = getattr(self, option)
            if value is not None or option not in ("region", "endpoint_url"):
                check_text(option, value, pattern, expected)
        if len(self.run_id.encode(errors="replace")) > _MAX_RUN_BYTES:
            raise ArgumentError("run_id", self.run_id, _RUN)
        if not isinstance(self.keep_units, bool):
            raise ArgumentError("keep_units", self.keep_units, "True or False")
        times = {"timeout": self.timeout, "idle_timeout": self.idle_timeout}
        checked = Request("create", self.run_id, "id", stamp=plain(1), **times)  # type: ignore[arg-type]
        for name in times:  # a timedelta becomes seconds
            object.__setattr__(self, name, getattr(checked, name))

    @property
    def queue(self) -> Queue:
        """The queue, as tasks reach it."""
        return Queue(self.queue_url, self.region, self.endpoint_url, self.run_id)

    def folder(self, label: str) -> str:
        """Return the folder of the records of a label."""
        run = folder_part("run", self.run_id)
        return f"{self.records.rstrip('/')}/{run}/{folder_part('label', label)}"


def check_text(option: str, value: object, pattern: str, expected: str) -> None:
    """Raise `ArgumentError` unless a value is a string of a pattern."""
    if not isinstance(value, str) or not re.fullmatch(pattern, value, re.DOTALL):
        raise ArgumentError(option, value, expected)


class FoundRows(NamedTuple):
    """The rows that ids stand for.

    Attributes:
        rows: The rows, with their units in the column ``xorack_{name}``. They are cached: call
            ``rows.unpersist()`` when they are no longer needed.
        unknown: The ids that no row has, unsigned.
    """

    rows: DataFrame
    unknown: frozenset[int]


@dataclass(frozen=True)
class Rows:
    """The rows of one name in one run, of whose units an output can have evidence.

    Attributes:
        tracking: The run.
        name: The name of the rows.
        chain: The columns that tell chains apart.
        unit: The columns that tell rows apart.
        label: The part of the tags between the run and the values of the chain columns.
        batch_id: The micro-batch of a stream, if any: see `batch`.
    """

    tracking: Run
    name: str
    chain: tuple[str, ...]
    unit: tuple[str, ...]
    label: str
    batch_id: int | None = None

    @property
    def prefix(self) -> str:
        """The beginning of the chains' tags."""
        return f"{self.tracking.run_id}/{self.label}/"

    @property
    def record(self) -> Record:
        """The record of what was started."""
        folder = self.tracking.folder(self.label)
        return Record(self.tracking.spark, folder, self.name, self.batch_id)

    @property
    def salt(self) -> str:
        """The first part of the unit ids: a stale output of another run is no evidence."""
        return f"{self.tracking.run_id}/{self.name}"

    @property
    def unit_name(self) -> str:
        """The column that `with_unit` adds."""
        return f"xorack_{self.name}"

    @property
    def evidence_names(self) -> tuple[str, str, str]:
        """The columns of `evidence`: the XOR, the count and the sum."""
        return f"{self.unit_name}_xor", f"{self.unit_name}_count", f"{self.unit_name}_sum"

    def with_unit(self, frame: DataFrame) -> DataFrame:
        """Add the unit of each row, a long in the column ``xorack_{name}``.

        The unit equals ``xorack.unit_id("{run_id}/{name}", *values)`` of the unit columns: rows of
        another run or name have other units.

        Raises:
            ColumnsError: The frame lacks a unit column, or one has another type than an
                integer, string, binary, boolean, date, timestamp or decimal. A null fails the
                job, with a message that names the column.
        """
        return frame.withColumn(self.unit_name, unit_column(frame, self.salt, self.unit))

    def evidence(self, frame: DataFrame | None = None) -> tuple[Column, Column, Column]:
        """Return three aggregates of the rows of a group, for ``agg``: XOR, count and sum.

        They go into the output: what was written then says which units are in it.

        Args:
            frame: The frame that is aggregated: it has the column that `with_unit` adds, or
                evidence, which is added up then. By default the former.

        Raises:
            ColumnsError: The frame has neither.
        """
        if frame is not None and has_evidence(self, frame):
            xor, count, sum_ = together(self.evidence_names, self.evidence_names)
            return xor, count, sum_
        if frame is not None and not has_columns(frame, [self.unit_name]):
            raise ColumnsError(
                f"the frame has no column {self.unit_name}: add it first, "
                "with .transform(rows.with_unit)"
            )
        unit, names = F.col(self.unit_name), self.evidence_names
        upper = F.sum(F.shiftright(unit, 32)).alias(names[2])
        return F.bit_xor(unit).alias(names[0]), F.count(unit).alias(names[1]), upper

    def observe(self, frame: DataFrame, write: Callable[[Any], object] | None = None) -> Observed:
        """Write a frame, and observe its evidence in the tasks that write.

        It proves what a write was handed that returned, and needs no columns in the output and no
        reading back.

        Args:
            frame: A frame with the columns of `evidence`.
            write: A function that writes the frame it is given, which lacks these columns:
                ``lambda bills: bills.write.jdbc(url, "bills")``. Without it, run one action on
                ``frame`` of the result: that proves no more than reading.

        Returns:
            What to give to `finish`.

        Raises:
            ArgumentError: The function did not write, or wrote twice.
        """
        observed = Observed.of(frame, self.evidence_names)
        return observed if write is None else observed.write(write)

    def rows_of(self, frame: DataFrame, ids: Iterable[int | str]) -> FoundRows:
        """Find the rows that ids stand for, such as the outstanding ids of a failed chain.

        Args:
            frame: Any frame with the unit columns.
            ids: Integers, or 16 hex digits each as in events.

        Raises:
            ArgumentError: An id is invalid.
            ColumnsError: See `with_unit`.
        """
        wanted = frozenset(map(parse_id, ids))
        rows = [(signed(one),) for one in sorted(wanted)]
        asked = frame.sparkSession.createDataFrame(rows, f"`{self.unit_name}` long")
        units = self.with_unit(frame)
        matches = units.join(F.broadcast(asked), self.unit_name, "left_semi").persist()
        with plain_errors():
            found = matches.select(self.unit_name).distinct().collect()
        return FoundRows(matches, wanted - {row[0] % (1 << 64) for row in found})
