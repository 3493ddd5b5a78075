"""How the demo looks: live on a terminal, line by line elsewhere, and the table at its end."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from demo.losing import Repair
from demo.run import Options, Result, Screen, demo
from demo.watching import Seen
from xorack.cli import screen
from xorack.ops.text import printable

__all__ = ["run_demo"]

_SHOWN_UNACKED = 20
_SHOWN_LOST = 20
_LINES_APART_SECONDS = 2.0


def run_demo(options: Options) -> int:
    """Run the demo and print what it finds.

    Args:
        options: What the user asks for.

    Returns:
        The exit status: 0, or 1 if a file was not acked or a word not counted.
    """
    out = screen.console()
    if screen.can_redraw(out):
        with _LiveScreen(out) as live:
            result = demo(options, live)
    else:
        result = demo(options, _PlainScreen())
    _print_result(out, result)
    return 0 if result.ok else 1


class _PlainScreen(Screen):
    """One line for each thing that happened, with the seconds since the start."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._lock = threading.Lock()
        self._told = Seen()
        self._told_at = 0.0

    def _say(self, text: str) -> None:
        # Whoever reads a pipe or a log wants to see it as it happens.
        print(f"{time.monotonic() - self._begun:6.1f} s  {text}", flush=True)

    def begin(self, step: str, doing: str) -> None:
        with self._lock:
            self._say(f"{step}: {doing} ...")

    def end(self, step: str, done: str) -> None:
        with self._lock:
            self._say(f"{step}: {done}")

    def chains(self, seen: Seen, total: int) -> None:
        with self._lock:
            now = time.monotonic()
            before = self._told
            if seen == before:
                return
            # A line now and then, and one each time that something is complete.
            complete = (seen.opened == total and before.opened != total) or seen.ended == total
            if now - self._told_at < _LINES_APART_SECONDS and not complete:
                return
            self._told, self._told_at = seen, now
            failed = f", {seen.failed:,} failed" if seen.failed else ""
            self._say(f"chains: {seen.opened:,} of {total:,} opened, {seen.acked:,} acked{failed}")


class _LiveScreen(Screen):
    """Steps with a spinner, then what came of them; and two bars for the chains."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._lock = threading.RLock()
        self._steps: dict[str, tuple[bool, str, float]] = {}
        self._spinner = Spinner("dots", style="cyan")
        self._bars = Progress(
            TextColumn("  {task.description:<10}"),
            BarColumn(bar_width=40),
            TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
            TextColumn("[red]{task.fields[note]}"),
        )
        self._opened: TaskID | None = None
        self._acked: TaskID | None = None
        self._live = Live(get_renderable=self._render, console=out, refresh_per_second=10)

    def __enter__(self) -> _LiveScreen:
        self._live.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._spinner = Spinner("dots")
        with self._lock:
            self._stopped = kind is not None
            self._live.refresh()
        self._live.stop()

    def begin(self, step: str, doing: str) -> None:
        with self._lock:
            self._steps[step] = (False, doing, time.monotonic())

    def end(self, step: str, done: str) -> None:
        with self._lock:
            self._steps[step] = (True, done, time.monotonic())

    def chains(self, seen: Seen, total: int) -> None:
        with self._lock:
            if self._opened is None:
                self._opened = self._bars.add_task("opened", total=total, note="")
                self._acked = self._bars.add_task("acked", total=total, note="")
            assert self._acked is not None
            failed = f"{seen.failed:,} failed" if seen.failed else ""
            self._bars.update(self._opened, completed=seen.opened, total=total)
            self._bars.update(self._acked, completed=seen.acked, total=total, note=failed)

    _stopped = False

    def _render(self) -> Table:
        with self._lock:
            grid = Table.grid(padding=(0, 1))
            for column in (1, 9):
                grid.add_column(width=column, no_wrap=True)
            grid.add_column(overflow="ellipsis", no_wrap=True)
            for step, (done, text, since) in self._steps.items():
                sign: Text | Spinner
                if done:
                    sign = Text("✓", style="green")
                elif self._stopped:
                    sign = Text("✗", style="red")
                else:
                    sign = self._spinner
                took = "" if done else f" … {time.monotonic() - since:.0f} s"
                grid.add_row(sign, Text(step, style="bold"), Text(printable(text) + took))
            outer = Table.grid()
            outer.add_row(grid)
            if self._opened is not None:
                outer.add_row(self._bars)
            return outer


def _print_result(out: Console, result: Result) -> None:
    """Print the table, the commonest words, and the chains that were not acked."""
    seconds = result.seconds
    parts = ", ".join(
        f"{name} {seconds[name]:.1f}"
        for name in ("set up", "split", "count", "repair")
        if name in seconds
    )
    uncounted = f": {result.uncounted:,} too few" if result.uncounted else ""
    by_repair = ""
    if result.repair is not None and result.repair.attempts:
        by_repair = f", {len(result.repair.attempts):,} by their repair"
    rows = [
        ("files", f"{result.files:,}"),
        ("words", f"{result.words:,} ({result.distinct:,} different){uncounted}"),
        ("chains acked", f"{result.acked:,} of {result.files:,}{by_repair}"),
        ("SQS messages", f"{result.messages:,}"),
        ("Lambda invocations", f"{result.invocations:,}"),
        ("DynamoDB writes", f"{result.writes:,}"),
        ("seconds", f"{seconds['all']:.1f} ({parts})"),
        ("counts", _shown(result.counts)),
    ]
    if result.errors:
        rows.insert(5, ("Lambda errors", f"{result.errors:,}"))
    out.print()
    for name, value in rows:
        style = ""
        if name == "chains acked":
            style = "red" if result.unacked else "green"
        elif name == "words" and result.uncounted:
            style = "red"
        out.print(Text.assemble((f"{name:<20}", "bold"), (value, style)))
    if result.commonest:
        out.print()
        out.print(Text("commonest words", style="bold"))
        most = len(f"{result.commonest[0][1]:,}")
        for word, count in result.commonest:
            out.print(Text(f"{count:>{most + 2},}  {printable(word)}"))
    if result.repair is not None and result.repair.lost:
        _print_lost(out, result.repair)
    if result.unacked:
        out.print()
        out.print(Text("not acked", style="bold red"))
        for one in result.unacked[:_SHOWN_UNACKED]:
            out.print(Text(f"  {printable(one.tag)}: {one.status}: {printable(one.why)}"))
        if (more := len(result.unacked) - _SHOWN_UNACKED) > 0:
            out.print(Text(f"  and {more:,} more"))


def _print_lost(out: Console, repair: Repair) -> None:
    """Print the words that were lost, as the failed chains' events led to them."""
    out.print()
    out.print(Text("lost, named by the failed chains' events, counted by the repair", style="bold"))
    for one in repair.lost[:_SHOWN_LOST]:
        place = f"{_shown(Path(one.path))}, position {one.position:,}"
        out.print(Text(f"  {one.id}  {printable(place)}: {printable(one.word)}"))
    if (more := repair.missing - min(len(repair.lost), _SHOWN_LOST)) > 0:
        out.print(Text(f"  and {more:,} more"))


def _shown(path: Path) -> str:
    """A path, from here if it is below."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
