"""The command `xorack watch`: a live table on a terminal, elsewhere a line for each change."""

from __future__ import annotations

import errno
import functools
import select
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from xorack.cli import screen
from xorack.cli.options import Chains, Target, interval_option, json_option, with_run, with_table
from xorack.cli.wait import exit_status, poll_to_end, print_summary, say_retrying, summary
from xorack.core.event import rfc3339
from xorack.ops.backlog import Backlog
from xorack.ops.snapshot import MAX_CHAINS
from xorack.ops.status import ChainStatus
from xorack.ops.text import plural, printable
from xorack.ops.watch import ChainWatcher, WatchUpdate

_OTHER_LINES = 4
"""Lines of the screen that are not chains."""
Queues = Callable[[], Backlog | None]
_URGENCY_COLOURS = {"ok": "", "soon": "yellow", "late": "red"}


@click.command(epilog="Example: xorack watch order/17 order/18 && echo all done")
@with_run
@interval_option
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_CHAINS),
    default=20,
    help="Maximum number of chains to watch without TAG.",
)
@json_option
@with_table
def watch(
    chains: Chains, interval_seconds: float, limit: int, as_json: bool, target: Target
) -> int:
    """Watch the progress of chains.

    Draws a live table on a terminal; prints a line for each change elsewhere.

    Without TAG: the unfinished chains with the nearest deadlines, until Ctrl-C (exit status 0).
    With TAGs: these chains, until all have ended; the exit status is 1 if one of them failed.
    Waits for a chain that does not exist yet. With --json, prints one JSON object a change.

    With --run: the chains of the run with the nearest deadlines, until the run has ended; then
    prints its counts. The exit status is 1 if a chain of the run failed. For --chains, see `xorack
    wait --help`.
    """
    watcher = ChainWatcher(target.open(), chains.tags, limit, chains.run)
    try:
        update = _watch(watcher, interval_seconds, as_json, target.queues())
    except KeyboardInterrupt:
        if any(chains):
            raise
        return 0
    if update.run:
        print_summary(update, as_json=as_json)
    return exit_status(update)


def _watch(
    watcher: ChainWatcher, interval_seconds: float, as_json: bool, queues: Queues
) -> WatchUpdate:
    """Poll and draw, or print, until all chains that are watched have ended."""
    out = screen.console()
    if as_json or not screen.can_redraw(out):
        show = functools.partial(_print_update, set(), as_json, queues)
        return poll_to_end(watcher, interval_seconds, show)

    def draw(update: WatchUpdate, error: str) -> None:
        live.update(_draw(update, error, *out.size, str(queues() or "")), refresh=True)

    with Live(console=out, auto_refresh=False) as live:
        return poll_to_end(watcher, interval_seconds, draw)


def _print_update(
    warned: set[str], as_json: bool, queues: Queues, update: WatchUpdate, error: str
) -> None:
    """Print the changes as lines; a problem of a tag is printed once."""
    if _reader_is_gone():
        raise BrokenPipeError(errno.EPIPE, "the reader is gone")
    if error:
        say_retrying(error)
        return
    for status in update.changed:
        if as_json:
            screen.print_json({"at": rfc3339(status.now), **status.to_dict()})
        else:
            screen.say(_line(status))
    warnings = dict.fromkeys(update.not_found, "does not exist yet")
    for invalid in update.snapshot.invalid:
        warnings[str(invalid.tag)] = f"cannot be read: {invalid.reason}"
    if update.run and update.counts and not (update.counts.chains or update.done):
        warnings[update.run.name] = "has no chains yet"
    if new := {"", *warnings} - warned:  # the empty one is of the first poll
        for tag, warning in warnings.items():
            if tag in new:
                screen.say(f"{tag}: {warning}", error=True)
        warned.update(new)
        screen.say_backlog(queues())
    sys.stdout.flush()


