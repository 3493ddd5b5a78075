"""The command `xorack wait`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import click

from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.cli import screen
from xorack.cli.error_messages import error_text
from xorack.cli.options import Duration, Target, json_option, text_option, with_table
from xorack.core.errors import ArgumentError, TagNotFound, UnavailableError
from xorack.core.text import plural
from xorack.ops.log_windows import LogWindow
from xorack.ops.run_chains import ChainCounts, count_named
from xorack.ops.status import read_status

_TIMED_OUT = 3
_NAMED = 10
"""Names in a line: --json has all."""
_PAUSE = 9
"""Least length of a pause, in lengths of the poll before: reads take a tenth of the time."""


@click.command(epilog="Example: xorack wait 2026-01-31 --timeout 3600")
@click.argument("tags", nargs=-1, metavar="[TAG]...")
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
    tags: tuple[str, ...],
    window: str | None,
    as_json: bool,
    target: Target,
    interval_seconds: float,
    timeout_seconds: float,
) -> int:
    """Wait until chains have ended, then print their counts.

    This command is for schedulers. It prints one line, or with --json one JSON object. It names the
    first failed chains with their reasons, on stderr or in the object.

    With TAGs, it waits until these chains have ended, even if a chain does not exist yet. A run of
    Spark jobs is a chain whose TAG is its run_id. So one wait, which reads one item a poll, is
    enough for all chains of the run.

    With --window, it waits until the window is complete, and names the partitions that lag.

    Exit status: 0 if all chains are acked; 1 if a chain failed, rows are missing, or an error
    occurred; 3 after the time-out.
    """
    if bool(tags) == (window is not None):
        raise click.UsageError("expected TAGs or --window")
    if window is not None and window.count("/") < 2:
        raise ArgumentError("window", window, "a run, a log and a window: RUN/LOG/WINDOW")
    store, queues = target.open(), target.queues()
    absent: set[str] = set()

    def poll() -> ChainCounts:
        counts = count_named(store, tags if window is None else (window,))
        if new := [tag for tag in counts.not_found if tag not in absent]:
            for tag in new:
                screen.say(f"{tag} does not exist yet: waiting for it", error=True)
            screen.say_backlog(queues())
        absent.update(new)
        return counts

    counts = _poll_to_end(poll, interval_seconds, timeout_seconds)
    if window is not None:
        rows_are_missing = _print_window(store, window, as_json=as_json)
    else:
        rows_are_missing = False
        _print_counts(counts, as_json=as_json)
    if counts.unfinished:
        screen.say("timed out", error=True)
        screen.say_backlog(queues())
        return 1 if rows_are_missing else _TIMED_OUT
    return int(counts.failed > 0)


def _poll_to_end(
    poll: Callable[[], ChainCounts], interval_seconds: float, timeout_seconds: float
) -> ChainCounts:
    """Poll until the end or the time-out; return the last counts.

    A failed poll is an error only if it is the first or the last poll.
    """
    polled, give_up = False, time.monotonic() + timeout_seconds
    while True:
        began = time.monotonic()
        is_last = began >= give_up
        try:
            counts, polled = poll(), True
            if is_last or not counts.unfinished:
                return counts
        except UnavailableError as error:
            if not polled or is_last:
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


def _print_counts(counts: ChainCounts, *, as_json: bool) -> None:
    """Print the counts in one line and failed chains on stderr, or print both as JSON."""
    if as_json:
        screen.print_json({"ended": not counts.unfinished, **counts.to_dict()})
        return
    numbers = {**counts.by_status, "not found": len(counts.not_found)}
    order = ("acked", "failed", "open", "pending", "invalid", "not found")
    parts = [f"{numbers[name]:,} {name}" for name in order if numbers.get(name)]
    screen.say(f"{plural(counts.chains, 'chain')}: {', '.join(parts)}")
    for tag, reason in counts.failures:
        screen.say(f"{tag}: {reason}", error=True)
    if more := counts.failed - len(counts.failures):
        screen.say(f"and {more:,} more", error=True)
