"""The command `xorack explain`."""

from __future__ import annotations

from typing import TextIO

import click

from xorack.cli import screen
from xorack.cli.options import (
    Target,
    among_option,
    json_option,
    root_option,
    run_option,
    with_table,
)
from xorack.core.event import rfc3339
from xorack.ops.among import candidates_in
from xorack.ops.dead_letters import Selector
from xorack.ops.explain import explain_run, names_in
from xorack.ops.run import Run
from xorack.ops.status import ChainStatus, read_status
from xorack.ops.text import plural, printable, span

_LETTERS = 1_000


@click.command(
    short_help="Say why a chain failed, or the chains of a run.",
    epilog="Example: xorack explain --run 2026-01-31 --among steps.txt",
)
@click.argument("tag", required=False)
@run_option(help="Explain the failed chains of this run, instead of one chain.")
@among_option(help="Name the outstanding units: a file of names, as for `xorack show`; - is stdin.")
@root_option
@json_option
@with_table
def explain(
    tag: str | None,
    run: Run | None,
    among: TextIO | None,
    root: tuple[str, ...],
    as_json: bool,
    target: Target,
) -> int:
    """Say why a chain failed, or what the failed chains of a run have in common.

    Of a chain: what is outstanding, the last request, what came after the end, and its
    dead-lettered messages, if the stack is known. Of a run: reasons, notes, names of outstanding
    units, and what tells the failed chains from the others: parts of the tag, detail, size, time.
    If none has failed, it explains the unfinished ones.

    Exit status: 1 if the run has no chain.
    """
    if (tag is None) == (run is None):
        raise click.UsageError("Missing TAG or --run" if run is None else "TAG excludes --run")
    if root and (among is None or run):
        raise click.UsageError("--root goes with TAG and --among")
    store, _ = target.open()
    candidates = list(candidates_in(among)) if among else []
    if run:
        found = explain_run(store, run, candidates)
        if as_json:
            screen.print_json(found.to_json())
        else:
            screen.print_properties((n, printable(text)) for n, text in found.properties())
        return int(not found.chains)
    status = read_status(store, str(tag))
    names = names_in(status, candidates, *root)
    letters = _letters(target, status.chain.tag)
    if as_json:
        more = {"outstanding_names": names, "dead_letters": letters}
        screen.print_json({**status.to_json(), **more})
    else:
        lines = [*_lines(status), *_outstanding(status, names)]
        lines += [("" if n else "dead letters", text) for n, text in enumerate(letters)]
        screen.print_properties((name, printable(text)) for name, text in lines)
    return 0


def _lines(status: ChainStatus) -> list[tuple[str, str]]:
    chain = status.chain
    finished = f"{chain.finished:,} of {plural(chain.started, 'unit')} finished"
    lines = [("tag", chain.tag), ("status", f"{chain.status}: {status.reason or finished}")]
    if status.reason:
        lines.append(("progress", finished))
    if status.note_text:
        lines.append(("why", status.note_text))
    last = "no request has finished or started units since the create"
    if chain.last_stamp_at is not None:
        ago = span(max((chain.ended_at or status.now) - chain.last_stamp_at, 0))
        before = "before the end" if chain.final else "ago"
        last = f"{rfc3339(chain.last_stamp_at)}, {ago} {before}"
    lines.append(("last step", last))
    if chain.status == "pending":
        lines.append(("create", "has not come: its producer died, or its message is dead-lettered"))
    if status.after_end:
        lines.append(
            ("after end", f"{status.after_end}, the last at {rfc3339(chain.last_late_at)}")
        )
    return lines


def _outstanding(status: ChainStatus, names: dict[str, str | None]) -> list[tuple[str, str]]:
    texts = [f"{unit}  {name or 'no candidate has this id'}" for unit, name in names.items()]
    if not any(names.values()):
        texts = [*names]
    if status.chain.status != "acked" and status.outstanding_note:
        texts.append(status.outstanding_note)
    return [("" if place else "outstanding", text) for place, text in enumerate(texts)]


def _letters(target: Target, tag: str) -> list[str]:
    """Describe the chain's dead-lettered messages; none if only the table is known."""
    if target.table is not None:
        return []
    survey = target.dead_letters().survey(Selector(tag=tag), limit=_LETTERS)
    return [f"{group.count:,} {group.kind}: {group.reason}" for group in survey.groups]
