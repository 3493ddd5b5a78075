"""Clues to why a chain was not acked, from its counts and times. Pure functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xorack.core.chain import NEVER_CREATED, TIMED_OUT
from xorack.core.event import outstanding_units
from xorack.core.hashing import unit_id
from xorack.core.text import plural, span
from xorack.ops.status import ChainStatus

__all__ = ["Clue", "clues_of"]

_FIRST_SECOND_MS = 1000
_SILENT_MS = 60_000
"""An open chain counts as silent after this time without a step."""


@dataclass(frozen=True)
class Clue:
    """A clue to the cause of a chain's state: its kind, for programs, and a text."""

    kind: str
    text: str


def clues_of(status: ChainStatus) -> list[Clue]:
    """Return the clues to the cause, the strongest first; an acked chain has none.

    If a worker failed the chain, or a sender added a note, that text names the cause. Clues from
    the counts would then only mislead.
    """
    chain = status.chain
    if chain.status == "acked":
        return []
    was_failed = chain.status == "failed" and not (chain.reason or "").startswith(TIMED_OUT)
    if was_failed and chain.reason != NEVER_CREATED:
        return []
    for finders in (_CERTAIN, _LIKELY) if not chain.note else (_CERTAIN,):
        clues = [Clue(kind, text) for kind, find in finders.items() if (text := find(status))]
        if clues:
            return clues
    return []


def _not_created(status: ChainStatus) -> str:
    chain = status.chain
    if chain.status != "pending" and chain.reason != NEVER_CREATED:
        return ""
    when = "has not arrived" if chain.status == "pending" else "never arrived"
    why = "its producer stopped before sending it, used another queue, or it was rejected"
    return f"steps of it arrived, but its create {when}: {why}"


def _not_started(status: ChainStatus) -> str:
    count = status.unstarted_units
    if not count or status.chain.status == "pending":
        return ""
    why = "their step was killed after publishing, or was repeated with other children"
    if len(status.outstanding) >= 2 * count:  # as many units were started and not finished
        why = "a worker used other names, or their step was repeated with other children"
    if not status.chain.final:
        why += ", or its message is still in the queue"
    return f"{plural(count, 'unit')} finished that no step started: {why}"


def _timeout_too_short(status: ChainStatus) -> str:
    chain, end = status.chain, status.chain.tombstone
    if chain.reason != TIMED_OUT or not end.late or end.last_late_at is None:
        return ""
    after = span(max(0, end.last_late_at - (chain.ended_at or 0)))
    late = f"{plural(end.late, 'request')} came after its time-out, the last {after} later"
    return f"{late}: the time-out is too short"


def _idle(status: ChainStatus) -> str:
    chain, limits = status.chain, status.chain.deadlines
    if chain.reason != TIMED_OUT or limits.idle_timeout is None or chain.last_stamp_at is None:
        return ""
    idle_until = max(chain.last_stamp_at, limits.extended) + limits.idle_timeout
    if limits.deadline is not None and limits.deadline <= idle_until:
        return ""
    quiet = f"no step ended for {span(limits.idle_timeout)}, its idle time-out"
    return f"{quiet}: a step takes longer, or its worker stopped"


def _started_again(status: ChainStatus) -> str:
    if not (repeated := status.chain.tombstone.repeated):
        return ""
    copies = plural(repeated, "copy", "copies")
    return f"{copies} of its create came after its end: it was started again"


def _is_first_step_open(status: ChainStatus) -> bool:
    return unit_id(status.chain.tag) in status.outstanding


def _first_step(status: ChainStatus) -> str:
    text = "its first step did not end: its worker did not run, or failed"
    return text if _is_first_step_open(status) else ""


def _no_child(status: ChainStatus) -> str:
    counts = status.chain.counts
    if counts.finished != 1 or counts.started < 2 or _is_first_step_open(status):
        return ""
    children = plural(counts.started - 1, "child", "children")
    why = "their workers did not run, got no token, refused it, or sent to another queue"
    return f"its first step ended, but none of its {children}: {why}"


def _nothing_finished(status: ChainStatus) -> str:
    counts = status.chain.counts
    if counts.finished or counts.started < 2 or _is_first_step_open(status):
        return ""
    why = "the job that finishes them did not run, or failed before its end"
    return f"none of its {counts.started:,} units was finished: {why}"


def _unfinished(status: ChainStatus) -> str:
    chain, left = status.chain, outstanding_units(status.chain)
    if chain.reason != TIMED_OUT or chain.counts.finished < 2 or not left or chain.children:
        return ""
    units = f"{left:,} of {plural(chain.counts.started, 'unit')} did not finish"
    queue = "messages that wait, expired or became dead letters in the workers' queue"
    return f"{units}: look for {queue}, and for workers that fail or still run"


def _silent(status: ChainStatus) -> str:
    chain, begin = status.chain, status.begin
    if begin is None or chain.status == "pending" or chain.counts.finished > 1:
        return ""
    if _nothing_finished(status):  # of a job, whose rows have neither a queue nor workers
        return ""
    begin = max(begin, chain.first_seen_at or 0)  # the create may have waited in the queue
    silent_since = max(chain.last_stamp_at or begin, begin)
    silent_ms = (chain.ended_at or status.now) - silent_since
    if silent_since - begin > _FIRST_SECOND_MS or silent_ms < _SILENT_MS:
        return ""
    return "silent since its first second: check your queue and workers"


_Find = Callable[[ChainStatus], str]
"""Returns the text of a clue; empty if the chain does not have it."""
_CERTAIN: dict[str, _Find] = {
    "not_created": _not_created,
    "not_started": _not_started,
    "timeout_too_short": _timeout_too_short,
    "idle": _idle,
    "started_again": _started_again,
}
"""Clues that are true whatever else is known."""
_LIKELY: dict[str, _Find] = {
    "first_step": _first_step,
    "no_child": _no_child,
    "nothing_finished": _nothing_finished,
    "unfinished": _unfinished,
    "silent": _silent,
}
"""Clues for chains about which nothing else is known."""
