"""A run of Spark jobs that is tracked: where its stamps go, and how its chains are named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from xorack.core.request import Request
from xorack.core.stamp import TRACED_CELLS, check_cells, plain
from xorack.spark.errors import InvalidOption
from xorack.spark.record import folder_part
from xorack.spark.rows import TrackedRows
from xorack.spark.sending import Queue, check_queue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Tracking"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MAX_RUN_BYTES = 200


@dataclass(frozen=True)
class Tracking:
    """A run of Spark jobs whose rows are tracked.

    Attributes:
        spark: The session, classic or Spark Connect.
        queue_url: The queue of stamp requests (the stack's output ``QueueUrl``).
        run_id: The run's name, the first part of every tag. Repeat it to repeat the run: what is
            sent twice counts once. Another run has other chains.
        records: A folder that Spark can write to, where the record of each start is kept.
        timeout: Seconds from the start of a chain to its failure, if it is not acked. By default
            that of the stack.
        idle_timeout: The same, from the last stamp.
        stamps: ``traced`` stamps name outstanding units; ``plain`` ones, of 8 bytes, do not.
        cells: The size of traced stamps; see `xorack.traced`.
        region: The queue's region; by default the one in its URL.
        endpoint_url: Another endpoint than that of AWS.

    Raises:
        InvalidOption: An option is invalid.
        InvalidRequest: A time-out or ``cells`` is invalid.

    Examples:
        >>> tracking = Tracking(spark, url, "2026-01-31", "s3://b/records")  # doctest: +SKIP
        >>> lines = tracking.rows("lines", chain="order", unit=["order", "line"])  # doctest: +SKIP
    """

    spark: SparkSession
    queue_url: str
    run_id: str
    records: str
    timeout: float | None = None
    idle_timeout: float | None = None
    stamps: Literal["traced", "plain"] = "traced"
    cells: int = TRACED_CELLS
    region: str | None = None
    endpoint_url: str | None = None

    def __post_init__(self) -> None:
        _check_text("queue_url", self.queue_url, r"https?://[^/\s]+/\S+", "the URL of a queue")
        expected = "a name of the run: a string without '/', of at most 200 bytes"
        _check_text("run_id", self.run_id, r"[^/\0]+", expected)
        if len(self.run_id.encode(errors="replace")) > _MAX_RUN_BYTES or not self.run_id.strip():
            raise InvalidOption("run_id", f"{self.run_id!r}, expected {expected}")
        _check_text("records", self.records, r"\S.*", "a folder's path or URI")
        for option in ("region", "endpoint_url"):
            if (value := getattr(self, option)) is not None:
                _check_text(option, value, _OPTIONAL[option], _OPTIONAL_EXPECTED[option])
        if self.stamps not in ("traced", "plain"):
            raise InvalidOption("stamps", f"{self.stamps!r}, expected 'traced' or 'plain'")
        check_cells(self.cells)
        times = {"timeout": self.timeout, "idle_timeout": self.idle_timeout}
        given = {name: seconds for name, seconds in times.items() if seconds is not None}
        Request("create", self.run_id, "id", stamp=plain(1), **given)  # type: ignore[arg-type]

    @property
    def queue(self) -> Queue:
        """The queue, as tasks reach it."""
        return Queue(self.queue_url, self.region, self.endpoint_url, self.run_id)

    def check(self) -> None:
        """Ask a task whether it can reach the queue: call it before a long job.

        Raises:
            InvalidOption: The queue does not exist, or tasks have no credentials for it.
        """
        check_queue(self.spark, self.queue)

    def rows(
        self,
        name: str,
        *,
        chain: str | Sequence[str],
        unit: str | Sequence[str],
        label: str | None = None,
    ) -> TrackedRows:
        """Name the rows of a data set, which one job starts and another finishes.

        Args:
            name: The name of the rows, the same in all jobs of the run: letters, digits, ``_``
                and ``-``. It is part of the unit ids.
            chain: The columns that tell chains apart: what somebody waits for, an order or a file.
            unit: The columns that tell all rows apart.
            label: The part of the tags between the run and the chain's values; by default the
                names of the chain columns. Rows of two names are in the same chains if their
                labels are equal: see `TrackedRows.advance`.

        Returns:
            The rows, to be started or finished.

        Raises:
            InvalidOption: An argument is invalid.
        """
        expected = "1 to 64 letters, digits, '_' or '-'"
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidOption("name", f"{name!r}, expected {expected}")
        chains, units = _names("chain", chain), _names("unit", unit)
        label = "+".join(chains) if label is None else label
        _check_text("label", label, r"[^\0]+", "a non-empty string")
        return TrackedRows(self, name, chains, units, quote_label(label))

    def folder(self, label: str) -> str:
        """Return the folder of the records of a label."""
        run = folder_part("run", self.run_id)
        return f"{self.records.rstrip('/')}/{run}/{folder_part('label', label)}"


def quote_label(label: str) -> str:
    """Encode what would make tags ambiguous."""
    return label.replace("%", "%25").replace("/", "%2F")


_OPTIONAL = {"region": r"[a-z]{2,}(-[a-z]+)+-\d+", "endpoint_url": r"https?://[^/\s]+(/\S*)?"}
_OPTIONAL_EXPECTED = {"region": "one such as eu-west-1", "endpoint_url": "http(s)://HOST"}


def _check_text(option: str, value: object, pattern: str, expected: str) -> None:
    if not isinstance(value, str) or not re.fullmatch(pattern, value, re.DOTALL):
        raise InvalidOption(option, f"{value!r}, expected {expected}")


def _names(option: str, value: str | Sequence[str]) -> tuple[str, ...]:
    names = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise InvalidOption(option, f"{value!r}, expected the names of one or more columns")
    if len(set(names)) < len(names):
        raise InvalidOption(option, f"{value!r} names a column twice")
    return names
