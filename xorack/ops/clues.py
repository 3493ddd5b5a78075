"""Clues: why a chain was not acked, as far as its counts and times show it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from xorack.core.chain import NEVER_CREATED, TIMED_OUT
from xorack.core.hashing import unit_id
from xorack.core.text import plural, span
from xorack.ops.status import ChainStatus

__all__ = ["Clue", "clues_of"]

ClueKind = Literal[
    "not_created",
    "not_started",
    "timeout_too_short",
    "idle",
    "first_step",
    "no_child",
    "nothing_finished",
    "silent",
    "started_again",
]
_FIRST_SECOND_MS = 1000
_SILENT_MS = 60_000
"""An open chain counts as silent after this time without a step."""


@dataclass(frozen=True)
class Clue:
    """A possible cause that follows from a chain's counts or times, in words."""

    kind: ClueKind
    text: str


def clues_of(status: ChainStatus) -> list[Clue]:
    """Return the clues to the cause, the strongest first; an acked chain has none.

    If a worker failed the chain, or a sender noted something, that text names the cause. Then the
    clues from the counts would only mislead.
    """
    chain = status.chain
    if chain.status == "acked":
        return []
    was_failed = chain.status == "failed" and not (chain.reason or "").startswith(TIMED_OUT)
    if was_failed and chain.reason != NEVER_CREATED:
        return []
    clues = [clue for find in _CERTAIN if (clue := find(status))]
    if not clues and not chain.note:
        clues = [clue for find in _LIKELY if (clue := find(status))]
    return clues


def unstarted_units(status: ChainStatus) -> int:
    """Return how many units were finished that no step started, as far as it is known.

    The stamp names outstanding units, and units that were finished without a start. The counts say
    by how many the one kind exceeds the other.
    """
    surplus = status.chain.counts.finished - status.chain.counts.started
    if not status.chain.counts.started or not status.outstanding_complete:
        return max(0, surplus)
    return max(0, (len(status.outstanding) + surplus) // 2)


def _not_created(status: ChainStatus) -> Clue | None:
    chain = status.chain
    if chain.status != "pending" and chain.reason != NEVER_CREATED:
        return None
    when = "has not arrived" if chain.status == "pending" else "never arrived"
    why = "its producer stopped before sending it, used another queue, or it was rejected"
    return Clue("not_created", f"steps of it arrived, but its create {when}: {why}")


def _not_started(status: ChainStatus) -> Clue | None:
    count = unstarted_units(status)
    if not count or status.chain.status == "pending":
        return None
    why = "their step was killed after publishing, or was repeated with other children"
    if not status.chain.final:
        why += ", or its message is still in the queue"
    return Clue("not_started", f"{plural(count, 'unit')} finished that no step started: {why}")


def _timeout_too_short(status: ChainStatus) -> Clue | None:
    chain = status.chain
    if (
        chain.reason != TIMED_OUT
        or not chain.tombstone.late
        or chain.tombstone.last_late_at is None
    ):
        return None
    after = span(max(0, chain.tombstone.last_late_at - (chain.ended_at or 0)))
    late = (
        f"{plural(chain.tombstone.late, 'request')} came after its time-out, the last {after} later"
    )
    return Clue("timeout_too_short", f"{late}: the time-out is too short")


def _idle(status: ChainStatus) -> Clue | None:
    chain = status.chain
    if (
        chain.reason != TIMED_OUT
        or chain.deadlines.idle_timeout is None
        or chain.last_stamp_at is None
    ):
        return None
    last = max(chain.last_stamp_at, chain.deadlines.extended)
    ended_by = last + chain.deadlines.idle_timeout
    if chain.deadlines.deadline is not None and chain.deadlines.deadline <= ended_by:
        return None
    quiet = f"no step ended for {span(chain.deadlines.idle_timeout)}, its idle time-out"
    return Clue("idle", f"{quiet}: a step takes longer, or its worker stopped")


def _first_step(status: ChainStatus) -> Clue | None:
    if unit_id(status.chain.tag) not in status.outstanding:
        return None
    return Clue("first_step", "its first step did not end: its worker did not run, or failed")


def _no_child(status: ChainStatus) -> Clue | None:
    chain = status.chain
    if (
        chain.counts.finished != 1
        or chain.counts.started < 2
        or unit_id(chain.tag) in status.outstanding
    ):
        return None
    children = plural(chain.counts.started - 1, "child", "children")
    why = "their workers did not run, refused the token, or sent to another queue"
    return Clue("no_child", f"its first step ended, but none of its {children}: {why}")


def _nothing_finished(status: ChainStatus) -> Clue | None:
    chain = status.chain
    if (
        chain.counts.finished
        or chain.counts.started < 2
        or unit_id(chain.tag) in status.outstanding
    ):
        return None
    return Clue(
        "nothing_finished",
        f"none of its {chain.counts.started:,} units was finished: the job that finishes them did "
        "not run, or failed before its end",
    )


def _silent(status: ChainStatus) -> Clue | None:
    chain, begin = status.chain, status.begin
    if begin is None or chain.status == "pending" or chain.counts.finished > 1:
        return None
    begin = max(begin, chain.first_seen_at or 0)  # the create may have waited in the queue
    silent_since = max(chain.last_stamp_at or begin, begin)
    silent_ms = (chain.ended_at or status.now) - silent_since
    if silent_since - begin > _FIRST_SECOND_MS or silent_ms < _SILENT_MS:
        return None
    return Clue("silent", "silent since its first second: check your queue and workers")


def _started_again(status: ChainStatus) -> Clue | None:
    if not status.chain.tombstone.repeated:
        return None
    copies = plural(status.chain.tombstone.repeated, "copy", "copies")
    return Clue("started_again", f"{copies} of its create came after its end: it was started again")


_Find = Callable[[ChainStatus], Clue | None]
_CERTAIN: tuple[_Find, ...] = (
    _not_created,
    _not_started,
    _timeout_too_short,
    _idle,
    _started_again,
)
"""Clues that are true whatever else is known."""
_LIKELY: tuple[_Find, ...] = (_first_step, _no_child, _nothing_finished, _silent)
"""Clues for chains about which nothing else is known."""
