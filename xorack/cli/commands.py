"""The command line. Each command reads its arguments, calls the library and prints the result."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

import click

from xorack import __version__
from xorack.cli import changes, dead_letters, listing, screen
from xorack.cli.doctor import doctor
from xorack.cli.error_messages import EXPECTED, error_text
from xorack.cli.events import events
from xorack.cli.explain import explain
from xorack.cli.local import local, local_environ, local_option
from xorack.cli.show import show
from xorack.cli.status import status
from xorack.cli.wait import wait
from xorack.cli.web import web
from xorack.core.errors import ArgumentError

_INTERRUPTED = 130
_CANNOT_WRITE = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def run(arguments: Sequence[str] | None = None, command: click.Command | None = None) -> int:
    """Run a command and return the exit status. By default, run `cli` with the process's arguments.

    An error is printed as a line on stderr.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the shell's >&- has closed the stream
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - open until the process ends
        # The terminal's encoding may lack characters of a tag.
        if hasattr(stream := getattr(sys, name), "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    streams = sys.stdout, sys.stderr
    try:
        status = _run(arguments, command or cli)
        # After a broken pipe, click replaces the streams. Python would fail when it closes them.
        sys.stdout, sys.stderr = streams
        sys.stdout.flush()
        return status
    except OSError as error:
        if error.errno not in _CANNOT_WRITE or error.filename is not None:
            raise
        # Otherwise Python would fail again when it writes the rest before it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno != errno.EPIPE:  # the program that reads the pipe has stopped reading
            _print_error(f"cannot write: {error.strerror}")
        return 1


def _run(arguments: Sequence[str] | None, command: click.Command) -> int:
    """Run a command. The caller handles errors in writing its output."""
    try:
        status = command.main(
            args=None if arguments is None else list(arguments),
            prog_name="xorack" if command is cli else f"python -m {command.name}",
            standalone_mode=False,
        )
        return status if isinstance(status, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except SystemExit as end:  # click raises Exit after a shell's completion
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return error.exit_code
    except click.ClickException as error:
        message = error.format_message()
        if isinstance(error, click.UsageError):
            path = error.ctx.command_path if error.ctx else "xorack"
            message = f"{message.rstrip('.')}{_dash_hint(error, path)} (see: {path} --help)"
        _print_error(message)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        screen.say("interrupted", error=True)
        return _INTERRUPTED
    except EXPECTED as error:
        _print_error(error_text(error))
        return 2 if isinstance(error, ArgumentError) else 1


def _dash_hint(error: click.UsageError, path: str) -> str:
    """Return advice on a tag that begins with a dash, because click takes it for an option."""
    context = error.ctx
    if not isinstance(error, click.NoSuchOption) or context is None:
        return ""
    if not any(isinstance(parameter, click.Argument) for parameter in context.command.params):
        return ""
    return f"; put -- before an argument with a dash: {path} -- {error.option_name}…"


def _print_error(message: str) -> None:
    screen.say(f"error: {message}", error=True)


@click.group(
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
    subcommand_metavar="COMMAND [ARGS]...",
    epilog="""Examples, of a stack named orders:

\b
  xorack status --stack orders
  xorack list --stack orders --status failed
  xorack show --stack orders order/17
  xorack explain --stack orders --run 2026-01-31
  xorack wait --stack orders order/17 order/18 && echo all done
  xorack wait --stack orders 2026-01-31 --timeout 3600
  xorack dead-letters list --stack orders

Exit status: 0; 1 for a failure; 2 for invalid arguments; 3 for a time-out of wait; 130 when
interrupted.
The defaults of --stack and --table come from the environment variables XORACK_STACK, or else
XORACK_QUEUE_URL, and XORACK_TABLE. XORACK_LOCAL=1 has the effect of --local.""",
)
@click.version_option(__version__, prog_name="xorack")
@local_option
@click.pass_context
def cli(context: click.Context, is_local: bool) -> None:
    """Know when everything that came out of a file has been processed."""
    if is_local and context.invoked_subcommand != "local":
        context.with_resource(local_environ())


for _command in (
    status,
    listing.list_,
    listing.windows,
    show,
    explain,
    wait,
    changes.fail,
    changes.extend,
    dead_letters.dead_letters,
    dead_letters.redrive,
    events,
    web,
    doctor,
    local,
):
    cli.add_command(_command)
