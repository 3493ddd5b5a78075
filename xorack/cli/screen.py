"""Output for terminals, pipes and programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from xorack.core.errors import NotAChainError
from xorack.core.text import listed, printable, span
from xorack.ops.backlog import Backlog
from xorack.ops.clues import clues_of
from xorack.ops.status import ChainStatus

STATUS_COLOURS = {"acked": "green", "failed": "red", "open": "cyan", "pending": "yellow"}
_GAP = 2
"""The blanks between columns, as many as rich uses."""
_MIN_FOLDED = 12
"""The least width of a column whose cells may continue in further lines."""
_MAX_PADDED = 80
"""A longer cell does not widen its column, or a tag of 1,024 bytes would hide other columns."""


def console() -> Console:
    """Create a console for stdout. A pipe gets no colours, padding or line breaks."""
    return Console(markup=False, highlight=False, emoji=False, soft_wrap=True)


def say(text: str = "", *, error: bool = False) -> None:
    """Print a line. Characters that control a terminal or end the line are escaped."""
    print(printable(text), file=sys.stderr if error else sys.stdout)


def say_backlog(backlog: Backlog | None) -> None:
    """Print the backlog, because messages that are not applied yet change the chains."""
    if text := str(backlog or ""):
        say(f"in the queues: {text}", error=True)


def ask(question: str) -> bool:
    """Ask a question. Without a terminal, raise an error that suggests --yes."""
    try:
        return click.confirm(printable(question))
    except click.Abort:
        if sys.stdin.isatty():
            raise
        say("")
        raise click.ClickException(
            "stdin has no answer, so nothing was changed; use --yes to skip the question"
        ) from None


def print_invalid(errors: Collection[NotAChainError]) -> int:
    for error in errors:
        say(f"error: {error}", error=True)
    return len(errors)


def print_json(value: Any) -> None:
    """Print a value as one line of JSON. On a terminal, control characters are escaped."""
    text = json.dumps(value, ensure_ascii=not sys.stdout.encoding.lower().startswith("utf"))
    if sys.stdout.isatty() and not text.isprintable():
        text = "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
    print(text)


def cells(status: ChainStatus) -> dict[str, str]:
    chain = status.chain
    time_left = ""
    if status.deadline is not None:
        left = status.deadline - status.now
        time_left = "passed" if left <= 0 else span(left // 1000 * 1000)
    why = status.tolerance if chain.tolerated else status.reason
    return {
        "TAG": chain.tag,
        "STATUS": chain.status,
        "DONE": "?" if status.percent is None else f"{status.percent:g} %",
        "UNITS": f"{chain.counts.finished:,}/{chain.counts.started:,}",
        "AGE": "?" if status.age_ms is None else span(status.age_ms),
        "TIME LEFT": time_left,
        "REASON": "; ".join(filter(None, (why, status.after_end))),
    }


def print_properties(properties: Iterable[tuple[str, str]]) -> None:
    """Print names and values, a line each. Further lines of a value have no name."""
    out = console()
    for name, value in properties:
        line = Text(f"{name:<12} ")
        colour = STATUS_COLOURS.get(value, "") if name == "status" else ""
        line.append(printable(value), style=colour)
        line.rstrip()
        out.print(line)


def properties_of(
    status: ChainStatus, names: Mapping[int, str], letters: Iterable[str] = ()
) -> Iterator[tuple[str, str]]:
    """Yield the properties of a chain, with names of its units and texts about its dead letters."""
    chain = status.chain
    yield "tag", chain.tag
    yield "status", chain.status
    for name, value, detail in status.facts():
        yield name, ", ".join(filter(None, (value, detail)))
    if status.detail:
        lines = json.dumps(status.detail, ensure_ascii=False, indent=2).split("\n")
        yield from listed("detail", lines)
    yield from listed(
        "not started", [clue.text for clue in clues_of(status) if clue.kind == "not_started"]
    )
    if chain.status != "acked" or chain.tolerated:
        ids = [f"{unit:016x}  {names.get(unit, '')}".rstrip() for unit in status.outstanding]
        note = [status.outstanding_note] if status.outstanding_note else []
        yield from listed("outstanding", [*ids, *note] or ["none"])
    if chain.final:
        yield "event", "pending" if chain.reports.event_pending else "published"
    if status.callback:
        yield "resume", status.callback
    yield from listed("dead letters", letters)


def print_rows(rows: Sequence[Mapping[str, str]], *, right: set[str], fold: set[str]) -> None:
    """Print rows of cells with the heads of their columns, without cutting cells off.

    If a terminal is wide enough, long cells of the columns `fold` continue in further lines, and
    empty columns are left out. Otherwise a row is one line. The columns `right` are aligned to the
    right.
    """
    out = console()
    rows = [{printable(head): printable(cell) for head, cell in row.items()} for row in rows]
    # An empty column would take room from columns with content.
    heads = [head for head in rows[0] if not out.is_terminal or any(row[head] for row in rows)]
    lines = [{head: head for head in heads}, *rows]
    widths = {head: max(cell_len(line[head]) for line in lines) for head in heads}
    least = [min(width, _MIN_FOLDED) if head in fold else width for head, width in widths.items()]
    if not out.is_terminal or sum(least) + _GAP * (len(widths) - 1) > out.width:
        for line in lines:
            padded = []
            for head, width in widths.items():
                space = " " * (min(width, _MAX_PADDED) - cell_len(line[head]))
                padded.append(space + line[head] if head in right else line[head] + space)
            say((" " * _GAP).join(padded).rstrip())
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in widths:
        justify: Literal["left", "right"] = "right" if head in right else "left"
        table.add_column(head, justify=justify, no_wrap=head not in fold, overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[h], style=STATUS_COLOURS.get(row[h], "")) for h in heads))
    out.print(table, soft_wrap=False)
