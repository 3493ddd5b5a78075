"""Tracking: a run whose rows jobs start and finish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from xorack.core.errors import ArgumentError
from xorack.core.notebook import table
from xorack.spark.rows import TrackedRows
from xorack.spark.run import RunOptions, check_text
from xorack.spark.run_chain import close_requests
from xorack.spark.sending import send_few
from xorack.spark.units import encoded
from xorack.spark.windows.windows import Windows

_NAME = r"[A-Za-z0-9_-]{1,64}", "1 to 64 letters, digits, '_' or '-'"


class Tracking(RunOptions):
    """A run of Spark jobs whose rows are tracked, with the options of `RunOptions`.

    Examples:
        >>> tracking = Tracking(spark, url, "2026-01-31", "s3://b/records")  # doctest: +SKIP
        >>> lines = tracking.rows("lines", chain="order", unit=["order", "line"])  # doctest: +SKIP
    """

    def __repr__(self) -> str:
        return f"<Tracking: run {self.run_id!r}, records {self.records!r}>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        facts = {
            "records": self.records,
            "queue": self.queue_url,
            "timeout in seconds": self.timeout,
            "idle timeout in seconds": self.idle_timeout,
            "tolerated units of a chain": self.tolerated_units or None,
            "masked columns": ", ".join(sorted(self.mask)),
        }
        return table(f"Run {self.run_id}", facts)

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
            chain: The columns that distinguish chains, such as the number of an order or a file.
            unit: The columns that distinguish all rows.
            label: The part of the tags between the run and the chain's values; by default the
                names of the chain columns. Rows of two names are in the same chains if their
                labels are equal: see `TrackedRows.advance`.

        Raises:
            ArgumentError: An argument is invalid.
        """
        check_text("name", name, *_NAME)
        chains, units = self._chain_names("chain", chain), _names("unit", unit)
        label = "+".join(chains) if label is None else label
        check_text("label", label, r"[^\0]+", "a non-empty string")
        return TrackedRows(self, name, chains, units, encoded(label))

    def windows(
        self,
        name: str,
        *,
        partition: str | Sequence[str],
        position: str,
        gaps: Literal["count", "error", "ignore"] = "count",
    ) -> Windows:
        """Name a log for windows; see docs/windows.md.

        Args:
            name: The name of the log, as for `rows`.
            partition: The columns that distinguish partitions: ``["topic", "partition"]``.
            position: The column of the position in the partition, an integer.
            gaps: How to treat positions without rows: ``count`` reports them in a note,
                ``error`` refuses them, ``ignore`` also accepts batches without any row.

        Raises:
            ArgumentError: An argument is invalid.
        """
        check_text("name", name, *_NAME)
        if gaps not in ("count", "error", "ignore"):
            raise ArgumentError("gaps", gaps, "count, error or ignore")
        chain, (place,) = self._chain_names("partition", partition), _names("position", position)
        return Windows(self, name, chain, (*chain, place), encoded(name), None, place, gaps)

    def close(self) -> None:
        """Declare that all rows of a run that is kept open have been started.

        The run's chain is acked once all chains of its rows are acked. A repeated call changes
        nothing.

        Raises:
            SendError: The queue did not accept the request. Repeat the call.
        """
        send_few(self.spark, close_requests(self), self.queue)

    def _chain_names(self, option: str, value: str | Sequence[str]) -> tuple[str, ...]:
        names = _names(option, value)
        if masked := [name for name in names if name.lower() in self.mask]:
            expected = "columns that are not masked: the tag or detail of a chain has their values"
            raise ArgumentError(option, ", ".join(masked), expected)
        return names


def _names(option: str, value: str | Sequence[str]) -> tuple[str, ...]:
    names = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ArgumentError(option, value, "the names of one or more columns")
    if len(set(names)) < len(names):
        raise ArgumentError(option, problem=f"{value!r} names a column twice, expected each once")
    return names
