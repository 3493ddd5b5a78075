"""How redriving looks: the reasons, the question, the progress, the result."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any, TypeAlias

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from xorack.cli import screen
from xorack.cli.error_messages import printable
from xorack.ops.dead_letters import KINDS, Kind, Moved, Survey, move, survey

__all__ = ["Chosen", "run_redrive"]

Chosen: TypeAlias = Kind
"""The worst kind of letter that goes back; those that are worth more go, too."""

_SHOWN = 20
"""Reasons: whoever sends rubbish may be refused for as many as he likes."""
_STAYS = {
    "rejected": "refused for how their chains were. If you mended those: --all sends them, too",
    "malformed": "of no form that any consumer takes. --force sends them all the same",
}


def run_redrive(
    client: Any,
    dead_letters_url: str,
    queue_url: str,
    chosen: Chosen,
    *,
    yes: bool,
    only_look: bool,
    as_json: bool,
) -> int:
    """Show why letters are dead, ask, and send them back.

    Args:
        client: A boto3 SQS client.
        dead_letters_url: Where they are.
        queue_url: Where they go.
        chosen: Which of them.
        yes: Whether not to ask.
        only_look: Whether to move none.
        as_json: Whether a program reads it; it is not asked.

    Returns:
        The exit status.
    """
    kinds = KINDS[: KINDS.index(chosen) + 1]
    found = survey(dead_letters_url, client)
    report = {
        "letters": found.about,
        "seen": found.seen,
        "complete": found.complete,
        "groups": [{**asdict(one), "chosen": one.kind in kinds} for one in found.groups],
    }
    going = found.count(kinds)
    if as_json and (only_look or not yes or not (going or not found.complete)):
        screen.print_json({**report, "moved": 0, "by": None})
        return 0
    if not as_json:
        _print_survey(found, kinds)
        if only_look or not found.seen:
            return 0
        if not going and found.complete:
            screen.say("nothing to send back")
            return 0
        if not yes and not _agreed(going, found):
            screen.say("nothing was moved")
            return 1
    done = _move(client, dead_letters_url, queue_url, kinds, found, quiet=as_json)
    if as_json:
        screen.print_json({**report, "moved": done.moved, "by": done.by})
        return 0
    if done.why_by_hand is not None:
        screen.say(f"one by one: SQS does not move them itself ({printable(done.why_by_hand)})")
    left = f"; {_letters(done.left)} stay{'s' if done.left == 1 else ''}" if done.left else ""
    screen.say(f"{_letters(done.moved)} sent back{left}")
    return 0


def _letters(count: int) -> str:
    return f"{count:,} dead letter{'' if count == 1 else 's'}"


def _print_survey(found: Survey, kinds: tuple[Kind, ...]) -> None:
    if not found.seen:
        screen.say("no dead letters")
        return
    rows = [
        (
            f"{one.count:,}",
            "goes back" if one.kind in kinds else "stays",
            printable(one.reason),
            "" if one.example is None else printable(one.example),
        )
        for one in found.groups[:_SHOWN]
    ]
    screen.print_rows(("LETTERS", "", "REASON", "FOR EXAMPLE"), rows, right={0}, fold={2, 3})
    if further := found.groups[_SHOWN:]:
        count = sum(one.count for one in further)
        reasons = f"{len(further)} further reason{'' if len(further) == 1 else 's'}"
        screen.say(f"and {_letters(count)} of {reasons}: --json has all")
    if not found.complete:
        screen.say(f"the first {found.seen:,} of about {found.about:,}")
    for kind in KINDS:
        if kind not in kinds and (count := found.count([kind])):
            screen.say(f"{_letters(count)} {'is' if count == 1 else 'are'} {_STAYS[kind]}")


def _agreed(going: int, found: Survey) -> bool:
    """Ask. Where nobody can answer, say what to do instead."""
    many = _letters(going) if found.complete else "all like these of the dead letters"
    try:
        return click.confirm(f"Send {many} back to the queue?")
    except click.Abort:
        if sys.stdin.isatty():
            raise
        screen.say("")
        raise click.ClickException("nobody to ask, nothing was moved: --yes does not ask") from None


def _move(
    client: Any,
    dead_letters_url: str,
    queue_url: str,
    kinds: tuple[Kind, ...],
    found: Survey,
    *,
    quiet: bool,
) -> Moved:
    out = screen.console()
    bar = Progress(
        TextColumn("sent back"),
        BarColumn(bar_width=40),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
        TimeRemainingColumn(compact=True),
        console=out,
        disable=quiet or not screen.can_redraw(out),
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=found.count(kinds) if found.complete else found.about)
        return move(
            dead_letters_url,
            queue_url,
            kinds,
            found,
            client,
            progress=lambda moved, total: bar.update(task, completed=moved, total=total),
        )
