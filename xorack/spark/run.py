"""A run of Spark jobs: its queue, its folder of records, and the names of its rows."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from xorack.client.token import AnyToken, parent_fields
from xorack.core.checks import CHECKS
from xorack.core.errors import ArgumentError
from xorack.core.masking import mask_of
from xorack.core.request import Request
from xorack.core.stamp import plain
from xorack.spark.jobs import JobFrames
from xorack.spark.record import Record, folder_part
from xorack.spark.sending import Queue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MAX_RUN_BYTES = 200
_RUN = "a name of the run: a string without '/', of at most 200 bytes"
_TEXTS = {
    "queue_url": (r"https?://[^/\s]+/\S+", "the URL of a queue"),
    "run_id": (r"(?=.*\S)[^/\0]+", _RUN),
    "records": (r"\S.*", "a folder's path or URI"),
    "region": (r"[a-z]{2,}(-[a-z]+)+-\d+", "one such as eu-west-1"),
    "endpoint_url": (r"https?://[^/\s]+(/\S*)?", "http(s)://HOST"),
}
"""The patterns and the descriptions of options that are strings."""


@dataclass(frozen=True)
class RunOptions:
    """A run of Spark jobs.

    Attributes:
        spark: The session, classic or Spark Connect.
        queue_url: The queue of stamp requests (the stack's output ``QueueUrl``).
        run_id: The run's name, the first part of every tag. Use it again to repeat the run:
            requests that are sent twice count once. Another run has other chains.
        records: A folder that Spark can write, for the record of each start.
        timeout: Seconds, or a timedelta, from the start of a chain until it fails. By default the
            stack's `default_timeout_seconds`.
        idle_timeout: Seconds, or a timedelta, from the last stamp until the chain fails.
        tolerated_units: The most missing units with which `finish` finishes a chain, if it knows
            exactly which units are missing. Windows tolerate no missing units.
        region: The queue's region; by default the region in its URL.
        endpoint_url: An endpoint other than that of AWS.
        mask: Columns whose values are shown as hashes in errors, notes and reasons, and fields of
            details, in any case: see docs/security.md. Columns of a chain cannot be masked.
        keep_open: Keep the run's chain open until `Tracking.close`. This is needed if rows are
            started after all other rows are finished. Without this option, micro-batches and
            windows are not units of the run's chain. Use the same value in all jobs of the run.
        resume: The callback at the end of the run's chain, as for `xorack.Tracker.start`.
        parent: The token of a unit of other chains that the run is, or several tokens.

    Raises:
        ArgumentError: An option is invalid.
    """

    spark: SparkSession
    queue_url: str
    run_id: str
    records: str
    timeout: float | timedelta | None = None
    idle_timeout: float | timedelta | None = None
    region: str | None = None
    endpoint_url: str | None = None
    tolerated_units: int = 0
    mask: Collection[str] = ()
    keep_open: bool = False
    resume: Mapping[str, str] | None = field(default=None, repr=False)
    parent: AnyToken | Sequence[AnyToken] | None = None
    jobs: JobFrames = field(default_factory=JobFrames, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for option, (pattern, expected) in _TEXTS.items():
            value = getattr(self, option)
            if value is not None or option not in ("region", "endpoint_url"):
                check_text(option, value, pattern, expected)
        if len(self.run_id.encode(errors="replace")) > _MAX_RUN_BYTES:
            raise ArgumentError("run_id", self.run_id, _RUN)
        names = ("timeout", "idle_timeout")
        times: dict[str, Any] = {name: getattr(self, name) for name in names}
        of_chain = {"resume": self.resume, **parent_fields(self.parent, fail_parent=False)}
        checked = Request("create", self.run_id, "id", stamp=plain(1), **times, **of_chain)
        for name in names:  # convert a timedelta to seconds
            object.__setattr__(self, name, getattr(checked, name))
        units = CHECKS["tolerated_units"]("tolerated_units", self.tolerated_units)
        object.__setattr__(self, "tolerated_units", units)
        object.__setattr__(self, "mask", mask_of(self.mask))

    @property
    def queue(self) -> Queue:
        """The queue, as an object for tasks."""
        return Queue(self.queue_url, self.region, self.endpoint_url, self.run_id)

    @property
    def run_folder(self) -> str:
        """The folder of all records of the run."""
        return f"{self.records.rstrip('/')}/{folder_part('run', self.run_id)}"

    def folder(self, label: str) -> str:
        """Return the folder with the records of a label."""
        return f"{self.run_folder}/{folder_part('label', label)}"


def check_text(option: str, value: object, pattern: str, expected: str) -> None:
    if not isinstance(value, str) or not re.fullmatch(pattern, value, re.DOTALL):
        raise ArgumentError(option, value, expected)


@dataclass(frozen=True)
class RowNames:
    """The names that belong to the rows of one name in one run; see `Tracking.rows`."""

    tracking: RunOptions
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
        """The record of the start of these rows."""
        folder = self.tracking.folder(self.label)
        return Record(self.tracking.spark, folder, self.name, self.batch_id)

    @property
    def namespace(self) -> str:
        """The first part of the units' names. It makes the units of each run and name different."""
        return f"{self.tracking.run_id}/{self.name}"

    @property
    def unit_name(self) -> str:
        """The column that `with_unit` adds."""
        return f"xorack_{self.name}"

    @property
    def evidence_names(self) -> tuple[str, str, str]:
        """The columns of `evidence`: the XOR, the count and the sum."""
        return f"{self.unit_name}_xor", f"{self.unit_name}_count", f"{self.unit_name}_sum"

    def request_id(self, step: str) -> str:
        """Return the id of a step's requests, which is the same when the step is repeated."""
        batch = "" if self.batch_id is None else f"/{self.batch_id}"
        return f"{self.name}/{step}{batch}"
