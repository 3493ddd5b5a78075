"""Options that several commands share: the stack or the table, and JSON."""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TextIO

import click
from click.core import ParameterSource

from xorack.aws.client import make_client
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.eventbridge import EventBus
from xorack.aws.stack import StackOutputs, find_stack, open_table
from xorack.cli import screen
from xorack.cli.error_messages import EXPECTED, error_text
from xorack.core.errors import ArgumentError, StateError, shown
from xorack.core.text import plural
from xorack.ops.backlog import Backlog, QueueAge, read_backlog
from xorack.ops.dead_letters import DeadMessage, Selector
from xorack.ops.redrive import Redrive
from xorack.ops.run_chains import RunChains

_LETTERS = 1_000
_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class Duration(click.FloatRange):
    """A duration in seconds, or with units: ``90``, ``30m``, ``1h30m``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = str(value)
        parts = _DURATION_PART.findall(text)
        if parts and not _DURATION_PART.sub("", text).strip():
            value = sum(float(number) * _SECONDS[unit] for number, unit in parts)
        try:
            seconds = float(value)
        except ValueError:
            self.fail(f"{shown(text)}, expected seconds, or 30m, 2h, 1d12h", param, ctx)
        if math.isnan(seconds):  # click would accept it in every range
            self.fail("nan is not a number", param, ctx)
        return super().convert(seconds, param, ctx)


_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?) *(min|[smhd])")


@dataclass(frozen=True)
class Target:
    """The resources that the options name: a table or a queue, or else the stack's resources."""

    stack: str
    region: str | None
    table: str | None = None
    dead_letters: str | None = None
    queue: str | None = None

    @property
    def title(self) -> str:
        """The name of the table or stack that is read, for people."""
        return f"table {self.table}" if self.table else f"stack {self.stack}"

    def client(self, service: str) -> Any:
        try:
            return make_client(service, region_name=self.region)
        except ValueError as error:  # botocore's error for an invalid region or endpoint
            raise click.ClickException(str(error)) from error

    @functools.cached_property
    def _outputs(self) -> StackOutputs:
        return find_stack(self.stack, self.client)

    def queues(self) -> Callable[[], Backlog | None]:
        """Return a function that reads the backlog; it returns None if the queues are unknown."""
        if self.table is not None:
            return lambda: None
        outputs = self.find_stack()
        urls = outputs.queue_url, outputs.dead_letter_queue_url
        age = QueueAge(functools.partial(self.client, "cloudwatch"))
        return functools.partial(read_backlog, self.client("sqs"), *urls, age)

    def find_stack(self, alternative: str = "") -> StackOutputs:
        """Find the stack. An error suggests --stack and the alternative to it."""
        try:
            return self._outputs
        except StateError as error:
            raise click.ClickException(f"{error}: name yours with --stack{alternative}") from error

    def open(self) -> DynamoDBStore:
        if self.table is not None:
            return open_table(self.table, self.client("dynamodb"))
        outputs = self.find_stack(", or its table with --table")
        return open_table(outputs.table_name, self.client("dynamodb"), outputs.retention_ms)

    def open_bus(self, store: DynamoDBStore) -> EventBus | None:
        """Open the stack's event bus; return None if --table names the table."""
        if self.table is not None:
            return None
        bus, events = self.find_stack().bus_name, self.client("events")
        return EventBus(bus, events, find_table=store.table.find_arn)

    def open_dead_letters(self) -> Redrive:
        """Open the dead-letter queue, together with the queue to which its messages go back."""
        if self.dead_letters:
            return Redrive(self.dead_letters, self.queue or "", self.client("sqs"))
        outputs = self.find_stack()
        urls = outputs.dead_letter_queue_url, outputs.queue_url
        return Redrive(*urls, self.client("sqs"), outputs.retention_ms)


def read_letters(target: Target, selector: Selector) -> list[DeadMessage]:
    """Return the selected dead letters. If the queue is unknown or cannot be read, return none."""
    backlog = target.queues()()
    if backlog is None or not backlog.dead_letters:
        return []
    try:
        survey = target.open_dead_letters().survey(selector, limit=_LETTERS, keep=_LETTERS)
    except EXPECTED as error:
        screen.say(f"the dead letters cannot be read: {error_text(error)}", error=True)
        return []
    if not survey.complete:
        screen.say(
            f"{survey.read:,} of about {plural(survey.total, 'dead letter')} read", error=True
        )
    return survey.messages


def lines_of(file: TextIO | None) -> Iterator[str]:
    """Yield the lines of a file that is an option or an argument."""
    try:
        yield from file or ()
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{file and file.name}: expected UTF-8: {error}") from error


def _not_empty(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Reject an empty value, because a shell passes it for an unset variable."""
    if value == "":
        raise click.BadParameter("expected a value that is not empty")
    return value


def _run(_: click.Context, __: click.Parameter, value: str | None) -> RunChains | None:
    try:
        return None if value is None else RunChains(value)
    except ArgumentError as error:
        name = str(value).rstrip("/")
        hint = f": {name}" if name and "/" not in name else ""
        raise click.BadParameter(f"{shown(value)}, expected {error.expected}{hint}") from error


def gathered(name: str, make: Callable[..., Any], *options: _Decorator) -> _Decorator:
    """Add options to a command.

    The command gets the result of `make` for their values as one argument.
    """
    parameters = inspect.signature(make).parameters

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def wrapped(**arguments: Any) -> Any:
            own = {each: arguments.pop(each) for each in parameters if each in arguments}
            return command(**{name: make(**own)}, **arguments)

        made: Callable[..., Any] = wrapped
        for option in reversed(options):
            made = option(made)
        return made

    return decorate


text_option = functools.partial(click.option, callback=_not_empty)
run_option = functools.partial(click.option, "--run", metavar="RUN", callback=_run)
# A file from Windows may begin with a byte order mark, which is not part of the first name.
text_file = click.File(encoding="utf-8-sig")
among_option = functools.partial(click.option, "--among", type=text_file)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
yes_option = click.option("--yes", "-y", is_flag=True, help="Skip the question.")
queue_option = text_option(
    "--queue", metavar="URL", help="The queue to send to, instead of the stack's."
)
table_option = text_option(
    "--table", envvar="XORACK_TABLE", help="The name of the table; replaces --stack."
)
letters_option = text_option(
    "--dead-letters", metavar="URL", help="The dead-letter queue, instead of the stack's."
)


def with_target(*options: _Decorator) -> _Decorator:
    """Add --stack, --region and other options to a command, which gets them as ``target``."""
    stack = text_option(
        "--stack",
        envvar=["XORACK_STACK", "XORACK_QUEUE_URL"],
        default="xorack",
        help="The CloudFormation stack, or its queue's URL.",
    )
    region = text_option("--region", help="The AWS region.  [default: from your AWS configuration]")
    return gathered("target", _target, *options, stack, region)


def _target(
    stack: str,
    region: str | None,
    table: str | None = None,
    dead_letters: str | None = None,
    queue: str | None = None,
) -> Target:
    """Return the target of the options.

    XORACK_TABLE does not override a stack that an option names.
    """
    source = click.get_current_context().get_parameter_source
    environment = ParameterSource.ENVIRONMENT
    if source("table") is environment and source("stack") is not ParameterSource.DEFAULT:
        table = None
    return Target(stack, region, table, dead_letters, queue)


with_table = with_target(table_option)
