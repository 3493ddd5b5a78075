"""The commands: each reads its arguments, calls the library and prints the result."""

from __future__ import annotations

import errno
import math
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from xorack import __version__
from xorack.cli import changes, dead_letters, failure_status, listing, screen
from xorack.cli.diff import diff
from xorack.cli.error_messages import EXPECTED
from xorack.cli.error_messages import explain as error_text
from xorack.cli.local import local, local_environ, local_option
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
from xorack.cli.show import explain, show
from xorack.cli.wait import run_wait, run_window
from xorack.cli.watch import run_watch
from xorack.cli.web import web
from xorack.cli.windows import windows
from xorack.core.errors import ArgumentError
from xorack.ops.snapshot import MAX_CHAINS
from xorack.ops.text import printable
from xorack.ops.watch import ChainWatcher

_INTERRUPTED = 130
_NOT_LOCAL = ("local", "demo", "diff")
"""Commands that do not use the embedded AWS of another process."""
_CANNOT_WRITE = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def run(arguments: Sequence[str] | None = None, command: click.Command | None = None) -> int:
    """Run a command, by default `cli` with the process's arguments, and return the exit status.

    An error becomes a line on stderr.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell's >&-
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - open until the process ends
        # A tag may hold characters that the terminal's encoding lacks.
        if hasattr(stream := getattr(sys, name), "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    streams = sys.stdout, sys.stderr
    try:
        status = _run(arguments, command or cli)
        # click hides a broken pipe behind another stream: its rest would fail when Python ends.
        sys.stdout, sys.stderr = streams
        sys.stdout.flush()
        return status
    except OSError as error:
        if error.errno not in _CANNOT_WRITE or error.filename is not None:
            raise
        # Python would fail again to write the rest when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno != errno.EPIPE:  # the reader of a closed pipe has read enough
            _print_error(f"cannot write: {error.strerror}")
        return failure_status(arguments)


def _run(arguments: Sequence[str] | None, command: click.Command) -> int:
    """Run a command; errors of writing its output are for the caller."""
    try:
        status = command.main(
            args=None if arguments is None else list(arguments),
            prog_name="xorack" if command is cli else f"xorack {command.name}",
            standalone_mode=False,
        )
        return status if isinstance(status, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except SystemExit as end:  # click ends so after a shell's completion
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    except click.exceptions.NoArgsIsHelpError as error:
        screen.say(error.format_message(), error=True)
        return error.exit_code
    except click.ClickException as error:
        message = error.format_message()
        if isinstance(error, click.UsageError):
            path = error.ctx.command_path if error.ctx else "xorack"
            message = f"{message.rstrip('.')} (see: {path} --help)"
        _print_error(message)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        screen.say("interrupted", error=True)
        return _INTERRUPTED
    except EXPECTED as error:
        _print_error(error_text(error))
        return 2 if isinstance(error, ArgumentError) else 1


def _print_error(message: str) -> None:
    screen.say(f"error: {printable(message)}", error=True)


@click.group(
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
    subcommand_metavar="COMMAND [ARGS]...",
    epilog="""Examples, of a stack named orders:

\b
  xorack list --stack orders --status failed
  xorack show --stack orders order/17
  xorack explain --stack orders --run 2026-01-31
  xorack watch --stack orders order/17 order/18 && echo all done
  xorack wait --stack orders --run 2026-01-31 --chains 5000 --timeout 3600
  xorack dead-letters list --stack orders
  xorack diff orders.csv copy.csv --key order,line

Exit status: 0; 1 for a failure; 2 for invalid arguments; 3 for a time-out of wait; 130 when
interrupted. Of diff: 0 if the inputs are equal; 1 if they differ; 2 for a failure.
The environment variables XORACK_STACK and XORACK_TABLE are the defaults of --stack and --table;
XORACK_LOCAL=1 does as --local.""",
)
@click.version_option(__version__, prog_name="xorack")
@local_option
@click.pass_context
def cli(context: click.Context, is_local: bool) -> None:
    """Know when everything that came out of a file has been processed."""
    if is_local and context.invoked_subcommand not in _NOT_LOCAL:
        context.with_resource(local_environ())


@cli.command(epilog="Example: xorack watch order/17 order/18 && echo all done")
@with_run
@interval_option
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_CHAINS),
    default=20,
    help="Maximum number of chains to watch without TAG.",
)
@json_option
@with_table
def watch(
    chains: Chains, interval_seconds: float, limit: int, as_json: bool, target: Target
) -> int:
    """Watch the progress of chains.

    Draws a live table on a terminal; prints a line for each change elsewhere.

    Without TAG: the unfinished chains with the nearest deadlines, until Ctrl-C (exit status 0).
    With TAGs: these chains, until all have ended; the exit status is 1 if one of them failed.
    Waits for a chain that does not exist yet. With --json, prints one JSON object a change.

    With --run: the chains of the run with the nearest deadlines, until the run has ended; then
    prints its counts. The exit status is 1 if a chain of the run failed. For --chains, see `xorack
    wait --help`.
    """
    watcher = ChainWatcher(target.open(), chains.tags, limit, chains.run)
    try:
        return run_watch(watcher, interval_seconds, as_json=as_json)
    except KeyboardInterrupt:
        if any(chains):
            raise
        return 0


@cli.command(epilog="Example: xorack wait --run 2026-01-31 --chains 5000 --timeout 3600")
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
    chains: Chains, window: str | None, as_json: bool, target: Target, **seconds: float
) -> int:
    """Wait until chains have ended, then print their counts.

    For schedulers: prints one line, or with --json one JSON object. Names the first failed chains
    with their reasons, on stderr or in the object.

    With TAGs: until these chains have ended. Waits for a chain that does not exist yet.

    With --run and --chains: until that many chains of the run have ended; more chains are an
    error. Without --chains: until the run has a chain and none is unfinished. This is not exact,
    since messages that are still in the queue may create more chains.

    With --window: until the window is whole. Names the partitions that lag. LOG/WINDOW without
    the run is looked for in the whole table.

    Exit status: 0 if all are acked; 1 if one failed, for missing rows, or for an error; 3 after the
    time-out.
    """
    if bool(chains.tags) + (chains.run is not None) + (window is not None) != 1:
        raise click.UsageError("expected one of TAG, --run and --window")
    times = seconds["interval_seconds"], seconds["timeout_seconds"]
    if window is not None:
        return run_window(target.open(), window, times, as_json=as_json)
    watcher = ChainWatcher(target.open(), chains.tags, limit=1, run=chains.run)
    return run_wait(watcher, *times, as_json=as_json)


for _command in (
    listing.list_,
    show,
    explain,
    changes.fail,
    changes.extend,
    dead_letters.dead_letters,
    dead_letters.redrive,
    web,
    windows,
):
    cli.add_command(_command)

cli.add_command(diff)
cli.add_command(local)

_CHECKOUT = Path(__file__).parents[2]
if (_CHECKOUT / "demo" / "__main__.py").is_file():  # the wheel has no demo

    @cli.command(
        add_help_option=False,
        context_settings={"ignore_unknown_options": True},
        short_help="Run the word count from files to acked events on this machine.",
    )
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def demo(arguments: tuple[str, ...]) -> None:
        """Run `python -m demo` from any folder: the library does not import the demo."""
        sys.path.insert(0, str(_CHECKOUT))
        sys.argv = ["xorack demo", *arguments]
        runpy.run_module("demo", run_name="__main__")
