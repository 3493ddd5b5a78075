"""Waiting for the end of chains, and the output of `xorack wait`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from xorack.cli import screen
from xorack.cli.error_messages import explain
from xorack.core.errors import UnavailableError
from xorack.ops.run import ChainCounts, Run
from xorack.ops.text import plural, printable
from xorack.ops.watch import ChainWatcher, WatchUpdate

__all__ = ["exit_status", "poll_to_end", "print_summary", "run_wait", "say_retrying", "summary"]

_TIMED_OUT = 3
_PAUSE = 9
"""Least length of a pause, in lengths of the poll before: reads take a tenth of the time."""


def run_wait(
    watcher: ChainWatcher, interval_seconds: float, timeout_seconds: float, *, as_json: bool
) -> int:
    """Wait until the watched chains have ended, print a summary and return the exit status.

    `interval_seconds` is the least time between polls.
    """
    said: set[str] = set()

    def show(update: WatchUpdate, error: str) -> None:
        say_retrying(error)
        for tag in update.not_found:
            if tag not in said:
                screen.say(f"{printable(tag)} does not exist yet: waiting for it", error=True)
        said.update(update.not_found)

    update = poll_to_end(watcher, interval_seconds, show, timeout_seconds)
    print_summary(update, as_json=as_json)
    if not update.done:
        screen.say("timed out", error=True)
    return exit_status(update)


def poll_to_end(
    watcher: ChainWatcher,
    interval_seconds: float,
    show: Callable[[WatchUpdate, str], None],
    timeout_seconds: float = math.inf,
) -> WatchUpdate:
    """Poll and show until the end or the time-out, and return the last update, with its counts.

    After a failed poll, show the previous update with the error. The first and the last poll raise
    it instead. Times are in seconds.
    """
    update: WatchUpdate | None = None
    error = ""
    give_up = time.monotonic() + timeout_seconds
    while True:
        began = time.monotonic()
        last = began >= give_up
        try:
            update, error = watcher.poll(count=last), ""
        except UnavailableError as unavailable:
            if update is None or last:
                raise
            error = explain(unavailable)
        show(update, error)
        if update.done or last:
            return update
        now = time.monotonic()
        pause = max(interval_seconds, _PAUSE * (now - began))
        time.sleep(max(0.0, min(pause, give_up - now)))


def say_retrying(error: str) -> None:
    """Print why a poll failed, if it did."""
    if error:
        screen.say(f"retrying: {printable(error)}", error=True)


def exit_status(update: WatchUpdate) -> int:
    """Return 0 if all chains are acked, 1 if some failed, 3 if not all have ended."""
    if not update.done:
        return _TIMED_OUT
    return int(update.counts is not None and update.counts.failed > 0)


def print_summary(update: WatchUpdate, *, as_json: bool) -> None:
    """Print the counts in one line, and the first failed chains on stderr, or all as JSON."""
    run, counts = update.run, update.counts
    if counts is None:
        return
    if as_json:
        head = {"run": run and run.name, "ended": update.done}
        screen.print_json({**head, **counts.to_json()})
        return
    screen.say(printable(summary(counts, run)))
    for tag, reason in counts.failures:
        screen.say(f"{printable(tag)}: {printable(reason)}", error=True)
    if more := counts.failed - len(counts.failures):
        screen.say(f"and {more:,} more", error=True)


def summary(counts: ChainCounts, run: Run | None) -> str:
    """Format the counts as one line, for example ``2026-01-31: 2 of 3 chains: 2 acked``."""
    text = f"{run.name}: " if run else ""
    if run and run.chains not in (None, counts.chains):
        text += f"{counts.chains:,} of {plural(run.chains, 'chain')}"
    else:
        text += plural(counts.chains, "chain")
    names = ("acked", "failed", "open", "pending", "invalid", "not_found")
    numbers = [(counts.by_status[name], name.replace("_", " ")) for name in names]
    parts = ", ".join(f"{number:,} {name}" for number, name in numbers if number)
    return f"{text}: {parts}" if parts else text
