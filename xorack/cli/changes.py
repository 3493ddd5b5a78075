"""The commands that change chains by hand, `xorack fail` and `xorack extend`."""

from __future__ import annotations

from typing import Any, Literal

import click

from xorack.cli import screen
from xorack.cli.error_messages import EXPECTED, error_text
from xorack.cli.options import (
    Duration,
    Target,
    json_option,
    run_option,
    with_table,
    yes_option,
)
from xorack.core.checks import MAX_TIMEOUT_SECONDS
from xorack.core.errors import NotAChainError
from xorack.core.event import rfc3339
from xorack.core.text import plural
from xorack.ops.changes import Changed, ChangeResult, NotChanged, change_chains, unfinished_tags
from xorack.ops.run_chains import RunChains

Change = Literal["fail", "extend"]
_tags = click.argument("tags", nargs=-1, metavar="[TAG]...")
_run = run_option(help="All unfinished chains whose tags begin with RUN/, instead of TAGs.")


@click.command(epilog='Example: xorack fail "database/file13" --reason "the file was withdrawn"')
@_tags
@_run
@yes_option
@click.option("--reason", required=True, help="The reason; the chain's event repeats it.")
@json_option
@with_table
def fail(reason: str, **options: Any) -> int:
    """End chains as failed, now, and publish their events.

    With --run, the command reads the entire table and asks for a confirmation. With --table, the
    stack's sweeper publishes the events.

    Exit status: 0; 1 if a chain does not exist or has already ended.
    """
    return _change("fail", {"reason": reason}, **options)


@click.command(epilog='Example: xorack extend "database/file13" --timeout 7200')
@_tags
@_run
@yes_option
@click.option(
    "--timeout",
    "timeout_seconds",
    required=True,
    type=Duration(min=0, min_open=True, max=MAX_TIMEOUT_SECONDS),
    metavar="TIME",
    help="The time from now to the new deadline: seconds, or 30m, 2h, 1d.",
)
@json_option
@with_table
def extend(timeout_seconds: float, **options: Any) -> int:
    """Set the deadline of chains to a time from now.

    The new deadline may be earlier than the old one. An idle timeout starts again. A pending chain
    gets the deadline when it is created. With --run, the command reads the entire table and asks
    for a confirmation.

    Exit status: 0; 1 if a chain does not exist or has already ended.
    """
    return _change("extend", {"timeout": timeout_seconds}, **options)


def _change(
    op: Change,
    fields: dict[str, Any],
    *,
    tags: tuple[str, ...],
    run: RunChains | None,
    target: Target,
    yes: bool,
    as_json: bool,
) -> int:
    """Change the chains and print a line for each, or for a run the number and the problems."""
    if bool(tags) == (run is not None):
        problem = "TAG and --run cannot be used together" if tags else "Missing TAG or --run"
        raise click.UsageError(problem)
    if run and as_json and not yes:
        raise click.UsageError("--json with --run requires --yes")
    store, problems = target.open(), 0
    if run:
        invalid: list[NotAChainError] = []
        tags = tuple(unfinished_tags(store, run, invalid.append))
        problems = screen.print_invalid(invalid)
        question = f"{op.capitalize()} {plural(len(tags), 'unfinished chain')} of run {run.name}?"
        if tags and not yes and not screen.ask(question):
            screen.say("nothing was changed")
            return 1
    changed, bus = 0, target.open_bus(store)
    for result in change_chains(store, op, dict.fromkeys(tags), fields, bus, _described):
        problem = _problem(result, run)
        changed += isinstance(result, Changed)
        problems += problem != ""
        if as_json:
            screen.print_json(_to_dict(result))
        elif isinstance(result, Changed) and run is None:
            screen.say(_line(op, result))
        if problem and (not as_json or isinstance(result, NotChanged)):
            screen.say(f"error: {problem}", error=True)
    if run and not as_json:
        done = f"{plural(changed, 'chain')} of run {run.name}: {op}ed"
        screen.say(done if tags else f"no unfinished chains of run {run.name}")
    return int(problems > 0)


def _described(error: Exception) -> str:
    """Return the text of an expected error; raise any other error again."""
    if isinstance(error, EXPECTED):
        return error_text(error)
    raise error


def _to_dict(result: ChangeResult) -> dict[str, Any]:
    fields = {"error": result.reason} if isinstance(result, NotChanged) else result.status.to_dict()
    return {"tag": result.tag, "changed": isinstance(result, Changed), **fields}


def _problem(result: ChangeResult, run: RunChains | None) -> str:
    """Return why a chain did not change.

    Return "" if it changed, or if it had ended before in a run.
    """
    if isinstance(result, NotChanged):
        return result.reason
    chain = result.status.chain
    if isinstance(result, Changed) or (run and chain.final):
        return ""
    return f"{result.tag} is {chain.status} already: nothing changed"


def _line(op: Change, result: Changed) -> str:
    status = result.status
    tag, chain = result.tag, status.chain
    if op == "extend":
        pending = "" if chain.status != "pending" else " once it is created"
        return (
            f"{tag}: {chain.status}; its deadline is {rfc3339(chain.deadlines.deadline)}{pending}"
        )
    if not chain.final:
        return f"{tag}: pending; it fails as soon as it is created"
    event = "the sweeper publishes its event" if chain.reports.event_pending else "event published"
    return f"{tag}: failed; {event}"
