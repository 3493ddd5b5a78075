"""``python -m measure``: the command and its options."""

from __future__ import annotations

import json
import secrets
import signal
import sys
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime, timezone
from functools import cache, partial
from typing import Any

import click

from measure.options import Options
from measure.report import Totals, to_dict, to_text
from measure.run import Measurement
from xorack.cli import options as cli
from xorack.cli import screen
from xorack.cli.commands import run
from xorack.core.errors import ArgumentError
from xorack.core.text import plural


def _with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that `Options` declares to a command."""
    for one in (one for one in reversed(fields(Options)) if "help" in one.metadata):
        range_of: Any = {float: cli.Number, int: click.IntRange}.get(type(one.default))
        option = click.option(
            f"--{one.name.replace('_', '-')}",
            default=one.default,
            show_default=True,
            help=one.metadata["help"],
            type=range_of and range_of(*one.metadata["range"]),
        )
        command = option(command)
    return command


@click.command(
    context_settings={"max_content_width": 100},
    epilog="Example: python -m measure --stack test --lose 0.05",
)
# Without a default: it could be somebody's production.
@cli.text_option("--stack", required=True, help="The CloudFormation stack to load.")
@cli.text_option("--region", help="The AWS region.  [default: as your AWS configuration says]")
@click.option(
    "--max-cost",
    type=cli.Number(0, 1e6),
    default=1.0,
    show_default=True,
    help="Refuse a load whose upper estimate is above this.",
)
@click.option("--yes", is_flag=True, help="Do not ask before the start.")
@click.option("--json", "json_file", type=click.File("w", lazy=False), help="Write JSON, too.")
@click.option("--seed", type=click.IntRange(0, (1 << 63) - 1), help="Replays a load.")
@_with_options
def measure(stack: str, region: str | None, max_cost: float, yes: bool, **others: Any) -> int:
    """Load a deployed stack, judge each chain, and report latency and throughput.

    Use a stack of its own: lost units fail chains, and alarms see that. Exit status: 0 if all is as
    expected; 1 for violations and errors; 2 for invalid arguments; 130 when interrupted.
    """
    if others["seed"] is None:
        others["seed"] = secrets.randbits(32)
    try:
        options = Options(**{one.name: others[one.name] for one in fields(Options)})
    except ArgumentError as error:
        raise click.UsageError(str(error)) from error
    name = f"measure-{datetime.now(timezone.utc):%Y%m%d}-{secrets.token_hex(4)}"
    totals = Totals.of(options.plans(name))
    most = totals.upper_estimate(options.duplicate)
    screen.say(
        f"{plural(totals.chains, 'chain')}, {plural(totals.units, 'unit')}, seed {options.seed}: "
        f"at most {most:,.2f} USD"
    )
    if most > max_cost:
        raise click.UsageError(f"this is above --max-cost {max_cost:g}: send less, or raise it")
    target = cli.Target(stack, None, region)
    outputs = target.find_stack()
    if not yes:
        click.confirm(f"Load {outputs.queue_url}?", abort=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    say = partial(screen.say, error=True)
    work = Measurement(options, name, outputs, cache(target.client), say)
    try:
        result = work.measure()
    except BaseException:
        for line in work.left_behind():
            screen.say(f"left behind: {line}", error=True)
        raise
    report = to_dict(result)
    if others["json_file"]:
        json.dump(report, others["json_file"], indent=2)
    for line in to_text(report):
        screen.say(line)
    return int(bool(report["violations"]))


if __name__ == "__main__":
    sys.exit(run(command=measure))
