"""The demo's output: the progress, line by line, and the results."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from demo.loss import LostWord
from xorack.core.text import printable

_SHOWN_LINES = 20
_SECONDS_BETWEEN_LINES = 2.0


class Display:
    """The progress in lines, one for each change; several threads call it."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._begun = time.monotonic()
        self._lock = threading.Lock()
        self._printed_at = -_SECONDS_BETWEEN_LINES

    def begin(self, step: str, doing: str) -> None:
        self._print(f"{step}: {doing} ...")

    def end(self, step: str, result: str) -> None:
        self._print(f"{step}: {result}")

    def chains(self, ended: Counter[str], total: int) -> None:
        now = time.monotonic()
        if ended.total() == total or now - self._printed_at >= _SECONDS_BETWEEN_LINES:
            self._printed_at = now
            but = f", {ended['failed']:,} failed" if ended["failed"] else ""
            self._print(f"chains: {ended['acked']:,} of {total:,} acked{but}")

    def _print(self, text: str) -> None:
        with self._lock:
            seconds = time.monotonic() - self._begun
            self._out.print(Text(f"{seconds:6.1f} s  {printable(text)}"))


@dataclass(frozen=True)
class Result:
    """The results of the demo."""

    split: Mapping[str, Any]  # summaries of the jobs
    count: Mapping[str, Any]
    acked: int  # files whose chain is acked with an event
    unacked: Sequence[tuple[str, str, str]]
    """Tag, status and reason of each other chain, if it is not one with lost words."""
    named: Sequence[LostWord]  # the lost words that the failed events name
    usage: Mapping[str, int]
    counts: Path  # the folder with the counts, in Parquet
    commonest: Sequence[tuple[str, int]]
    seconds: Mapping[str, float]  # of `set up`, of the jobs by name, and of `all`

    @property
    def uncounted(self) -> int:
        """Words of readable files that were neither lost nor counted: 0 if all went well."""
        return int(self.split["words"] - self.count["words"] - self.count["missing"])

    @property
    def ok(self) -> bool:
        return not self.unacked and not self.uncounted


def print_result(out: Console, result: Result) -> None:
    """Print the table, the commonest words, the lost ones and the chains that are not acked."""
    out.print()
    for name, value, style in _rows(result):
        out.print(Text.assemble((f"{name:<20}", "bold"), (value, style)))
    width = len(f"{result.commonest[0][1]:,}") + 2 if result.commonest else 0
    words = [f"{count:>{width},}  {printable(word)}" for word, count in result.commonest]
    _print_list(out, "commonest words", words, len(words))
    named, lost = len(result.named), result.count["missing"]
    title = f"lost words: the failed events name {named:,} of {lost:,}"
    _print_list(out, title, map(_lost_word, result.named), named)
    unacked = (f"  {printable(': '.join(chain))}" for chain in result.unacked)
    _print_list(out, "not acked", unacked, len(result.unacked), style="bold red")


def _rows(result: Result) -> Iterator[tuple[str, str, str]]:
    used, count, files = result.usage, result.count, result.split["files"]
    parts = [f"{name} {spent:.1f}" for name, spent in result.seconds.items() if name != "all"]
    too_few = f": {result.uncounted:,} too few" if result.uncounted else ""
    lost = f": {count['missing']:,} lost" if count["missing"] else ""
    words = f"{count['words']:,} ({count['distinct']:,} different){lost}{too_few}"
    acked = f"{result.acked:,} of {files:,}"
    yield "files", f"{files:,}", ""
    yield "words", words, "red" if too_few else ""
    yield "chains acked", acked, "red" if result.unacked else "green"
    yield "SQS messages", f"{used['messages']:,}", ""
    yield "Lambda invocations", f"{used['invocations']:,}", ""
    if used["errors"]:
        yield "Lambda errors", f"{used['errors']:,}", ""
    yield "DynamoDB writes", f"{used['writes']:,}", ""
    yield "seconds", f"{result.seconds['all']:.1f} ({', '.join(parts)})", ""
    yield "counts", _relative(result.counts), ""


def _lost_word(word: LostWord) -> str:
    place = f"{word.file}, position {word.position:,}"
    return f"  {word.id}  {printable(place)}: {printable(word.word)}"


def _print_list(
    out: Console, title: str, lines: Iterable[str], total: int, style: str = "bold"
) -> None:
    shown = list(islice(lines, _SHOWN_LINES))
    if shown:
        out.print(Text(f"\n{title}", style=style))
    for line in shown:
        out.print(Text(line))
    if total > len(shown) > 0:
        out.print(Text(f"  and {total - len(shown):,} more"))


def _relative(path: str | Path) -> str:
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
