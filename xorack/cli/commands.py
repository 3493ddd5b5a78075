"""The commands: each reads its arguments, asks a service and prints the answer."""

from __future__ import annotations

import errno
import importlib
import itertools
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from xorack import __version__
from xorack.cli import screen
from xorack.cli.error_messages import EXPECTED, explain, printable
from xorack.core.clock import milliseconds
from xorack.core.errors import NotAChain
from xorack.ops.dashboard import MAX_CHAINS
from xorack.ops.status import STATUSES, ChainStatus, Resources

__all__ = ["cli", "run"]

_INTERRUPTED = 130
_CANNOT_WRITE = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
Command = TypeVar("Command", bound=Callable[..., Any])


def run(arguments: Sequence[str] | None = None, command: click.Command | None = None) -> int:
    """Run the command line; whatever is wrong becomes a line on stderr and an exit status.

    Args:
        arguments: The arguments; the process's by default.
        command: The command to run; by default `cli`.

    Returns:
        The exit status.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the shell's >&-
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - it is closed with us
        # A tag may hold what the terminal's encoding has no sign for.
        if hasattr(stream := getattr(sys, name), "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = _run(arguments, command or cli)
        sys.stdout.flush()
        return status
    except OSError as error:
        if error.errno not in _CANNOT_WRITE or error.filename is not None:
            raise
        # Python would complain of what is left as it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        # Whoever closed a pipe has read enough.
        if error.errno != errno.EPIPE:
            _complain(f"cannot write: {error.strerror}")
        return 1


def _run(arguments: Sequence[str] | None, command: click.Command) -> int:
    """Run the command line but for what is wrong with its output."""
    try:
        status = command.main(
            args=None if arguments is None else list(arguments),
            prog_name="xorack" if command is cli else f"xorack {command.name}",
            standalone_mode=False,
        )
        return status if isinstance(status, int) else 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except SystemExit as done:  # click's answer to a shell that completes, a pipe nobody reads
        return done.code if isinstance(done.code, int) else int(bool(done.code))
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "xorack"
        _complain(f"{error.format_message().rstrip('.')} (see: {path} --help)")
        return error.exit_code
    except click.ClickException as error:
        _complain(error.format_message())
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        screen.say("interrupted", error=True)
        return _INTERRUPTED
    except EXPECTED as error:
        _complain(explain(error))
        return 1


def _complain(message: str) -> None:
    screen.say(f"error: {printable(message)}", error=True)


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
    epilog="""Examples, of a stack named orders:

\b
  xorack list --stack orders --status failed
  xorack show --stack orders order/17
  xorack watch --stack orders order/17 order/18 && echo all done
  xorack redrive --stack orders --look

Exit status: 0; 1 if something went wrong; 2 for a mistake in the arguments; 130 when interrupted.
XORACK_STACK and XORACK_TABLE in the environment stand for --stack and --table.""",
)
@click.version_option(__version__, prog_name="xorack")
@click.pass_context
def cli(context: click.Context) -> None:
    """Know when everything that came out of a file has been processed."""
    if context.invoked_subcommand is None:
        screen.say(context.get_help(), error=True)
        context.exit(2)


@dataclass(frozen=True)
class Where:
    """Where the chains are, as the options say.

    Attributes:
        stack: The CloudFormation stack's name.
        table: The table's name, given directly.
        region: The region; None: by the default chain.
    """

    stack: str
    table: str | None
    region: str | None

    def client(self, service: str) -> Any:
        """A boto3 client."""
        from xorack.aws.client import make_client

        try:
            return make_client(service, **({"region_name": self.region} if self.region else {}))
        except ValueError as error:  # botocore's word on a region or an endpoint that is none
            raise click.ClickException(str(error)) from error

    def find(self, otherwise: str = "") -> Resources:
        """Find the stack.

        Args:
            otherwise: What else the user may give in its place.

        Returns:
            What its outputs name.
        """
        from xorack.ops.status import NotAStack, find_stack

        try:
            return find_stack(self.stack, self.client("cloudformation"))
        except NotAStack as error:
            raise click.ClickException(f"{error}: name yours with --stack{otherwise}") from error

    def open(self) -> tuple[Any, str | None]:
        """Find the table.

        Returns:
            The store, and the bus's name where a stack tells it.
        """
        from botocore.exceptions import ClientError

        from xorack.aws.client import error_code
        from xorack.aws.dynamodb_store import DynamoDBStore
        from xorack.ops.status import partition_key_of

        bus = None
        table = self.table
        if table is None:
            resources = self.find(", or its table with --table")
            table, bus = resources.table_name, resources.bus_name
        dynamodb = self.client("dynamodb")
        try:
            key = partition_key_of(table, dynamodb)
        except ClientError as error:
            if error_code(error) != "ResourceNotFoundException":
                raise
            region = dynamodb.meta.region_name
            raise click.ClickException(f"there is no table {table} in {region}") from error
        return DynamoDBStore(table, key, dynamodb), bus


def _not_empty(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Refuse what a shell makes of a variable that it does not know."""
    if value == "":
        raise click.BadParameter("it is empty")
    return value


