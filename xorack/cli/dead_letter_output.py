"""The output of the commands for dead letters: tables, questions, results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xorack.cli import screen
from xorack.core.text import listed, plural, verb
from xorack.ops.body import body_lines
from xorack.ops.dead_letters import KINDS, Kind
from xorack.ops.redrive import Redrive, Survey

_DAY_MS = 86_400_000
_MAX_REASONS = 20
"""The most reasons that are shown. A faulty sender may cause any number of them."""
_STAY = {
    "rejected": "rejected, and will be rejected again while the chain exists. --all sends them",
    "malformed": "malformed, and would be rejected again. Correct them with "
    "xorack dead-letters send",
    "expired": "older than the {days:g} days for which ended chains are kept. A redrive could "
    "start an expired chain again",
}


def to_dict(survey: Survey, retention_ms: int) -> dict[str, Any]:
    return {
        "messages": survey.total,
        "seen": survey.seen,
        "complete": survey.complete,
        "groups": [group.to_dict() for group in survey.groups],
        "retention_days": retention_ms / _DAY_MS,
    }


def _print_none(survey: Survey) -> None:
    if survey.selects_nothing and survey.read:
        screen.say(f"none of {plural(survey.read, 'message')} matches", error=True)
    else:
        screen.say("no dead-lettered messages")


def print_groups(survey: Survey, kinds: Sequence[Kind] = ()) -> None:
    """Print the counts by reason. For a redrive, also print which kinds are sent back."""
    if not survey.seen:
        _print_none(survey)
        return
    rows = [
        {
            "MESSAGES": f"{group.count:,}",
            "KIND": group.kind,
            **({"": "goes back" if group.kind in kinds else "stays"} if kinds else {}),
            "REASON": group.reason,
            "FOR EXAMPLE": group.example or "",
        }
        for group in survey.groups[:_MAX_REASONS]
    ]
    screen.print_rows(rows, right={"MESSAGES"}, fold={"REASON", "FOR EXAMPLE"})
    if more := survey.groups[_MAX_REASONS:]:
        hidden = plural(sum(group.count for group in more), "message")
        screen.say(f"and {hidden} of {plural(len(more), 'more reason')}: --json lists all")
    if not survey.complete:
        screen.say(f"the first {survey.seen:,} of about {survey.total:,}")


def print_messages(survey: Survey, *, as_json: bool) -> None:
    if as_json:
        for message in survey.messages:
            screen.print_json(message.to_dict())
        return
    for number, message in enumerate(survey.messages):
        if number:
            screen.say()
        body = listed("body", body_lines(message.body))
        screen.print_properties([*message.facts(survey.at), *body])
    if not survey.messages:
        _print_none(survey)
    elif (more := survey.seen - len(survey.messages)) or not survey.complete:
        count = f"{more:,} more" if survey.complete else "more"
        screen.say(f"there are {count}: --limit shows more messages", error=True)


def run_redrive(
    redrive: Redrive, survey: Survey, kinds: Sequence[Kind], *, yes: bool, as_json: bool
) -> int:
    """Show the dead letters, ask, and send messages back; return the exit status."""
    count = survey.count(*kinds)
    nothing_to_move = survey.complete and not count
    if as_json:
        moved = redrive.move(kinds, survey).moved if yes and not nothing_to_move else 0
        value = to_dict(survey, redrive.retention_ms) | {"moved": moved}
        for group in value["groups"]:
            group["chosen"] = group["kind"] in kinds
        screen.print_json(value)
        return int(survey.selects_nothing)
    print_groups(survey, kinds)
    for kind in KINDS:
        if kind not in kinds and (stay := survey.count(kind)):
            why = _STAY[kind].format(days=redrive.retention_ms / _DAY_MS)
            screen.say(f"{plural(stay, 'message')} {verb(stay)} {why}")
    if not survey.seen:
        return int(survey.selects_nothing)
    if nothing_to_move:
        screen.say("nothing to send back")
        return 0
    messages = plural(count, "message") if survey.complete else "all messages like these"
    if not yes and not screen.ask(f"Send {messages} back to the queue?"):
        screen.say("nothing was sent back")
        return 1
    result = redrive.move(kinds, survey)
    stay_too = f"; {result.left:,} stay" if result.left else ""
    screen.say(f"{plural(result.moved, 'message')} sent back{stay_too}")
    return 0


def run_delete(redrive: Redrive, survey: Survey, *, yes: bool, as_json: bool) -> int:
    """Show the messages, ask, and delete them; return the exit status."""
    count, deleted = len(survey.ids), 0
    if not as_json:
        print_groups(survey)
        if count and not yes and not screen.ask(f"Delete {plural(count, 'message')}?"):
            screen.say("nothing was deleted")
            return 1
    if wanted := 0 if as_json and not yes else count:
        result = redrive.delete(survey)
        deleted = result.moved - result.undeleted
    if as_json:
        screen.print_json({"selected": sorted(survey.ids), "deleted": deleted})
    elif count:
        of = f"{deleted:,} of " if deleted < count else ""
        screen.say(f"{of}{plural(count, 'message')} deleted")
        if deleted < count:
            screen.say("the others were deleted or are with another reader; try again", error=True)
    return int(deleted < wanted or survey.selects_nothing)