def _reader_is_gone() -> bool:
    """Tell whether stdout is a pipe without a reader, as after `| head -1`."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
    except (AttributeError, OSError, ValueError):  # the platform has no poll, or stdout no file
        return False


def _clock(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, timezone.utc).strftime("%H:%M:%SZ")


def _line(status: ChainStatus) -> str:
    """Format a change for a log; the tag comes last, since it may hold any characters."""
    cells = screen.cells(status)
    start = f"{_clock(status.now)}  {cells['STATUS']:<7}  {cells['DONE']:>6}  {cells['UNITS']}"
    reason = f": {cells['REASON']}" if cells["REASON"] else ""
    return f"{start}  {cells['TAG']}{reason}"


def _draw(update: WatchUpdate, error: str, width: int, height: int, backlog: str = "") -> Group:
    chains = [*update.snapshot.chains, *update.ended]
    room = max(1, height - _OTHER_LINES - bool(backlog))
    parts: list[Text | Table] = [_head(update)]
    if chains or update.not_found:
        parts.append(_table(chains[:room], update.not_found, width))
    if hidden := len(chains[room:]):
        parts.append(Text(f"and {hidden:,} more: enlarge the terminal", style="dim"))
    if backlog:
        parts.append(Text(f"in the queues: {backlog}", style="dim", no_wrap=True))
    if error:
        parts.append(Text(f"retrying: {error}", style="red", no_wrap=True))
    return Group(*parts)


def _head(update: WatchUpdate) -> Text:
    snapshot, ended, absent = update.snapshot, len(update.ended), len(update.not_found)
    count = len(snapshot.chains)
    if update.run and update.counts:
        text = summary(update.counts, update.run)
    elif update.counts:
        text = f"{ended} of {count + ended + absent} ended"
        text += f", {absent} do not exist yet" if absent else ""
    elif not count:
        text = "no unfinished chain has a deadline"
    else:
        text = plural(count, "unfinished chain")
        text += f" of {update.run.name}" if update.run else ""
        text += " with the earliest deadlines" if snapshot.more else ""
    head = Text(printable(text), style="bold", no_wrap=True, overflow="ellipsis")
    for number, what in (
        (snapshot.event_pending, "pending event"),
        (len(snapshot.invalid), "invalid item"),
    ):
        if number:
            head.append(f", {plural(number, what)}", style="red")
    return head.append(f"   {_clock(snapshot.at)}   Ctrl-C quits", style="not bold dim")


def _table(chains: list[ChainStatus], not_found: tuple[str, ...], width: int) -> Table:
    # Least width of the terminal, head, options. The time left is always there, and never cut.
    columns: tuple[tuple[int, str, dict[str, Any]], ...] = (
        (0, "TAG", {"ratio": 1, "min_width": 5}),
        (0, "STATUS", {"width": 7}),
        (60, "", {"width": 24 if width >= 90 else 10}),
        (40, "DONE", {"justify": "right", "width": 6}),
        (90, "UNITS", {"justify": "right"}),
        (90, "AGE", {"justify": "right"}),
        (0, "TIME LEFT", {"justify": "right"}),
    )
    # The terminal's echo of Ctrl-C must fit behind the last line, or the screen scrolls.
    table = Table(box=None, pad_edge=False, header_style="bold", width=max(20, width - 3))
    shown = {head: options for least, head, options in columns if width >= least}
    for head, options in shown.items():
        table.add_column(head, no_wrap=True, **options)
    for status in chains:
        row = _row(status)
        table.add_row(*(row[head] for head in shown))
    for tag in not_found:
        table.add_row(Text(printable(tag)), Text("-", style="dim"))
    return table


def _row(status: ChainStatus) -> dict[str, RenderableType]:
    cells = screen.cells(status)
    colour = screen.STATUS_COLOURS[status.chain.status]
    row: dict[str, RenderableType] = {h: Text(printable(cell)) for h, cell in cells.items()}
    bar = ProgressBar(100, status.percent or 0, complete_style=colour, finished_style="green")
    left = Text(cells["TIME LEFT"], style=_URGENCY_COLOURS[status.urgency])
    if status.deadline is None and not status.chain.final:
        left = Text("no deadline", style="dim")
    row["STATUS"] = Text(cells["STATUS"], style=colour)
    return {**row, "": "" if status.percent is None else bar, "TIME LEFT": left}
