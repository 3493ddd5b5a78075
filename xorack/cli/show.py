"""The commands `xorack show` and `xorack explain`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TextIO

import click

from xorack.cli import screen
from xorack.cli.error_messages import EXPECTED, error_text
from xorack.cli.options import Target, among_option, json_option, lines_of, run_option, with_table
from xorack.client.names import Candidate
from xorack.core.errors import TagNotFound
from xorack.core.text import cut
from xorack.ops.dead_letters import DeadMessage, Selector
from xorack.ops.explain import (
    candidates_in,
    explain_run,
    name_hint,
    name_text,
    names_in,
    run_facts,
)
from xorack.ops.run_chains import RunChains
from xorack.ops.status import read_status

_LETTERS = 1_000
_SHOWN = 5


@click.command(epilog="Example: xorack show order/18 --among lines-of-the-order.txt")
@click.argument("tag")
@among_option(help="Name the outstanding units: a file of names, one a line; - is stdin.")
@json_option
@with_table
def show(tag: str, among: TextIO | None, as_json: bool, target: Target) -> None:
    """Show a chain, its outstanding units and dead letters.

    A unit's id is a hash, so its name is found only among candidates: the names that the steps gave
    to their children. In the file, a line is a name. A JSON list is a path, the name at each level
    below the root: ["page 2", "line 7"].

    If the stack is known and has dead letters, reads these. That hides them from other readers for
    a short time, and SQS counts it as a receive.
    """
    _show(target, tag, list(candidates_in(lines_of(among))), as_json)


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

    Of a chain: what `xorack show` has. Of a run: reasons, notes, names of outstanding units, dead
    letters, and what tells the failed chains from the others: parts of the tag, detail, size, time.
    If none has failed, it explains the unfinished ones.

    Exit status: 1 if the run has no chain.
    """
    if (tag is None) == (run is None):
        raise click.UsageError("Missing TAG or --run" if run is None else "TAG excludes --run")
    candidates = list(candidates_in(lines_of(among)))
    if run is None:
        _show(target, str(tag), candidates, as_json)
        return 0
    store, letters = target.open(), _dead_letters(target, Selector(run=run))
    reasons = {tag: f"{one.kind}: {one.reason}" for one in letters for tag in one.tags}
    found = explain_run(store, run, candidates, reasons)
    if as_json:
        screen.print_json(found)
    else:
        screen.print_properties(run_facts(found))
    return int(not found["chains"])


def _show(target: Target, tag: str, candidates: Sequence[Candidate], as_json: bool) -> None:
    try:
        status = read_status(target.open(), tag)
    except TagNotFound as error:
        screen.say_backlog(target.queues()())
        if "/" in tag:
            raise
        run = f"if it is a run: xorack explain --run {shlex.quote(tag)}"
        raise click.ClickException(f"{error}; {run}") from error
    letters = _dead_letters(target, Selector(tag=tag))
    units, partitions = status.outstanding, status.partitions
    found = names_in(units, candidates, tag)
    if candidates and units and not found:
        screen.say(f"outstanding units without a name: {name_hint(candidates)}", error=True)
    if as_json:
        names = partitions | found
        shown = ("id", "kind", "error")
        screen.print_json(
            {
                **status.to_dict(),
                "outstanding_names": {f"{unit:016x}": names.get(unit) for unit in units},
                "dead_letters": [{name: getattr(one, name) for name in shown} for one in letters],
            }
        )
    else:
        texts = partitions | {unit: name_text(name) for unit, name in found.items()}
        lines = cut([f"{one.kind}: {one.error or one.reason}" for one in letters], _SHOWN)
        if letters:  # a tag with hidden characters is shown as no shell takes it
            which = f"--tag {shlex.quote(tag)}" if tag.isprintable() else letters[0].id
            lines.append(f"xorack dead-letters show {which}")
        screen.print_properties(screen.properties_of(status, texts, lines))
    if not status.chain.final:
        screen.say_backlog(target.queues()())


def _dead_letters(target: Target, selector: Selector) -> list[DeadMessage]:
    """Return the selected dead letters; none if only the table is known, or SQS does not say."""
    backlog = target.queues()()
    if backlog is None or not backlog.dead_letters:
        return []
    try:
        survey = target.open_dead_letters().survey(selector, limit=_LETTERS, keep=_LETTERS)
    except EXPECTED as error:
        screen.say(f"the dead letters cannot be read: {error_text(error)}", error=True)
        return []
    if not survey.complete:
        screen.say(f"{survey.read:,} of about {survey.total:,} dead letters were read", error=True)
    return survey.messages
