"""What is printed: for people on a terminal, for pipes, for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from xorack.cli.error_messages import printable
from xorack.core.event import rfc3339
from xorack.ops.status import ChainStatus

__all__ = [
    "can_redraw",
    "colour",
    "console",
    "describe",
    "percent",
    "print_json",
    "print_rows",
    "print_status",
    "say",
    "span",
    "time_left",
]

_COLOURS = {"acked": "green", "failed": "red", "open": "cyan", "pending": "yellow"}
_GAP = 2
"""Blanks between columns; it is rich's own measure."""
_FOLDED = 12
"""Columns of a table that a cell which goes on in further lines takes at least."""
_PADDED = 80
"""One tag of 1,024 bytes would move all other lines' columns out of sight."""
_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000


def console() -> Console:
    """A console on what stdout is now; a pipe gets no colour, no padding and no line breaks."""
    return Console(markup=False, highlight=False, emoji=False, soft_wrap=True)


def can_redraw(out: Console) -> bool:
    """Whether what was printed can be drawn over: a pipe, or a dumb terminal, shows it twice."""
    return out.is_terminal and not out.is_dumb_terminal


def say(text: str, *, error: bool = False) -> None:
    """Print one line.

    Args:
        text: The line.
        error: Whether it goes to stderr.
    """
    print(text, file=sys.stderr if error else sys.stdout)


def print_json(value: Any) -> None:
    """Print a value for programs, on one line: lists of them are JSON Lines."""
    print(json.dumps(value, ensure_ascii=not sys.stdout.encoding.lower().startswith("utf")))


def span(milliseconds: int) -> str:
    """A time span in two units at most, for example ``3 h 20 min``.

    Args:
        milliseconds: At least 0.

    Returns:
        The text.
    """
    if milliseconds < _SECOND:
        return f"{milliseconds} ms"
    if milliseconds < _MINUTE:
        return f"{milliseconds / _SECOND:.1f} s"
    for unit, name, part, part_name in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "min"),
        (_MINUTE, "min", _SECOND, "s"),
    ):
        if milliseconds >= unit:
            whole, rest = divmod(milliseconds, unit)
            return f"{whole} {name}" + (f" {rest // part} {part_name}" if rest // part else "")
    raise AssertionError("unreachable")


def time_left(deadline: int | None, now: int) -> str:
    """The time until a deadline, for a column; nothing where there is none.

    Args:
        deadline: Milliseconds since 1970.
        now: Likewise.

    Returns:
        The text.
    """
    if deadline is None:
        return ""
    return "passed" if deadline <= now else span(deadline - now)


def percent(status: ChainStatus) -> str:
    """The progress as a text; ``?`` where nobody counts."""
    return "?" if status.percent is None else f"{status.percent:g} %"


def colour(status: str) -> str:
    """The colour of a chain's status; none for what is no status."""
    return _COLOURS.get(status, "")


def _bar(share: float, width: int = 24) -> Text:
    full = int(share / 100 * width)
    bar = Text("━" * full, style="green" if share == 100 else "cyan")
    return bar.append("━" * (width - full), style="bright_black")


def print_status(status: ChainStatus, now: int) -> None:
    """Print how one chain stands.

    Args:
        status: The chain.
        now: Milliseconds since 1970.
    """
    out = console()
    for name, value in describe(status, now):
        line = Text(f"{name:<12} ")
        line.append(value, style=_COLOURS.get(value, "") if name == "status" else "")
        if name == "progress" and status.percent is not None and out.is_terminal:
            line.append("  ").append_text(_bar(status.percent))
        out.print(line)


def describe(status: ChainStatus, now: int) -> list[tuple[str, str]]:
    """How one chain stands, in names and texts.

    Args:
        status: The chain.
        now: Milliseconds since 1970.

    Returns:
        What to tell, in order.
    """
    chain = status.chain
    told = [("tag", printable(chain.tag)), ("status", chain.status)]
    if reason := chain.reason or chain.failing:
        told.append(("reason", printable(reason)))
    if chain.status == "pending":
        told.append(("", "requests came, its create has not yet"))
    told.append(("progress", percent(status)))
    told.append(("started", f"{chain.started:,} units"))
    told.append(("finished", f"{chain.finished:,} units"))
    if chain.created_at is not None:
        told.append(("created", str(rfc3339(chain.created_at))))
    if status.age_ms is not None:
        told.append(("took" if chain.final else "age", span(status.age_ms)))
    if chain.last_stamp_at is not None and not chain.final:
        told.append(("last stamp", _ago(chain.last_stamp_at, now)))
    if chain.ended_at is not None:
        told.append(("ended", f"{rfc3339(chain.ended_at)}, {_ago(chain.ended_at, now)}"))
    if not chain.final:
        told.append(("deadline", _deadline(status.deadline, now)))
    if chain.status != "acked":
        told.extend(_outstanding(status))
    if chain.final:
        told.append(("event", "pending" if chain.event_pending else "published"))
    return told


def _ago(time: int, now: int) -> str:
    return f"{span(max(0, now - time))} ago"


def _deadline(deadline: int | None, now: int) -> str:
    if deadline is None:
        return "none"
    if deadline <= now:
        return f"{rfc3339(deadline)}, passed {_ago(deadline, now)}: the sweeper ends it"
    return f"{rfc3339(deadline)}, in {span(deadline - now)}"


def _outstanding(status: ChainStatus) -> list[tuple[str, str]]:
    left = status.chain.started - status.chain.finished
    counted = f"{left:,} units" if left > 0 else "some units"
    if not status.outstanding:
        if status.outstanding_complete:
            return [("outstanding", "none")]
        why = "too many to be named" if left > 1 else "not to be named from such stamps"
        return [("outstanding", f"{counted}, {why}")]
    lines = [f"{unit:016x}" for unit in status.outstanding]
    if not status.outstanding_complete:
        lines.append(f"and more: {counted} in all")
    return [("outstanding" if at == 0 else "", line) for at, line in enumerate(lines)]


def print_rows(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Collection[int],
    fold: Collection[int],
) -> None:
    """Print a table: no cell is ever cut.

    On a terminal that has the room, long cells go on in further lines. Elsewhere a row is a line,
    in columns but for what is far longer than the others.

    Args:
        heads: The columns' names.
        rows: The cells.
        right: Columns that are aligned to the right.
        fold: Columns that may go on in a further line of a terminal.
    """
    cells = [list(row) for row in rows]
    lines = [list(heads), *cells]
    widths = [max(cell_len(line[at]) for line in lines) for at in range(len(heads))]
    out = console()
    least = [min(width, _FOLDED) if at in fold else width for at, width in enumerate(widths)]
    if not out.is_terminal or sum(least) + _GAP * (len(heads) - 1) > out.width:
        for line in lines:
            padded = []
            for at, (cell, width) in enumerate(zip(line, widths, strict=True)):
                space = " " * (min(width, _PADDED) - cell_len(cell))
                padded.append(space + cell if at in right else cell + space)
            say((" " * _GAP).join(padded).rstrip())
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for at, head in enumerate(heads):
        table.add_column(
            head,
            justify="right" if at in right else "left",
            no_wrap=at not in fold,
            overflow="fold",
        )
    for row in cells:
        table.add_row(*(Text(cell, style=_COLOURS.get(cell, "")) for cell in row))
    out.print(table, soft_wrap=False)
