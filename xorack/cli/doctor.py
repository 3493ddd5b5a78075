"""The command `xorack doctor`."""

from __future__ import annotations

import re
import secrets
import signal
import sys
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from functools import cache, partial
from typing import Any

import click
from rich.text import Text

from xorack.aws.stack import StackOutputs, describe_stack
from xorack.cli import screen
from xorack.cli.error_messages import EXPECTED, error_text
from xorack.cli.options import Duration, Target, json_option, with_target, yes_option
from xorack.core.errors import StateError
from xorack.core.text import plural, printable
from xorack.ops.doctor import report
from xorack.ops.doctor.check import Check
from xorack.ops.doctor.checks import NAMES, VITAL, check_all
from xorack.ops.doctor.load import Load
from xorack.ops.doctor.reading import Reader
from xorack.ops.doctor.trial import Trial, TwoChains

_UNITS = 10
"""The units of each chain of a load. A chain sends one more request than units."""
_MARKS = {"ok": ("✓", "green"), "failed": ("✗", "red"), "not checked": ("–", "yellow")}
_INDENT = 23


class Rate(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """Requests a second, such as ``200/s``, ``12000/min`` or ``200``."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        match = re.fullmatch(r"([0-9]{1,7}(?:\.[0-9]+)?)(/s|/min)?", str(value))
        rate = float(match[1]) / (60 if match[2] == "/min" else 1) if match else 0.0
        if not 1 <= rate <= 100_000:
            self.fail(f"{value!r}, expected 1/s to 100000/s, such as 200/s", param, ctx)
        return rate


@click.command(
    short_help="Examine a stack, and say what to repair.",
    epilog="Example: xorack doctor --stack test --load 200/s --for 60",
)
@click.option("--load", "rate", type=Rate(), metavar="RATE", help="Send a load: requests a second.")
@click.option(
    "--for",
    "seconds",
    type=Duration(min=1, max=86_400),
    metavar="TIME",
    help="How long the load lasts: seconds, or 30m, 2h.  [default: 60]",
)
@click.option("--no-chains", is_flag=True, help="Only read: send no chains, create nothing.")
@click.option(
    "--except",
    "accepted",
    multiple=True,
    type=click.Choice([*NAMES, *report.CHAINS, report.LOAD]),
    metavar="NAME",
    help="The exit status does not depend on this check. May be repeated.",
)
@yes_option
@json_option
@with_target()
def doctor(
    rate: float | None,
    seconds: float | None,
    no_chains: bool,
    accepted: tuple[str, ...],
    yes: bool,
    as_json: bool,
    target: Target,
) -> int:
    """Find what is wrong with a deployed stack, and say what to do about it.

    The command reads queues, table, functions, bus and alarms. Then it sends two chains: one is
    acked, and one fails. A temporary rule and a temporary queue receive their events. The failed
    chain sets off the alarm ChainsFailed.

    With --load, the command sends chains with faults at this rate, and verifies each of them. It
    shows throughput, latencies and an upper bound of the cost.

    Exit status: 0 if all is well; 1 if a check failed, or after an error.
    """
    _check_options(rate, seconds, no_chains, yes, as_json)
    client, reports = cache(target.client), None
    try:
        stack = describe_stack(target.stack, client)
    except StateError as error:
        raise click.ClickException(f"{error}: name yours with --stack") from error
    checks = check_all(Reader(stack, client).facts())
    _show(checks, as_json)
    vital = [check.name for check in checks if check.verdict == "failed" and check.name in VITAL]
    # A SIGTERM ends the command like Ctrl-C, so that the rule and the queue are removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if not no_chains and vital:
        chains = _not_sent(f"no chain can end: first repair {', '.join(vital)}")
    elif not no_chains:
        trial = _trial(TwoChains(chains=2), target, client)
        chains = _try(trial, report.CHAINS, lambda: report.check_chains(trial, trial.conduct()[1]))
    else:
        chains = _not_sent("--no-chains was given")
    _show(chains, as_json)
    checks += chains
    if rate:
        load = [Check(report.LOAD, "not checked", "the two chains have not passed")]
        if all(check.verdict == "ok" for check in chains):
            load, reports = _load(rate, seconds or 60.0, target, client, yes)
        _show(load, as_json)
        checks += load
    return _finish(checks, accepted, reports, as_json)


def _check_options(
    rate: float | None, seconds: float | None, no_chains: bool, yes: bool, as_json: bool
) -> None:
    if seconds is not None and rate is None:
        raise click.UsageError("--for requires --load")
    if rate is not None and no_chains:
        raise click.UsageError("--load and --no-chains cannot be used together")
    if rate is not None and as_json and not yes:
        raise click.UsageError("--json with --load requires --yes")


def _trial(load: Load, target: Target, client: Any) -> Trial:
    name = f"doctor-{datetime.now(timezone.utc):%Y%m%d}-{secrets.token_hex(4)}"
    outputs: StackOutputs = target.find_stack()
    sweeper = describe_stack(target.stack, client).outputs.get("SweeperName")
    return Trial(load, name, outputs, client, partial(screen.say, error=True), sweeper)


def _try(trial: Trial, names: Iterable[str], conduct: Callable[[], list[Check]]) -> list[Check]:
    """Conduct a trial. An error of AWS is a failed check. Print what could not be removed."""
    try:
        return conduct()
    except EXPECTED as error:
        advice = "see the permissions in docs/doctor.md, or use --no-chains"
        return [Check(name, "failed", error_text(error), advice) for name in names]
    finally:
        for line in trial.left_behind:
            screen.say(f"left behind: {line}", error=True)


def _not_sent(reason: str) -> list[Check]:
    return [Check(name, "not checked", reason) for name in report.CHAINS]


def _load(
    rate: float, seconds: float, target: Target, client: Any, yes: bool
) -> tuple[list[Check], dict[str, Any] | None]:
    load = Load(chains=max(1, round(rate * seconds / (_UNITS + 1))), sizes=(_UNITS,), rate=rate)
    cost = f"at most {report.upper_estimate(load):,.2f} USD"
    question = f"Send {plural(load.chains, 'chain')} in {seconds:g} s to {target.stack}, {cost}?"
    if not yes and not screen.ask(question):
        return [Check(report.LOAD, "not checked", "it was declined")], None
    trial, figures = _trial(load, target, client), []

    def conduct() -> list[Check]:
        sent, outcome = trial.conduct()
        figures.append(report.figures(load, sent, outcome))
        return [report.check_load(trial, sent, outcome)]

    checks = _try(trial, [report.LOAD], conduct)
    return checks, figures[0] if figures else None


def _show(checks: Iterable[Check], as_json: bool) -> None:
    """Print a line for each check, and the advice in a second line."""
    if as_json:
        return
    out = screen.console()
    for name, verdict, finding, advice in checks:
        mark, colour = _MARKS[verdict]
        reason = f"not checked: {finding}" if verdict == "not checked" else finding
        line = Text(f"{mark} ", style=colour)
        out.print(line.append(f"{name:<{_INDENT - 2}}{printable(reason)}", style="default"))
        if verdict == "failed":
            out.print(Text(f"{'':<{_INDENT}}→ {printable(advice)}"))
    sys.stdout.flush()


def _finish(
    checks: list[Check], accepted: tuple[str, ...], figures: dict[str, Any] | None, as_json: bool
) -> int:
    failed = [check for check in checks if check.verdict == "failed" and check.name not in accepted]
    if as_json:
        value = {"ok": not failed, "checks": [check._asdict() for check in checks]}
        screen.print_json(value | ({"load": figures} if figures else {}))
        return int(bool(failed))
    if figures:
        screen.say()
        for line in report.chart(figures, min(screen.console().width, 100)):
            screen.say(line)
    screen.say()
    screen.say(plural(len(failed), "problem") if failed else "all is well")
    return int(bool(failed))
