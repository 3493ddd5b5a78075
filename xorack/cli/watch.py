"""The command `xorack watch`: a line for each change."""

from __future__ import annotations

import errno
import functools
import select
import sys
from datetime import datetime, timezone

import click

from xorack.cli import screen
from xorack.cli.options import Chains, Target, interval_option, json_option, with_run, with_table
from xorack.cli.wait import exit_status, poll_to_end, print_summary, say_retrying
from xorack.core.event import rfc3339
from xorack.ops.status import ChainStatus
from xorack.ops.text import printable
from xorack.ops.watch import ChainWatcher, WatchUpdate


@click.command(epilog="Example: xorack watch order/17 order/18 && echo all done")
@with_run
@interval_option
@click.option(
    "--limit",
    type=click.IntRange(1, 100),
    default=20,
    help="Maximum number of chains to watch without TAG.",
)
@json_option
@with_table
def watch(
    chains: Chains, interval_seconds: float, limit: int, as_json: bool, target: Target
) -> int:
    """Watch the progress of chains: print a line for each change. `xorack web` shows a table.

    Without TAG: the unfinished chains with the nearest deadlines, until Ctrl-C (exit status 0).
    With TAGs: these chains, until all have ended; the exit status is 1 if one of them failed.
    Waits for a chain that does not exist yet. With --json, prints one JSON object a change.

    With --run: the chains of the run with the nearest deadlines, until the run has ended; then
    prints its counts. The exit status is 1 if a chain of the run failed. For --chains, see `xorack
    wait --help`.
    """
    watcher = ChainWatcher(target.open(), chains.tags, limit, chains.run)
    show = functools.partial(_print_update, set(), as_json)
    try:
        update = poll_to_end(watcher, interval_seconds, show)
    except KeyboardInterrupt:
        if any(chains):
            raise
        return 0
    if update.run:
        print_summary(update, as_json=as_json)
    return exit_status(update)


def _print_update(warned: set[str], as_json: bool, update: WatchUpdate, error: str) -> None:
    """Print the changes as lines; a problem of a tag is printed once."""
    if _reader_is_gone():
        raise BrokenPipeError(errno.EPIPE, "the reader is gone")
    if error:
        say_retrying(error)
        return
    for status in update.changed:
        if as_json:
            screen.print_json({"at": rfc3339(status.now), **status.to_json()})
        else:
            screen.say(_line(status))
    warnings = dict.fromkeys(update.not_found, "does not exist yet")
    for invalid in update.invalid:
        warnings[str(invalid.tag)] = f"cannot be read: {invalid.reason}"
    if update.run and update.counts and not (update.counts.chains or update.done):
        warnings[update.run.name] = "has no chains yet"
    for tag, warning in warnings.items():
        if tag not in warned:
            warned.add(tag)
            screen.say(f"{printable(tag)}: {printable(warning)}", error=True)
    sys.stdout.flush()


def _reader_is_gone() -> bool:
    """Tell whether stdout is a pipe without a reader, as after `| head -1`."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
    except (AttributeError, OSError, ValueError):  # the platform has no poll, or stdout no file
        return False


def _line(status: ChainStatus) -> str:
    """Format a change for a log; the tag comes last, since it may hold any characters."""
    cells = screen.cells(status)
    clock = f"{datetime.fromtimestamp(status.now / 1000, timezone.utc):%H:%M:%SZ}"
    start = f"{clock}  {cells['STATUS']:<7}  {cells['DONE']:>6}  {cells['UNITS']}"
    reason = f": {cells['REASON']}" if cells["REASON"] else ""
    return f"{start}  {cells['TAG']}{reason}"
