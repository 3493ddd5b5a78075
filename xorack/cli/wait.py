"""The command `xorack wait`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import click

from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.cli import screen
from xorack.cli.error_messages import error_text
from xorack.cli.options import (
    Chains,
    Duration,
    Target,
    json_option,
    text_option,
    with_chains,
    with_table,
)
from xorack.core.errors import ArgumentError, TagNotFound, UnavailableError
from xorack.core.text import plural
from xorack.ops.backlog import Backlog
from xorack.ops.log_windows import LogWindow
from xorack.ops.run_chains import ChainCounts, RunChains, count_named
from xorack.ops.snapshot import read_snapshot
from xorack.ops.status import read_status

_TIMED_OUT = 3
_NAMED = 10
"""The most names in a line. JSON has all names."""
_PAUSE = 9
"""The least length of a pause, as a multiple of the last poll, so that polls use little time."""
_Poll = Callable[[bool], ChainCounts | None]
"""Counts the chains. Unless it gets True, it may return None if chains are known as unfinished."""


@click.command(epilog="Example: xorack wait --run 2026-01-31 --chains 5000 --timeout 3600")
@with_chains(
    "The chains whose tags begin with RUN/, instead of TAGs.",
    click.option(
        "--chains",
        type=click.IntRange(min=0),
        help="The number of the run's chains.  [default: those that exist]",
    ),
)
@click.option(
    "--interval",
    "interval_seconds",
    type=Duration(min=0.1, max=3600),
    default=2.0,
    metavar="TIME",
    help="Seconds between polls, or more if a poll takes long.",
)
@click.option(
    "--timeout",
    "timeout_seconds",
    type=Duration(min=0),
    default=math.inf,
    show_default=False,
    metavar="TIME",
    help="Give up after this time: seconds, or 30m, 2h, 1d; 0 polls once.  [default: never]",
)
@text_option("--window", metavar="RUN/LOG/WINDOW", help="A window over a log, instead of TAGs.")
@json_option
@with_table
def wait(
    chains: Chains,
    window: str | None,
    as_json: bool,
    target: Target,
    interval_seconds: float,
    timeout_seconds: float,
) -> int:
    """Wait until chains have ended, then print their counts.

    For schedulers, it prints one line, or with --json one JSON object. It names the first failed
    chains with their reasons, on stderr or in the object.

    With TAGs, it waits until these chains have ended. A chain need not exist yet.

    With --run and --chains, it waits until so many chains of the run have ended. More chains are an
    error. Without --chains, it waits until the run has chains and all of them have ended. This is
    not exact, because messages in the queue may create more chains.

    With --window, it waits until the window is complete. It names the partitions that lag.

    Exit status: 0 if all are acked; 1 if a chain failed, for missing rows, or after an error; 3
    after the time-out.
    time-out.
    """
    tags, run = chains
    if bool(tags) + (run is not None) + (window is not None) != 1:
        raise click.UsageError("expected one of TAG, --run and --window")
    if window is not None and window.count("/") < 2:
        raise ArgumentError("window", window, "a run, a log and a window: RUN/LOG/WINDOW")
    store, queues = target.open(), target.queues()
    named = tags if window is None else (window,)
    poll = _poll_run(store, run) if run else _poll_named(store, named, queues)
    counts, ended = _poll_to_end(poll, run, interval_seconds, timeout_seconds)
    if window is not None:
        rows_are_missing = _print_window(store, window, as_json=as_json)
    else:
        rows_are_missing = False
        _print_counts(counts, run, ended, as_json=as_json)
    if not ended:
        screen.say("timed out", error=True)
        screen.say_backlog(queues())
        return 1 if rows_are_missing else _TIMED_OUT
    return int(counts.failed > 0)


def _poll_named(
    store: DynamoDBStore, tags: tuple[str, ...], queues: Callable[[], Backlog | None]
) -> _Poll:
    absent: set[str] = set()

    def poll(_: bool) -> ChainCounts:
        counts = count_named(store, tags)
        if new := [tag for tag in counts.absent if tag not in absent]:
            for tag in new:
                screen.say(f"{tag} does not exist yet: waiting for it", error=True)
            screen.say_backlog(queues())
        absent.update(new)
        return counts

    return poll


def _poll_run(store: DynamoDBStore, run: RunChains) -> _Poll:
    def poll(must_count: bool) -> ChainCounts | None:
        # The index is delayed and lacks chains without a deadline. It only shows unfinished chains.
        unfinished = not must_count and read_snapshot(store, 1, run.prefix).chains
        return None if unfinished else run.count(store)

    return poll


def _poll_to_end(
    poll: _Poll, run: RunChains | None, interval_seconds: float, timeout_seconds: float
) -> tuple[ChainCounts, bool]:
    """Poll until the end or the time-out; return the last counts, and whether all have ended.

    It continues after a failed poll, unless that is the first or the last one.
    """
    polled, give_up = False, time.monotonic() + timeout_seconds
    while True:
        began = time.monotonic()
        last = began >= give_up
        try:
            counts, polled = poll(last), True
            if counts is not None:
                ended = run.has_ended(counts) if run else not counts.unfinished
                if ended or last:
                    return counts, ended
        except UnavailableError as error:
            if not polled or last:
                raise
            screen.say(f"retrying: {error_text(error)}", error=True)
        now = time.monotonic()
        pause = max(interval_seconds, _PAUSE * (now - began))
        time.sleep(max(0.0, min(pause, give_up - now)))


def _print_window(store: DynamoDBStore, tag: str, *, as_json: bool) -> bool:
    """Print the state of a window; return whether it is open and rows are missing."""
    try:
        window = LogWindow(read_status(store, tag))
    except TagNotFound:
        return False
    status = window.status
    if as_json:
        screen.print_json({**status.to_dict(), "lagging": window.lagging})
    else:
        failed, lag = status.reason if status.chain.status == "failed" else "", window.lag(_NAMED)
        text = ", ".join(filter(None, (failed, lag and f"{lag} lag")))
        screen.say(f"{status.chain.tag}: {'complete' if window.state == 'complete' else text}")
        if status.note_text:
            screen.say(status.note_text, error=True)
    return not status.chain.final and window.missing_count > 0


def _print_counts(
    counts: ChainCounts, run: RunChains | None, ended: bool, *, as_json: bool
) -> None:
    """Print the counts in a line and the first failed chains on stderr, or all as JSON."""
    if as_json:
        screen.print_json({"run": run and run.name, "ended": ended, **counts.to_dict()})
        return
    screen.say(_summary(counts, run))
    for tag, reason in counts.failures:
        screen.say(f"{tag}: {reason}", error=True)
    if more := counts.failed - len(counts.failures):
        screen.say(f"and {more:,} more", error=True)


def _summary(counts: ChainCounts, run: RunChains | None) -> str:
    """Format the counts as a line, for example ``2026-01-31: 2 of 3 chains: 2 acked``."""
    text = plural(counts.chains, "chain")
    if run and run.chains not in (None, counts.chains):
        text = f"{counts.chains:,} of {plural(run.chains, 'chain')}"
    names = ("acked", "failed", "open", "pending", "invalid", "not_found")
    numbers = [(counts.by_status[name], name.replace("_", " ")) for name in names]
    parts = ", ".join(f"{number:,} {name}" for number, name in numbers if number)
    return ": ".join(filter(None, (run.name if run else "", text, parts)))
