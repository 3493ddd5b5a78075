"""The command `xorack show`."""

from __future__ import annotations

import shlex
from typing import TextIO

import click

from xorack.cli import screen
from xorack.cli.options import Target, among_option, json_option, lines_of, read_letters, with_table
from xorack.core.errors import TagNotFound
from xorack.core.text import cut
from xorack.ops.dead_letters import Selector
from xorack.ops.status import read_status
from xorack.ops.unit_names import candidates_in, name_hint, name_text, names_in

_SHOWN = 5


@click.command(epilog="Example: xorack show order/18 --among lines-of-the-order.txt")
@click.argument("tag")
@among_option(help="Name the outstanding units: a file of names, one a line; - is stdin.")
@json_option
@with_table
def show(tag: str, among: TextIO | None, as_json: bool, target: Target) -> None:
    """Show a chain, its outstanding units and dead letters.

    A unit's id is a hash, so `show` finds its name only among candidates: names that steps may have
    given to their children. A line of the file is a name. A JSON list is a path of the names on
    each level below the root: ["page 2", "line 7"].

    If the stack is known and has dead letters, the command reads them. Reading hides them from
    other readers for a short time, and SQS counts it as a receive. `xorack explain TAG` interprets
    these facts.
    """
    candidates = list(candidates_in(lines_of(among)))
    try:
        status = read_status(target.open(), tag)
    except TagNotFound as error:
        screen.say_backlog(target.queues()())
        more = f"xorack explain {shlex.quote(tag)} says more"
        if "/" not in tag:
            more = f"if it is a run: xorack explain --run {shlex.quote(tag)}"
        raise click.ClickException(f"{error}; {more}") from error
    letters = read_letters(target, Selector(tag=tag))
    units, partitions = status.outstanding, status.partitions
    known_names = names_in(units, candidates, tag)
    if candidates and units and not known_names:
        screen.say(f"outstanding units without a name: {name_hint(candidates)}", error=True)
    if as_json:
        names = partitions | known_names
        fields = ("id", "kind", "error")
        screen.print_json(
            {
                **status.to_dict(),
                "outstanding_names": {f"{unit:016x}": names.get(unit) for unit in units},
                "dead_letters": [
                    {name: getattr(letter, name) for name in fields} for letter in letters
                ],
            }
        )
    else:
        texts = partitions | {unit: name_text(name) for unit, name in known_names.items()}
        lines = cut(
            [f"{letter.kind}: {letter.error or letter.reason}" for letter in letters], _SHOWN
        )
        if letters:  # a tag with hidden characters cannot be pasted into a shell
            which = f"--tag {shlex.quote(tag)}" if tag.isprintable() else letters[0].id
            lines.append(f"xorack dead-letters show {which}")
        screen.print_properties(screen.properties_of(status, texts, lines))
    if not status.chain.final:
        screen.say_backlog(target.queues()())
