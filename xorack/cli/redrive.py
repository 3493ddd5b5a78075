"""The output of `xorack redrive`: the reasons, the question, the progress, the result."""

from __future__ import annotations

import sys
from dataclasses import asdict

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from xorack.cli import screen
from xorack.ops.dead_letters import KINDS, Kind
from xorack.ops.redrive import MoveResult, Redrive, Survey
from xorack.ops.text import plural, printable

__all__ = ["run_redrive"]

_DAY_MS = 86_400_000
_MAX_REASONS = 20
"""Reasons shown: a faulty sender may cause any number."""
_STAY = {
    "rejected": "rejected: the chain was in the wrong state. Once that is fixed, use --all",
    "malformed": "malformed: no consumer can parse it. Only --force sends it",
    "expired": "older than the {days:g} days for which finished chains are kept: sent back, it "
    "could start a chain again that is gone",
}


def run_redrive(
    redrive: Redrive, *, all_: bool, force: bool, yes: bool, look: bool, as_json: bool
) -> int:
    """Show the dead-lettered messages, ask, send messages back; return the exit status."""
    kinds = KINDS[: 3 if force else 2 if all_ else 1]
    days = redrive.retention / _DAY_MS
    survey = redrive.survey()
    nothing_to_move = survey.complete and not survey.count(*kinds)
    if as_json:
        idle = look or not yes or nothing_to_move
        moved = 0 if idle else redrive.move(kinds, survey).moved
        _print_json(survey, kinds, days, moved)
        return 0
    _print_survey(survey, kinds, days)
    if look or not survey.seen:
        return 0
    if nothing_to_move:
        screen.say("nothing to send back")
        return 0
    if not yes and not _confirm(survey, kinds):
        screen.say("nothing was moved")
        return 1
    result = _move(redrive, kinds, survey)
    stay = f"; {result.left:,} stay" if result.left else ""
    screen.say(f"{plural(result.moved, 'message')} sent back{stay}")
    return 0


def _print_json(survey: Survey, kinds: tuple[Kind, ...], days: float, moved: int) -> None:
    screen.print_json(
        {
            "letters": survey.total,
            "seen": survey.seen,
            "complete": survey.complete,
            "groups": [{**asdict(one), "chosen": one.kind in kinds} for one in survey.groups],
            "retention_days": days,
            "moved": moved,
        }
    )


def _print_survey(survey: Survey, kinds: tuple[Kind, ...], days: float) -> None:
    if not survey.seen:
        screen.say("no dead-lettered messages")
        return
    rows = [
        {
            "MESSAGES": f"{group.count:,}",
            "": "goes back" if group.kind in kinds else "stays",
            "REASON": printable(group.reason),
            "FOR EXAMPLE": printable(group.example or ""),
        }
        for group in survey.groups[:_MAX_REASONS]
    ]
    screen.print_rows(rows, right={"MESSAGES"}, fold={"REASON", "FOR EXAMPLE"})
    if more := survey.groups[_MAX_REASONS:]:
        hidden = plural(sum(group.count for group in more), "message")
        screen.say(f"and {hidden} of {plural(len(more), 'more reason')}: --json lists all")
    if not survey.complete:
        screen.say(f"the first {survey.seen:,} of about {survey.total:,}")
    for kind in KINDS:
        if kind not in kinds and (count := survey.count(kind)):
            verb = "is" if count == 1 else "are"
            screen.say(f"{plural(count, 'message')} {verb} {_STAY[kind].format(days=days)}")


def _confirm(survey: Survey, kinds: tuple[Kind, ...]) -> bool:
    """Ask; if nobody can answer, say what to do instead."""
    messages = "all messages like these"
    if survey.complete:
        messages = plural(survey.count(*kinds), "message")
    try:
        return click.confirm(f"Send {messages} back to the queue?")
    except click.Abort:
        if sys.stdin.isatty():
            raise
        screen.say("")
        reason = "nobody can answer, nothing was moved: --yes does not ask"
        raise click.ClickException(reason) from None


def _move(redrive: Redrive, kinds: tuple[Kind, ...], survey: Survey) -> MoveResult:
    out = screen.console()
    bar = Progress(
        TextColumn("sent back"),
        BarColumn(bar_width=40),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
        TimeRemainingColumn(compact=True),
        console=out,
        disable=not screen.can_redraw(out),
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=survey.expected(*kinds))
        return redrive.move(
            kinds, survey, lambda moved, total: bar.update(task, completed=moved, total=total)
        )