def _a_number(_: click.Context, __: click.Parameter, value: float) -> float:
    """Refuse what is outside of every range, and click lets through."""
    if math.isnan(value):
        raise click.BadParameter("nan is no number")
    return value


_region = click.option(
    "--region",
    callback=_not_empty,
    help="The AWS region.  [default: as your AWS configuration says]",
)
_stack = click.option(
    "--stack",
    callback=_not_empty,
    envvar="XORACK_STACK",
    default="xorack",
    show_default=True,
    help="The CloudFormation stack.",
)


def _where(command: Command) -> Command:
    """The options that say where the chains are, as one argument ``where``."""

    def wrapped(stack: str, table: str | None, region: str | None, **given: Any) -> Any:
        return command(where=Where(stack, table, region), **given)

    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    wrapped.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    for option in (
        _region,
        click.option(
            "--table",
            envvar="XORACK_TABLE",
            callback=_not_empty,
            help="The table, in place of a stack that names it.",
        ),
        _stack,
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]


_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


@cli.command(
    epilog='Example: xorack show "database/file13"',
    short_help="Show how a chain stands, and what of it is outstanding.",
)
@click.argument("tag")
@_as_json
@_where
def show(tag: str, as_json: bool, where: Where) -> None:
    """Show how the chain TAG stands: progress, deadline, and what is outstanding."""
    from xorack.ops.status import look_up

    store, _ = where.open()
    status = look_up(store, tag)
    if as_json:
        screen.print_json(status.to_json())
    else:
        screen.print_status(status, milliseconds())


@cli.command(
    "list",
    epilog="Example: xorack list --status open --status pending",
    short_help="List chains, all or of some status.",
)
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(STATUSES),
    help="Only chains of this status; may be given several times.",
)
@click.option(
    "--limit",
    type=click.IntRange(0, 1_000_000_000),
    default=100,
    show_default=True,
    help="Stop after so many chains; 0: never.",
)
@_as_json
@_where
def list_(statuses: tuple[str, ...], limit: int, as_json: bool, where: Where) -> int:
    """List chains, in no order; reads the table until there are enough of them.

    With --json, one JSON object a line. Items that some other program wrote into the table, and
    that are no chains, are named on stderr; the exit status is 1 then.
    """
    from xorack.ops.status import list_chains

    store, _ = where.open()
    strange: list[NotAChain] = []
    found = list_chains(store, statuses or STATUSES, strange=strange.append)
    if as_json:
        for status in itertools.islice(found, limit or None):
            screen.print_json(status.to_json())
    else:
        _print_list(found, statuses, limit)
    for one in strange:
        _complain(str(one))
    return int(bool(strange))


def _print_list(found: Iterator[ChainStatus], statuses: Sequence[str], limit: int) -> None:
    """Print chains as a table, and whether there are more."""
    chains = list(itertools.islice(found, limit or None))
    more = bool(limit) and next(found, None) is not None
    now = milliseconds()
    rows = (
        (
            printable(one.chain.tag),
            one.chain.status,
            screen.percent(one),
            f"{one.chain.finished:,}/{one.chain.started:,}",
            "?" if one.age_ms is None else screen.span(one.age_ms),
            screen.time_left(one.deadline, now),
            printable(one.chain.reason or one.chain.failing or ""),
        )
        for one in chains
    )
    if not chains:
        screen.say("no chains" + (f" that are {' or '.join(statuses)}" if statuses else ""))
        return
    heads = ("TAG", "STATUS", "DONE", "UNITS", "AGE", "TIME LEFT", "REASON")
    screen.print_rows(heads, rows, right={2, 3, 4, 5}, fold={0, 6})
    if more:
        screen.say(f"the first {limit:,}; there are more: --limit 0 lists all", error=True)


@cli.command(epilog='Example: xorack fail "database/file13" --reason "the file was withdrawn"')
@click.argument("tag")
@click.option("--reason", required=True, help="Why; told in the chain's event.")
@_as_json
@_where
def fail(tag: str, reason: str, as_json: bool, where: Where) -> None:
    """End the chain TAG as failed, now, and publish its event.

    With --table, the event is left to the stack's sweeper.
    """
    from xorack.aws.eventbridge import EventBus
    from xorack.ops.status import fail as fail_chain

    store, bus = where.open()
    publisher = None if bus is None else EventBus(bus, where.client("events"))
    done = fail_chain(store, tag, reason, publisher=publisher)
    chain = done.status.chain
    if as_json:
        screen.print_json({**done.status.to_json(), "changed": done.changed})
    elif not chain.final:
        screen.say(f"{printable(tag)}: pending; it fails as soon as it is created")
    elif done.changed:
        event = "its event is left to the sweeper" if done.event_owed else "its event is published"
        screen.say(f"{printable(tag)}: failed; {event}")
    if chain.final and not done.changed:
        raise click.ClickException(f"{tag} is {chain.status} already: nothing changed")


