"""The demo's output: a sentence for each step, a bar while it runs, and the results."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from demo.loss import LostWord
from xorack.core.text import plural, printable

_SHOWN_LINES = 20
_SILENCE_SECONDS = 10.0
"""Without a terminal, a line after this time says which step is running."""
_FINE_PERCENT = 99.9
"""The share of rows that a check of row counts accepts. Any check has to tolerate late rows."""
_NEXT = """\
Now your own code: start the same AWS to stay, and let a shell's programs find it.
  .venv/bin/xorack local start
  eval "$(.venv/bin/xorack local env)"
README.md has the five lines of a producer and a worker; docs/spark.md has those of Spark jobs."""


class Display:
    """The progress: a line for each completed step, and a bar for the running step."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._begun = time.monotonic()
        bar = (TextColumn("{task.fields[doing]}"), BarColumn(30))
        self._bar = Progress(*bar, console=out, transient=True, disable=not out.is_terminal)
        self._task = self._bar.add_task("", total=None, doing="")

    def __enter__(self) -> Display:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def introduce(self, text: str) -> None:
        """Print a paragraph in lines of the terminal's width."""
        self._out.print(Text(printable(text)), soft_wrap=not self._out.is_terminal)
        self._out.print()

    def say(self, step: str, text: str) -> None:
        seconds = time.monotonic() - self._begun
        self._out.print(Text(f"{seconds:6.1f} s  {step:<6} {printable(text)}"))

    @contextmanager
    def doing(self, step: str, text: str) -> Iterator[None]:
        """Show the running step until the block ends."""
        self._bar.update(self._task, doing=text, total=None, completed=0)
        ended = threading.Event()
        thread = threading.Thread(target=self._break_silence, args=(step, text, ended), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def files(self, acked: int, failed: int, total: int) -> None:
        """Show in the bar how many files have ended."""
        doing = f"{acked:,} of {total:,} files acked"
        self._bar.update(self._task, doing=doing, total=total, completed=acked + failed)

    def _break_silence(self, step: str, text: str, ended: threading.Event) -> None:
        while not ended.wait(_SILENCE_SECONDS):
            if not self._out.is_terminal:
                self.say(step, f"{text} ...")


@dataclass(frozen=True)
class Result:
    """The results of the demo."""

    split: Mapping[str, Any]
    """The summary of the first job; `count` is the summary of the second."""
    count: Mapping[str, Any]
    acked: int
    """The number of files whose chain is acked and has an event."""
    unacked: Sequence[tuple[str, str]]
    """The tags and reasons of the other chains, without those that have lost words."""
    named: Sequence[LostWord]
    """The lost words that the failed events name."""
    rows: int
    """The number of rows that were on disk between the jobs."""
    event: Mapping[str, Any]
    counts: str

    @property
    def uncounted(self) -> int:
        """The number of words of readable files that are neither counted nor deleted."""
        return int(self.split["words"] - self.count["words"] - self.count["missing"])

    @property
    def is_good(self) -> bool:
        is_named = len(self.named) == self.count["missing"]
        return is_named and not self.unacked and not self.uncounted


def print_result(out: Console, result: Result) -> None:
    """Print the result of the counts, the losses, an event, and the next steps."""
    files, count = result.split["files"], result.count
    failed = files - result.acked
    out.print()
    style = "bold green" if not failed else "bold yellow" if result.is_good else "bold red"
    acked = f"{result.acked:,} of {files:,} files acked"
    ending = f", {failed:,} failed" if failed else f": all {count['words']:,} words are counted"
    out.print(Text(acked + ending, style=style))
    out.print(Text(f"the counts of {plural(count['distinct'], 'word')}: {result.counts}"))
    if result.uncounted:
        out.print(Text(f"{result.uncounted:,} words are neither counted nor missing", "bold red"))
    if result.count["missing"]:
        _print_losses(out, result)
    for tag, reason in result.unacked[:_SHOWN_LINES]:
        out.print(Text(f"not acked: {printable(tag)}: {printable(reason)}", style="red"))
    if (more := len(result.unacked) - _SHOWN_LINES) > 0:
        out.print(Text(f"and {more:,} more"))
    if result.event:
        out.print(Text("\nthe event of the run, as EventBridge delivers it", style="bold"))
        out.print(Text(json.dumps(result.event, indent=2)))
    out.print(Text(f"\n{_NEXT}"))


def _print_losses(out: Console, result: Result) -> None:
    """Print how other checks and xorack report the loss."""
    share = 100 * result.rows / result.split["words"]
    judgement = "looks fine" if share > _FINE_PERCENT else "is too low, and names no row"
    rows = f"{result.rows:,} of {result.split['words']:,} rows, {share:.4f} %"
    lost = plural(result.count["missing"], "word")
    out.print()
    for check, says in (
        ("exit status", "looks fine: both Spark jobs succeeded"),
        ("row count", f"{judgement}: {rows}"),
        ("xorack", f"{lost} lost; the events of the failed files name {len(result.named):,}"),
    ):
        out.print(Text.assemble((f"{check:<13}", "bold"), says))
    if not result.named:
        return
    out.print()
    words = result.named[:_SHOWN_LINES]
    cells = [
        (printable(lost_word.word), f"{printable(lost_word.file)}, word {lost_word.position:,}")
        for lost_word in words
    ]
    wide, long = (max(map(len, column)) for column in zip(*cells, strict=True))
    for (word, place), lost_word in zip(cells, words, strict=True):
        out.print(Text(f"  {word:<{wide}}  {place:<{long}}  {lost_word.mistake}"))
    if len(result.named) > _SHOWN_LINES:
        out.print(Text(f"and {len(result.named) - _SHOWN_LINES:,} more"))
