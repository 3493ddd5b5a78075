"""The demo's output: live on a terminal, line by line elsewhere, and the table of results."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn
from rich.progress import Progress as Bars
from rich.text import Text

from demo.progress import Progress
from demo.run import Options, Result, Screen, demo
from xorack.cli import screen
from xorack.ops.text import printable

__all__ = ["run_demo"]

_SHOWN_LINES = 20
_SECONDS_BETWEEN_LINES = 2.0


def run_demo(options: Options) -> int:
    """Run the demo and print its results.

    Returns:
        The exit status: 0, or 1 if a chain is not acked or a word not counted.
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
    """One line for each change, with the seconds since the start."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._lock = threading.Lock()
        self._printed = Progress()
        self._printed_at = 0.0

    def _print(self, text: str) -> None:
        print(f"{time.monotonic() - self._begun:6.1f} s  {text}", flush=True)

    def begin(self, step: str, doing: str) -> None:
        with self._lock:
            self._print(f"{step}: {doing} ...")

    def end(self, step: str, done: str) -> None:
        with self._lock:
            self._print(f"{step}: {done}")

    def chains(self, progress: Progress, total: int) -> None:
        with self._lock:
            before, now = self._printed, time.monotonic()
            complete = progress.ended == total or (progress.opened == total != before.opened)
            early = now - self._printed_at < _SECONDS_BETWEEN_LINES and not complete
            if progress == before or early:
                return
            self._printed, self._printed_at = progress, now
            opened, acked, failed = progress.opened, progress.acked, progress.failed
            but = f", {failed:,} failed" if failed else ""
            self._print(f"chains: {opened:,} of {total:,} opened, {acked:,} acked{but}")


class _LiveScreen(Screen):
    """A line for each finished step, spinners for the running ones, two bars for the chains."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._running: dict[str, TaskID] = {}
        self._steps = Bars(
            SpinnerColumn(style="cyan"),
            TextColumn("{task.description:<9}", style="bold"),
            TextColumn("{task.fields[doing]} … {task.elapsed:.0f} s", markup=False),
        )
        self._bars = Bars(
            TextColumn("  {task.description:<10}"),
            BarColumn(bar_width=40),
            TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
            TextColumn("{task.fields[note]}", style="red"),
        )
        self._chains: list[TaskID] = []
        self._live = Live(Group(self._steps, self._bars), console=out, refresh_per_second=10)

    def __enter__(self) -> _LiveScreen:
        self._live.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            for step in list(self._running):
                self._end(step, "", Text("✗", style="red"))
        self._live.stop()

    def begin(self, step: str, doing: str) -> None:
        with self._lock:
            if step in self._running:
                self._steps.remove_task(self._running[step])
            self._running[step] = self._steps.add_task(step, doing=printable(doing))

    def end(self, step: str, done: str) -> None:
        self._end(step, done, Text("✓", style="green"))

    def _end(self, step: str, text: str, sign: Text) -> None:
        with self._lock:
            self._steps.remove_task(self._running.pop(step))
        line = Text.assemble(sign, " ", (f"{step:<9}", "bold"), " ", printable(text))
        self._out.print(line, overflow="ellipsis", no_wrap=True)

    def chains(self, progress: Progress, total: int) -> None:
        with self._lock:
            if not self._chains:
                self._chains = [self._bars.add_task(name, note="") for name in ("opened", "acked")]
            opened, acked = self._chains
            note = f"{progress.failed:,} failed" if progress.failed else ""
            self._bars.update(opened, completed=progress.opened, total=total)
            self._bars.update(acked, completed=progress.acked, total=total, note=note)


def _print_result(out: Console, result: Result) -> None:
    """Print the table, the commonest words, the lost ones and the chains that are not acked."""
    out.print()
    for name, value, style in _rows(result):
        out.print(Text.assemble((f"{name:<20}", "bold"), (value, style)))
    if result.commonest:
        width = len(f"{result.commonest[0][1]:,}") + 2
        words = [f"{count:>{width},}  {printable(word)}" for word, count in result.commonest]
        _print_list(out, "commonest words", words, len(words))
    if result.repair and result.repair["named"]:
        title = "lost, named by the failed chains' events, counted by the repair"
        words = [
            f"  {word['id']}  {printable(_relative(word['path']))},"
            f" position {word['position']:,}: {printable(word['word'])}"
            for word in result.repair["named"][:_SHOWN_LINES]
        ]
        _print_list(out, title, words, result.repair["missing"])
    if result.unacked:
        chains = [
            f"  {printable(chain.tag)}: {chain.status}: {printable(chain.reason)}"
            for chain in result.unacked[:_SHOWN_LINES]
        ]
        _print_list(out, "not acked", chains, len(result.unacked), style="bold red")


def _rows(result: Result) -> Iterator[tuple[str, str, str]]:
    """Yield the table's rows: name, value and style."""
    seconds, used = result.seconds, result.usage
    steps = ("set up", "split", "count", "repair")
    parts = ", ".join(f"{step} {seconds[step]:.1f}" for step in steps if step in seconds)
    too_few = f": {result.uncounted:,} too few" if result.uncounted else ""
    repaired = len(result.repair["repaired"]) if result.repair else 0
    by_repair = f", {repaired:,} by their repair" if repaired else ""
    words = f"{result.words:,} ({result.distinct:,} different){too_few}"
    acked = f"{result.acked:,} of {result.files:,}{by_repair}"
    yield "files", f"{result.files:,}", ""
    yield "words", words, "red" if too_few else ""
    yield "chains acked", acked, "red" if result.unacked else "green"
    yield "SQS messages", f"{used.messages:,}", ""
    yield "Lambda invocations", f"{used.invocations:,}", ""
    if used.errors:
        yield "Lambda errors", f"{used.errors:,}", ""
    yield "DynamoDB writes", f"{used.writes:,}", ""
    yield "seconds", f"{seconds['all']:.1f} ({parts})", ""
    yield "counts", _relative(result.counts), ""


def _print_list(
    out: Console, title: str, lines: Sequence[str], total: int, style: str = "bold"
) -> None:
    out.print()
    out.print(Text(title, style=style))
    for line in lines:
        out.print(Text(line))
    if total > len(lines):
        out.print(Text(f"  and {total - len(lines):,} more"))


def _relative(path: str | Path) -> str:
    """Return the path relative to here if it is below."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
