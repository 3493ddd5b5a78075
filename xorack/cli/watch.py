"""How watching looks: a live table on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import errno
import select
import sys
import time
from datetime import datetime, timezone

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from xorack.cli import screen
from xorack.cli.error_messages import explain, printable
from xorack.core.event import rfc3339
from xorack.core.ports import Unavailable
from xorack.ops.status import ChainStatus
from xorack.ops.watch import Look, Watcher

__all__ = ["run_watch"]

_AROUND = 4
"""Lines of the screen that are not chains."""
_SOON_MS = 600_000


def run_watch(watcher: Watcher, interval: float, *, as_json: bool) -> int:
    """Watch until all named chains have ended; without end where none are named.

    Args:
        watcher: Looks at the chains.
        interval: Seconds between looks.
        as_json: Whether a program reads it.

    Returns:
        The exit status: 1 if one of the named chains failed.

    Raises:
        KeyboardInterrupt: Somebody has seen enough.
    """
    out = screen.console()
    look = watcher.look()
    if as_json or not screen.can_redraw(out):
        return _watch_lines(watcher, look, interval, as_json=as_json)
    with Live(console=out, auto_refresh=False, transient=False) as live:
        trouble = ""
        while True:
            live.update(_Screen(look, bool(watcher.tags), trouble), refresh=True)
            if _over(watcher, look):
                return _status(look)
            time.sleep(interval)
            try:
                look, trouble = watcher.look(), ""
            except Unavailable as error:
                trouble = explain(error)


def _watch_lines(watcher: Watcher, look: Look, interval: float, *, as_json: bool) -> int:
    told: set[str] = set()
    while True:
        for one in look.changed:
            if as_json:
                screen.print_json({"at": rfc3339(look.at), **one.to_json()})
            else:
                screen.say(_line(one, look.at))
        news = [(tag, "not there yet") for tag in look.missing]
        news += [(tag, f"cannot be read: {why}") for tag, why in look.unreadable]
        for tag, what in news:
            if tag not in told:
                told.add(tag)
                screen.say(f"{printable(tag)}: {printable(what)}", error=True)
        # What reads us reads as it happens.
        sys.stdout.flush()
        if _over(watcher, look):
            return _status(look)
        while True:
            time.sleep(interval)
            if _nobody_reads():
                raise BrokenPipeError(errno.EPIPE, "nobody reads")
            try:
                look = watcher.look()
                break
            except Unavailable as error:
                screen.say(f"trying again: {printable(explain(error))}", error=True)


def _nobody_reads() -> bool:
    """Whether stdout is a pipe whose reader is gone: `| head -1` waits for no further line."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
    except (AttributeError, OSError, ValueError):  # no such call here, or no file
        return False


def _over(watcher: Watcher, look: Look) -> bool:
    return bool(watcher.tags) and not look.chains and not look.missing


def _status(look: Look) -> int:
    return int(bool(look.unreadable) or any(one.chain.status == "failed" for one in look.ended))


def _clock(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, timezone.utc).strftime("%H:%M:%SZ")


def _line(one: ChainStatus, at: int) -> str:
    """What changed, for people who read a log: the tag comes last, it may hold anything."""
    chain = one.chain
    reason = chain.reason or chain.failing
    return "  ".join(
        (
            _clock(at),
            f"{chain.status:<7}",
            f"{screen.percent(one):>6}",
            f"{chain.finished:,}/{chain.started:,}",
            printable(chain.tag) + (f": {printable(reason)}" if reason else ""),
        )
    )


class _Screen:
    """The table, as large as the terminal is when it is drawn."""

    def __init__(self, look: Look, named: bool, trouble: str) -> None:
        self._look = look
        self._named = named
        self._trouble = trouble

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        look = self._look
        room = max(1, console.size.height - _AROUND)
        going = look.chains[:room]
        ended = look.ended[: max(0, room - len(going))]
        hidden = len(look.chains) + len(look.ended) - len(going) - len(ended)
        parts: list[Text | Table] = [self._head()]
        if going or ended or look.missing:
            parts.append(_table([*going, *ended], look, console.size.width))
        if hidden:
            parts.append(Text(f"and {hidden:,} more: the terminal is too low", style="dim"))
        if self._trouble:
            parts.append(Text(f"trying again: {self._trouble}", style="red", no_wrap=True))
        yield Group(*parts)

    def _head(self) -> Text:
        look = self._look
        count = len(look.chains)
        if self._named:
            text = f"{len(look.ended)} of {count + len(look.ended) + len(look.missing)} ended"
            if look.missing:
                text += f", {len(look.missing)} not there yet"
        elif not count:
            text = "no unfinished chain that has a deadline"
        else:
            text = f"{count} unfinished chain{'s' if count > 1 else ''}"
            text += ", those due first" if look.more else ""
        head = Text(text, style="bold", no_wrap=True, overflow="ellipsis")
        if look.event_pending:
            head.append(f", {look.event_pending} events owed", style="red")
        if look.unreadable:
            head.append(f", {len(look.unreadable)} items that are no chains", style="red")
        return head.append(f"   {_clock(look.at)}   Ctrl-C ends", style="not bold dim")


def _table(chains: list[ChainStatus], look: Look, width: int) -> Table:
    wide, barred, told = width >= 90, width >= 60, width >= 40
    # The cursor waits at the end of the last line. The terminal's echo of Ctrl-C must fit behind
    # it, or the screen moves up by a line and the last drawing misses its place.
    table = Table(box=None, pad_edge=False, header_style="bold", width=max(20, width - 3))
    table.add_column("TAG", ratio=1, no_wrap=True, overflow="ellipsis", min_width=5)
    table.add_column("STATUS", no_wrap=True, width=7)
    if barred:
        table.add_column("", width=24 if wide else 10)
    if told:
        table.add_column("DONE", justify="right", no_wrap=True, width=6)
    if wide:
        table.add_column("UNITS", justify="right", no_wrap=True)
        table.add_column("AGE", justify="right", no_wrap=True)
    # The last to go: "1 h" of "1 h 20 min" would be believed.
    table.add_column("TIME LEFT", justify="right", no_wrap=True)
    for one in chains:
        chain = one.chain
        cells: list[Text | ProgressBar] = [
            Text(printable(chain.tag)),
            Text(chain.status, style=screen.colour(chain.status)),
            *([_bar(one)] if barred else []),
            *([Text(screen.percent(one))] if told else []),
        ]
        if wide:
            age = "?" if one.age_ms is None else screen.span(one.age_ms)
            cells += [Text(f"{chain.finished:,}/{chain.started:,}"), Text(age)]
        cells.append(_left(one, look.at))
        table.add_row(*cells)
    for tag in look.missing:
        empty = [Text("")] * (len(table.columns) - 2)
        table.add_row(Text(printable(tag)), Text("-", style="dim"), *empty)
    return table


def _bar(one: ChainStatus) -> ProgressBar | Text:
    if one.percent is None:
        return Text("")
    style = screen.colour(one.chain.status) or "cyan"
    return ProgressBar(100, one.percent, complete_style=style, finished_style="green")


def _left(one: ChainStatus, at: int) -> Text:
    if one.chain.final:
        return Text("")
    if one.deadline is None:
        return Text("no deadline", style="dim")
    left = one.deadline - at
    if left <= 0:
        return Text("passed", style="red")
    return Text(screen.span(left // 1000 * 1000), style="yellow" if left < _SOON_MS else "")
