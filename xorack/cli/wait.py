"""The command `xorack wait`, and polls until the end for `xorack watch`."""

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
    interval_option,
    json_option,
    text_option,
    with_run,
    with_table,
)
from xorack.core.errors import StateError, UnavailableError
from xorack.ops.log_windows import LogWindow
from xorack.ops.run_chains import ChainCounts, RunChains
from xorack.ops.text import plural
from xorack.ops.watch import ChainWatcher, WatchUpdate

_TIMED_OUT = 3
_NAMED = 10
"""Names in a line: --json has all."""
_PAUSE = 9
"""Least length of a pause, in lengths of the poll before: reads take a tenth of the time."""


@click.command(epilog="Example: xorack wait --run 2026-01-31 --chains 5000 --timeout 3600")
@with_run
@interval_option
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

    For schedulers: prints one line, or with --json one JSON object. Names the first failed chains
    with their reasons, on stderr or in the object.

    With TAGs: until these chains have ended. Waits for a chain that does not exist yet.

    With --run and --chains: until that many chains of the run have ended; more chains are an
    error. Without --chains: until the run has a chain and none is unfinished. This is not exact,
    since messages that are still in the queue may create more chains.

    With --window: until the window is whole. Names the partitions that lag. LOG/WINDOW without
    the run is searched for in the entire table.

    Exit status: 0 if all are acked; 1 if one failed, for missing rows, or for an error; 3 after the
    time-out.
    """
    if bool(chains.tags) + (chains.run is not None) + (window is not None) != 1:
        raise click.UsageError("expected one of TAG, --run and --window")
    store = target.open()
    if window is not None:
        return _wait_for_window(store, window, interval_seconds, timeout_seconds, as_json)
    said: set[str] = set()
    queues = target.queues()

    def show(update: WatchUpdate, error: str) -> None:
        say_retrying(error)
        new = [tag for tag in update.not_found if tag not in said]
        for tag in new:
            screen.say(f"{tag} does not exist yet: waiting for it", error=True)
        if new:
            screen.say_backlog(queues())
        said.update(new)

    watcher = ChainWatcher(store, chains.tags, limit=1, run=chains.run)
    update = poll_to_end(watcher, interval_seconds, show, timeout_seconds)
    print_summary(update, as_json=as_json)
    if not update.done:
        screen.say("timed out", error=True)
        screen.say_backlog(queues())
    return exit_status(update)


def _wait_for_window(
    store: DynamoDBStore,
    window: str,
    interval_seconds: float,
    timeout_seconds: float,
    as_json: bool,
) -> int:
    """Wait until a window is whole, say which partitions lag, and return the exit status."""
    give_up = time.monotonic() + timeout_seconds
    tag = _find_window(store, window, interval_seconds, give_up)
    watcher, left = ChainWatcher(store, [tag], 1), give_up - time.monotonic()
    update = poll_to_end(watcher, interval_seconds, lambda _, error: say_retrying(error), left)
    found = [LogWindow(one) for one in (*update.ended, *update.snapshot.chains)]
    if found:
        _print_window(found[0], as_json=as_json)
    else:
        screen.say(f"{window} is not open", error=True)
    misses_rows = any(one.missing_count and not one.status.chain.final for one in found)
    return 1 if misses_rows else exit_status(update)


def _find_window(store: DynamoDBStore, window: str, interval_seconds: float, give_up: float) -> str:
    """Return the tag of a window: without its run, search the table for it until `give_up`."""
    while window.count("/") < 2:
        found = (chain.tag for chain in store.scan(lambda _: None))
        tags = sorted(tag for tag in found if tag.partition("/")[2] == window)
        if len(tags) > 1:
            some = ", ".join(tags[:_NAMED])
            raise StateError(f"window: {window!r}, expected one with its run, such as {some}")
        if tags:
            return tags[0]
        if time.monotonic() >= give_up:
            break
        time.sleep(max(0.0, min(interval_seconds * _PAUSE, give_up - time.monotonic())))
    return window


def _print_window(window: LogWindow, *, as_json: bool) -> None:
    status = window.status
    if as_json:
        screen.print_json({**status.to_dict(), "lagging": window.lagging})
        return
    failed, lag = status.reason if status.chain.status == "failed" else "", window.lag(_NAMED)
    text = ", ".join(filter(None, (failed, lag and f"{lag} lag")))
    screen.say(f"{status.chain.tag}: {'whole' if window.state == 'whole' else text}")
    if status.note_text:
        screen.say(status.note_text, error=True)


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
            error = error_text(unavailable)
        show(update, error)
        if update.done or last:
            return update
        now = time.monotonic()
        pause = max(interval_seconds, _PAUSE * (now - began))
        time.sleep(max(0.0, min(pause, give_up - now)))


def say_retrying(error: str) -> None:
    if error:
        screen.say(f"retrying: {error}", error=True)


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
        screen.print_json({**head, **counts.to_dict()})
        return
    screen.say(summary(counts, run))
    for tag, reason in counts.failures:
        screen.say(f"{tag}: {reason}", error=True)
    if more := counts.failed - len(counts.failures):
        screen.say(f"and {more:,} more", error=True)


def summary(counts: ChainCounts, run: RunChains | None) -> str:
    """Format the counts as one line, for example ``2026-01-31: 2 of 3 chains: 2 acked``."""
    text = plural(counts.chains, "chain")
    if run and run.chains not in (None, counts.chains):
        text = f"{counts.chains:,} of {plural(run.chains, 'chain')}"
    names = ("acked", "failed", "open", "pending", "invalid", "not_found")
    numbers = [(counts.by_status[name], name.replace("_", " ")) for name in names]
    parts = ", ".join(f"{number:,} {name}" for number, name in numbers if number)
    return ": ".join(filter(None, (run.name if run else "", text, parts)))
