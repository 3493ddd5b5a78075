"""Options that several commands share: the stack or table, and JSON."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from xorack.aws.client import make_client
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.stack import StackOutputs, find_stack, open_table
from xorack.core.errors import ArgumentError, StateError, shown
from xorack.ops.redrive import Redrive
from xorack.ops.run import Run


class Number(click.FloatRange):
    """A number of a range: click finds NaN in every range."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail("nan is not a number", param, ctx)
        return number


class Duration(Number):
    """Seconds, or a number with its unit: ``90``, ``30m``, ``1.5h``."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return seconds."""
        match = _DURATION.fullmatch(value) if isinstance(value, str) else None
        if match is not None:
            value = str(float(match[1]) * _SECONDS[match[2]])
        return super().convert(value, param, ctx)


_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?) *(s|m|min|h|d)")


@dataclass(frozen=True)
class Target:
    """The resources that the options name: the table, or else the stack."""

    stack: str
    table: str | None
    region: str | None

    def client(self, service: str) -> Any:
        """Create a boto3 client."""
        try:
            return make_client(service, **({"region_name": self.region} if self.region else {}))
        except ValueError as error:  # botocore's error for an invalid region or endpoint
            raise click.ClickException(str(error)) from error

    def find_stack(self, alternative: str = "") -> StackOutputs:
        """Find the stack; an error names --stack, and the alternative to it."""
        try:
            return find_stack(self.stack, self.client)
        except StateError as error:
            raise click.ClickException(f"{error}: name yours with --stack{alternative}") from error

    def open(self) -> tuple[DynamoDBStore, str | None]:
        """Open the table; return it and, unless --table names it, the event bus's name."""
        if self.table is not None:
            return open_table(self.table, self.client("dynamodb")), None
        outputs = self.find_stack(", or its table with --table")
        client = self.client("dynamodb")
        return open_table(outputs.table_name, client, outputs.retention_ms), outputs.bus_name

    def dead_letters(self, url: str | None = None, queue_url: str | None = None) -> Redrive:
        """Open a dead-letter queue, and the queue that its messages go back to.

        By default both are the stack's.
        """
        if url:
            return Redrive(url, queue_url or "", self.client("sqs"))
        outputs = self.find_stack()
        urls = outputs.dead_letter_queue_url, outputs.queue_url
        return Redrive(*urls, self.client("sqs"), outputs.retention_ms)


def _not_empty(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Reject an empty value: a shell makes it of an unset variable."""
    if value == "":
        raise click.BadParameter("the value is empty")
    return value


def _run(_: click.Context, __: click.Parameter, value: str | None) -> Run | None:
    """Check a run's name."""
    try:
        return None if value is None else Run(value)
    except ArgumentError as error:
        raise click.BadParameter(f"{shown(value)}, expected {error.expected}") from error


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
yes_option = click.option("--yes", "-y", is_flag=True, help="Skip the question.")
among_option = functools.partial(click.option, "--among", type=click.File(encoding="utf-8"))
root_option = click.option(
    "--root", multiple=True, help="A part of the root unit's name.  [default: the tag]"
)
text_option = functools.partial(click.option, callback=_not_empty)
run_option = functools.partial(click.option, "--run", metavar="RUN", callback=_run)


def with_tags(run_help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add TAGs and --run to a command, which takes only one of them."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @click.argument("tags", nargs=-1, metavar="[TAG]...")
        @run_option(help=run_help)
        @functools.wraps(command)
        def wrapped(tags: tuple[str, ...], run: Run | None, **arguments: Any) -> Any:
            if tags and run:
                raise click.UsageError("TAG and --run cannot be used together")
            return command(tags=tags, run=run, **arguments)

        return wrapped

    return decorate


def with_run(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add TAGs, --run, --chains and --interval to a command that polls."""

    @with_tags("The chains whose tags begin with RUN/, instead of TAGs.")
    @click.option(
        "--chains",
        type=click.IntRange(min=0),
        help="The number of the run's chains.  [default: those that exist]",
    )
    @click.option(
        "--interval",
        "interval_seconds",
        type=Duration(min=0.1, max=3600),
        default=2.0,
        metavar="TIME",
        help="Seconds between polls, or more if a poll takes long.",
    )
    @functools.wraps(command)
    def wrapped(run: Run | None, chains: int | None, **arguments: Any) -> Any:
        if chains is not None:
            if run is None:
                raise click.UsageError("--chains requires --run")
            run = Run(run.name, chains)
        return command(run=run, **arguments)

    return wrapped


def with_stack(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --stack and --region to a command, as its argument ``target``."""

    @text_option(
        "--stack",
        envvar="XORACK_STACK",
        default="xorack",
        help="The CloudFormation stack; or the prefix of its SSM parameters, or its queue's URL.",
    )
    @text_option("--region", help="The AWS region.  [default: from your AWS configuration]")
    @functools.wraps(command)
    def wrapped(stack: str, region: str | None, table: str | None = None, **arguments: Any) -> Any:
        return command(target=Target(stack, table, region), **arguments)

    return wrapped


def with_table(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --stack, --table and --region to a command, as its argument ``target``."""
    help_text = "The name of the table; replaces --stack."
    return text_option("--table", envvar="XORACK_TABLE", help=help_text)(with_stack(command))