@cli.command(
    epilog="Example: xorack watch order/17 order/18 && echo all done",
    short_help="Watch chains as they go on.",
)
@click.argument("tags", nargs=-1, metavar="[TAG]...")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1, max=3600),
    callback=_a_number,
    default=2.0,
    show_default=True,
    help="Seconds between looks.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_CHAINS),
    default=20,
    show_default=True,
    help="Most chains to watch, where no TAG is given.",
)
@_as_json
@_where
def watch(
    tags: tuple[str, ...], interval: float, limit: int, as_json: bool, where: Where
) -> int | None:
    """Watch chains as they go on; a live table on a terminal, elsewhere a line for each change.

    Without TAG: the unfinished chains whose deadlines are nearest, until Ctrl-C (exit status 0).
    With TAGs: these, until all have ended; the exit status is 1 if one of them failed.
    A chain that is not there yet is waited for. With --json, one JSON object a change.
    """
    from xorack.cli.watch import run_watch
    from xorack.ops.watch import Watcher

    store, _ = where.open()
    watcher = Watcher(store, tags, limit=limit)
    try:
        return run_watch(watcher, interval, as_json=as_json)
    except KeyboardInterrupt:
        if tags:
            raise
        return 0


def _check_queues(client: Any, dead_letters: str, queue: str) -> None:
    """Refuse queues that are not there, the same, or swapped: live messages would become dead."""
    from xorack.ops.dead_letters import NoQueue, feeds

    try:
        feeds(queue, dead_letters, client)
        swapped = feeds(dead_letters, queue, client)
    except NoQueue as error:
        raise click.ClickException(str(error)) from error
    if dead_letters == queue:
        raise click.UsageError("--queue is the queue of --dead-letters")
    if swapped:
        raise click.UsageError(
            "--dead-letters is a queue whose dead letters go to --queue: are they swapped?"
        )


@cli.command(epilog="Example: xorack redrive --stack orders --yes")
@click.option("--all", "all_", is_flag=True, help="Also what was refused for its chain's state.")
@click.option("--force", is_flag=True, help="All of them, also what no consumer would take.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option(
    "--look",
    "only_look",
    is_flag=True,
    help="Only show what there is and why.",
)
@click.option(
    "--dead-letters",
    metavar="URL",
    callback=_not_empty,
    help="The dead-letter queue, in place of a stack's.",
)
@click.option(
    "--queue",
    metavar="URL",
    callback=_not_empty,
    help="Where they go, in place of a stack's queue.",
)
@_as_json
@_region
@_stack
def redrive(
    all_: bool,
    force: bool,
    yes: bool,
    only_look: bool,
    dead_letters: str | None,
    queue: str | None,
    as_json: bool,
    stack: str,
    region: str | None,
) -> int:
    """Send dead letters back to the queue, once their cause is mended.

    Shows first why they are dead, and asks. What failed at each of its tries goes back. What was
    refused stays, since it would only be refused again, unless you mended its chain: --all.
    Sending too much back does no harm: a request takes effect once.

    Exit status: 0 if all that should go back is back; 1 if it is not, or you said no.
    """
    from xorack.cli.redrive import Chosen, run_redrive

    if (dead_letters is None) != (queue is None):
        raise click.UsageError("--dead-letters and --queue go together")
    place = Where(stack, None, region)
    if dead_letters is None or queue is None:
        resources = place.find()
        dead_letters, queue = resources.dead_letter_queue_url, resources.queue_url
    else:
        _check_queues(place.client("sqs"), dead_letters, queue)
    chosen: Chosen = "malformed" if force else "rejected" if all_ else "failed"
    return run_redrive(
        place.client("sqs"),
        dead_letters,
        queue,
        chosen,
        yes=yes,
        only_look=only_look,
        as_json=as_json,
    )


def _add_demo(checkout: Path) -> None:
    """Add the command `demo` where the repository is at hand: the demo is not in the wheel."""
    if not (checkout / "demo" / "command.py").is_file():
        return

    @cli.command(
        add_help_option=False,
        context_settings={"ignore_unknown_options": True},
        short_help="Run the word count from files to acked events on this machine.",
    )
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def demo(arguments: tuple[str, ...]) -> int:
        sys.path.insert(0, str(checkout))
        command: click.Command = importlib.import_module("demo.command").demo
        status = command.main(list(arguments), prog_name="xorack demo", standalone_mode=False)
        return status if isinstance(status, int) else 0


_add_demo(Path(__file__).parents[2])
