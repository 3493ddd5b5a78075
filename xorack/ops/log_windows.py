"""Windows over logs: the progress of each, and a table of them by log. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from xorack.core.chain import TIMED_OUT
from xorack.core.text import plural
from xorack.ops.status import ChainStatus

WindowState = Literal["complete", "open", "late", "missing", "failed"]
_NAMED = 3


@dataclass(frozen=True)
class LogWindow:
    """A chain that `xorack.spark` creates for a window of a log."""

    status: ChainStatus

    @property
    def place(self) -> tuple[str, str, str] | None:
        """The window's run, log and name, such as ``shop``, ``orders``, ``2026-09-14T14``.

        None for other chains. Any sender may have written the detail, so the tag has to contain the
        same names.
        """
        detail = self.status.detail or {}
        log, name = str(detail.get("log")), str(detail.get("window"))
        run, _, rest = self.status.chain.tag.partition("/")
        return (run, log, name) if rest == f"{log}/{name}" and "ranges" in detail else None

    @property
    def state(self) -> WindowState:
        """The state in the table of logs by hours. docs/windows.md lists the states."""
        chain = self.status.chain
        if chain.status == "acked":
            return "complete"
        if self.missing_count:
            return "missing"
        if self.status.urgency == "late" or self.status.reason == TIMED_OUT:
            return "late"
        return "failed" if chain.status == "failed" else "open"

    @property
    def missing_count(self) -> int:
        """The number of rows that are missing from a batch, as the last note says."""
        return (self.status.note or {}).get("missing_count") or 0

    @cached_property
    def lagging(self) -> list[str]:
        """The partitions that have not reached the window's end, as names or else as ids."""
        names = self.status.partitions
        return sorted(names.get(unit, f"{unit:016x}") for unit in self.status.outstanding)

    def lag(self, most: int | None = None) -> str:
        """Name the partitions that lag, but at most the first `most` of them."""
        rest = len(self.lagging) - (most or len(self.lagging))
        parts = [*self.lagging[:most], f"{rest} more" if rest > 0 else ""]
        return ", ".join(filter(None, (*parts, self.status.outstanding_note)))

    @property
    def why(self) -> str:
        """Why the window is not complete, such as ``3 rows, orders/1 lags``."""
        if self.state in ("complete", "failed"):
            return self.status.reason or ""
        rows = plural(self.missing_count, "row") if self.missing_count else ""
        lag = self.lag(_NAMED)
        verb = "lags" if len(self.lagging) == 1 else "lag"
        return ", ".join(filter(None, (rows, lag and f"{lag} {verb}")))

    @property
    def text(self) -> str:
        """The window's state in several words, such as ``open 66.6 %, orders/1 lags``."""
        known = self.state != "complete" and self.status.percent is not None
        share = f" {self.status.percent:g} %" if known else ""
        return ", ".join(filter(None, (f"{self.state}{share}", self.why)))

    def to_dict(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in ("state", "lagging", "missing_count")}
        return {"tag": self.status.chain.tag, "percent": self.status.percent, **fields}


class WindowTable(NamedTuple):
    """A table of windows: the logs, and the rows.

    A row has the run, the window's name, and the window in each log, or None if it is not open.
    """

    logs: tuple[str, ...]
    rows: list[tuple[str, str, list[LogWindow | None]]]

    @property
    def heads(self) -> list[str]:
        """The names of the rows. If there are several runs, each name has its run."""
        several = len({run for run, _, _ in self.rows}) > 1
        return [f"{run}/{name}" if several else name for run, name, _ in self.rows]


def window_table(
    statuses: Iterable[ChainStatus], logs: Sequence[str] = (), limit: int | None = None
) -> WindowTable:
    """Return the windows among these chains, the last names first.

    `logs` are the columns in their order. By default, all logs are shown, ordered by their first
    window.
    """
    windows: dict[tuple[str, str], dict[str, LogWindow]] = {}
    first: dict[str, int] = {}
    for window in map(LogWindow, statuses):
        if (place := window.place) is not None and (not logs or place[1] in logs):
            run, log, name = place
            windows.setdefault((name, run), {})[log] = window
            begin = window.status.begin or 0
            first[log] = min(begin, first.get(log, begin))
    names = tuple(logs) or tuple(sorted(first, key=lambda log: (first[log], log)))
    rows = sorted(windows, reverse=True)[:limit]
    cells = [(run, name, [windows[name, run].get(log) for log in names]) for name, run in rows]
    return WindowTable(names, cells)
