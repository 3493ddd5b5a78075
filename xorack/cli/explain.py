"""The command `xorack explain`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

import click

from xorack.aws.clock import milliseconds
from xorack.cli import screen
from xorack.cli.options import (
    Target,
    among_option,
    json_option,
    lines_of,
    read_letters,
    run_option,
    with_table,
)
from xorack.client.names import Candidate
from xorack.core.errors import TagNotFound
from xorack.core.text import listed, plural
from xorack.ops.browse import SEARCHED
from xorack.ops.dead_letters import Selector
from xorack.ops.explain import explain_run, run_prefix
from xorack.ops.explain_chain import explain_absence, explain_chain, of_backlog, to_dict
from xorack.ops.run_chains import RunChains
from xorack.ops.status import ChainStatus, failed_children, read_status
from xorack.ops.unit_names import candidates_in, name_text, names_of_chain


@click.command(
    short_help="Explain why a chain failed, or the chains of a run.",
    epilog="Example: xorack explain --run 2026-01-31 --among steps.txt",
)
@click.argument("tag", required=False)
@run_option(help="Explain the failed chains of this run, instead of one chain.")
@among_option(help="Name the outstanding units: a file of names, as for `xorack show`; - is stdin.")
@json_option
@with_table
def explain(
    tag: str | None, run: RunChains | None, among: TextIO | None, as_json: bool, target: Target
) -> int:
    """Explain why a chain failed or does not end, or what the failed chains of a run share.

    For a chain, the command uses the reason, notes, dead letters, counts and times. It also checks
    whether the consumer takes messages, and how many chains of the run have the same cause. For a
    run, it shows each reason with notes, dead letters and names of outstanding units. It also shows
    the properties that distinguish the chains with this reason: parts of the tag, detail, size and
    time. If no chain has failed, it explains the unfinished chains.

    Exit status: 1 if the chain does not exist, or the run has no chains.
    """
    if (tag is None) == (run is None):
        raise click.UsageError(
            "Missing TAG or --run" if run is None else "TAG and --run exclude each other"
        )
    candidates = list(candidates_in(lines_of(among)))
    if run is None:
        return _explain_chain(target, str(tag), candidates, as_json)
    store, letters = target.open(), read_letters(target, Selector(run=run))
    explanation = explain_run(store, run, candidates, letters)
    if as_json:
        screen.print_json(explanation.to_dict())
    else:
        screen.print_properties(explanation.facts())
        for why in of_backlog(target.queues()()):
            screen.say(why.text, error=True)
    return int(not explanation.chains)


def _explain_chain(target: Target, tag: str, candidates: Sequence[Candidate], as_json: bool) -> int:
    """Print why a chain failed, does not end or does not exist; return the exit status."""
    store, status = target.open(), None
    letters, backlog = read_letters(target, Selector(tag=tag)), target.queues()()
    try:
        status = read_status(store, tag)
    except TagNotFound:
        why = explain_absence(tag, target.title, letters, backlog)
    else:
        now, likes = milliseconds(), []
        if prefix := "" if status.chain.status == "acked" else run_prefix(tag):
            part = store.scan_part(SEARCHED, lambda _: None, prefix=prefix)
            likes = [ChainStatus(chain, now) for chain in part.chains]
        why = explain_chain(status, letters, backlog, likes, failed_children(store, status))
    if as_json:
        screen.print_json(to_dict(tag, status, why))
        return int(status is None)
    facts = [("tag", tag), ("status", status.chain.status if status else "not found")]
    facts += listed("why", [each.text for each in why])
    if status is not None and status.chain.status != "acked":
        names = names_of_chain(status, candidates)
        units = sorted(name_text(name) for name in names.values())
        if unnamed := len(status.outstanding) - len(names):
            units += [f"{plural(unnamed, 'unit')} without a name"] if candidates else []
        elif status.unstarted_units:
            units.append(status.outstanding_note)
        facts += listed("outstanding", units)
    screen.print_properties(facts)
    return int(status is None)
