"""The commands `xorack show` and `xorack explain`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

import click

from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.cli import screen
from xorack.cli.options import (
    Target,
    among_option,
    json_option,
    lines_of,
    run_option,
    with_table,
)
from xorack.client.names import Candidate
from xorack.core.errors import TagNotFound
from xorack.ops.dead_letters import Selector
from xorack.ops.explain import candidates_in, explain_run, name_text, names_in, run_facts
from xorack.ops.run_chains import RunChains
from xorack.ops.status import ChainStatus, read_status

_LETTERS = 1_000


@click.command(epilog="Example: xorack show order/18 --among lines-of-the-order.txt")
@click.argument("tag")
@among_option(help="Name the outstanding units: a file of names, one a line; - is stdin.")
@json_option
@with_table
def show(tag: str, among: TextIO | None, as_json: bool, target: Target) -> None:
    """Show the state, detail and outstanding units of a chain.

    A unit's id is a hash, so its name is found only among candidates: the names that the steps gave
    to their children. In the file, a line is a name. A JSON list is a path, the name at each level
    below the root: ["page 2", "line 7"].
    """
    status = _read(target, target.open(), tag)
    _print(status, candidates_in(lines_of(among)), as_json)
    if not status.chain.final:
        screen.say_backlog(target.queues()())


@click.command(
    short_help="Say why a chain failed, or the chains of a run.",
    epilog="Example: xorack explain --run 2026-01-31 --among steps.txt",
)
@click.argument("tag", required=False)
@run_option(help="Explain the failed chains of this run, instead of one chain.")
@among_option(help="Name the outstanding units: a file of names, as for `xorack show`; - is stdin.")
@json_option
@with_table
def explain(
    tag: str | None,
    run: RunChains | None,
    among: TextIO | None,
    as_json: bool,
    target: Target,
) -> int:
    """Say why a chain failed, or what the failed chains of a run have in common.

    Of a chain: what `xorack show` has, and its dead-lettered messages, if the stack is known. Of a
    run: reasons, notes, names of outstanding units, and what tells the failed chains from the
    others: parts of the tag, detail, size, time. If none has failed, it explains the unfinished
    ones.

    Exit status: 1 if the run has no chain.
    """
    if (tag is None) == (run is None):
        raise click.UsageError("Missing TAG or --run" if run is None else "TAG excludes --run")
    store, candidates = target.open(), list(candidates_in(lines_of(among)))
    if run:
        found = explain_run(store, run, candidates, _reasons(target, run))
        if as_json:
            screen.print_json(found)
        else:
            screen.print_properties(run_facts(found))
        return int(not found["chains"])
    status = _read(target, store, str(tag))
    _print(status, candidates, as_json, _letters(target, str(tag)))
    return 0


def _read(target: Target, store: DynamoDBStore, tag: str) -> ChainStatus:
    """Read a chain; if there is none, say what waits in the queues."""
    try:
        return read_status(store, tag)
    except TagNotFound:
        screen.say_backlog(target.queues()())
        raise


def _print(
    status: ChainStatus,
    candidates: Iterable[Candidate],
    as_json: bool,
    letters: list[str] | None = None,
) -> None:
    tag, units = status.chain.tag, status.outstanding
    found, partitions = names_in(units, candidates, tag), status.partitions
    if as_json:
        names = partitions | found
        named = {"outstanding_names": {f"{unit:016x}": names.get(unit) for unit in units}}
        more = {} if letters is None else {"dead_letters": letters}
        screen.print_json({**status.to_json(), **named, **more})
    else:
        texts = partitions | {unit: name_text(name) for unit, name in found.items()}
        screen.print_status(status, texts, letters or ())


def _reasons(target: Target, run: RunChains) -> dict[str, str]:
    """Return reasons of a run's dead-lettered messages by tag; none if only the table is known."""
    if target.table is not None:
        return {}
    survey = target.open_dead_letters().survey(Selector(run=run), limit=_LETTERS, keep=_LETTERS)
    return {tag: f"{one.kind}: {one.reason}" for one in survey.messages for tag in one.tags}


def _letters(target: Target, tag: str) -> list[str]:
    """Describe the chain's dead-lettered messages; none if only the table is known."""
    if target.table is not None:
        return []
    survey = target.open_dead_letters().survey(Selector(tag=tag), limit=_LETTERS)
    return [f"{group.count:,} {group.kind}: {group.reason}" for group in survey.groups]
