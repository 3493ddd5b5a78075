"""Windows over logs: how far each is, and a table of them by log. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from xorack.core.chain import TIMED_OUT
from xorack.core.text import plural
from xorack.ops.status import ChainStatus

WindowState = Literal["whole", "open", "late", "missing", "failed"]
_NAMED = 3


@dataclass(frozen=True)
class LogWindow:
    """A chain that `xorack.spark` creates for a window of a log."""

    status: ChainStatus

    @property
    def place(self) -> tuple[str, str, str] | None:
        """Its run, log and name, such as ``shop``, ``orders``, ``2026-09-14T14``; None: no window.

        The detail may be of any sender: it counts if the tag has the same names.
        """
        detail = self.status.detail or {}
        log, name = str(detail.get("log")), str(detail.get("window"))
        run, _, rest = self.status.chain.tag.partition("/")
        return (run, log, name) if rest == f"{log}/{name}" and "ranges" in detail else None

    @property
    def state(self) -> WindowState:
        """The state that the table of log by hour shows: docs/windows.md lists them."""
        chain = self.status.chain
        if chain.status == "acked":
            return "whole"
        if self.missing_count:
            return "missing"
        if self.status.urgency == "late" or self.status.reason == TIMED_OUT:
            return "late"
        return "failed" if chain.status == "failed" else "open"

    @property
    def missing_count(self) -> int:
        """How many rows are missing from a batch, by the last note."""
        return (self.status.note or {}).get("missing_count") or 0

    @cached_property
    def lagging(self) -> list[str]:
        """The partitions that have not reached the window's end; ids if the names are unknown."""
        names = self.status.partitions
        return sorted(names.get(unit, f"{unit:016x}") for unit in self.status.outstanding)

    def lag(self, most: int | None = None) -> str:
        """Name the partitions that lag, perhaps only the first ones."""
        rest = len(self.lagging) - (most or len(self.lagging))
        parts = [*self.lagging[:most], f"{rest} more" if rest > 0 else ""]
        return ", ".join(filter(None, (*parts, self.status.outstanding_note)))

    @property
    def why(self) -> str:
        """Why it is not whole, such as ``3 rows, orders/1 lags``."""
        if self.state in ("whole", "failed"):
            return self.status.reason or ""
        rows = plural(self.missing_count, "row") if self.missing_count else ""
        lag = self.lag(_NAMED)
        verb = "lags" if len(self.lagging) == 1 else "lag"
        return ", ".join(filter(None, (rows, lag and f"{lag} {verb}")))

    @property
    def text(self) -> str:
        """Its state in a few words, such as ``open 66.6 %, orders/1 lags``."""
        known = self.state != "whole" and self.status.percent is not None
        share = f" {self.status.percent:g} %" if known else ""
        return ", ".join(filter(None, (f"{self.state}{share}", self.why)))

    def to_dict(self) -> dict[str, Any]:
        shown = {name: getattr(self, name) for name in ("state", "lagging", "missing_count")}
        return {"tag": self.status.chain.tag, "percent": self.status.percent, **shown}


class WindowTable(NamedTuple):
    """Windows by log: the logs, and rows.

    A row is the run, the window's name, and its state in each log; None where it is not open.
    """

    logs: tuple[str, ...]
    rows: list[tuple[str, str, list[LogWindow | None]]]

    @property
    def heads(self) -> list[str]:
        """The names of the rows: with their run, if there are several."""
        several = len({run for run, _, _ in self.rows}) > 1
        return [f"{run}/{name}" if several else name for run, name, _ in self.rows]


def window_table(
    statuses: Iterable[ChainStatus], logs: Sequence[str] = (), limit: int | None = None
) -> WindowTable:
    """Return the windows among chains, the last names first.

    `logs` are shown in their order; by default all, the one that was first opened first.
    """
    found: dict[tuple[str, str], dict[str, LogWindow]] = {}
    first: dict[str, int] = {}
    for window in map(LogWindow, statuses):
        if (place := window.place) is not None and (not logs or place[1] in logs):
            run, log, name = place
            found.setdefault((name, run), {})[log] = window
            begin = window.status.begin or 0
            first[log] = min(begin, first.get(log, begin))
    names = tuple(logs) or tuple(sorted(first, key=lambda log: (first[log], log)))
    rows = sorted(found, reverse=True)[:limit]
    cells = [(run, name, [found[name, run].get(log) for log in names]) for name, run in rows]
    return WindowTable(names, cells)
