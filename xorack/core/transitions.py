"""The state machine of a chain. Pure: no I/O and no clock.

Two tables define it: `VERDICTS` decides on requests by the chain's state, `TRANSITIONS` lists every
change of state; docs/protocol.md shows both. Three functions change a chain: `apply` by requests,
`expire` by time, `mark_delivered` by what became of its reports. `Chain.with_late` counts what
comes after the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias

from xorack.core.chain import EVENT, NEVER_CREATED, TIMED_OUT, Chain, Status
from xorack.core.checks import RESUME_KINDS
from xorack.core.errors import ArgumentError, BufferLengthsUnequal, RequestIdReused, TagExists
from xorack.core.event import rfc3339
from xorack.core.marks import MARK_KEY_BYTES, mark_of, split_marks
from xorack.core.ports import DEFAULT_RETENTION_MS
from xorack.core.request import Op, Request

MAX_FOLD = 128
"""Most requests that one write applies: this bounds the cost of a write."""
PUBLISH_GRACE_MS = 60_000
"""Time for the writer that ends a chain to publish its event, before the sweeper does."""
_FIRST_WAIT_MS = 60_000
_LONGEST_WAIT_MS = 3_600_000
_GIVE_UP_MS = 86_400_000
"""Time from the first refusal of a callback to the last attempt."""

State = Literal["absent", "pending", "open", "acked", "failed", "never created"]
Verdict = Literal["apply", "late", "TagExists"]

_APPLY: dict[Op, Verdict] = dict.fromkeys(("stamp", "fail", "extend", "note"), "apply")
_LATE: dict[Op, Verdict] = dict.fromkeys(_APPLY, "late")
VERDICTS: dict[State, dict[Op, Verdict]] = {
    "absent": {"create": "apply", **_APPLY},
    "pending": {"create": "apply", **_APPLY},
    "open": {"create": "TagExists", **_APPLY},
    "acked": {"create": "TagExists", **_LATE},
    "failed": {"create": "TagExists", **_LATE},
    "never created": {"create": "TagExists", **_LATE},
}
"""The verdict on a request that is not a duplicate, by the chain's state and the operation. A stamp
of another length than the chain's is rejected in every state."""


def _is_zero(chain: Chain, _: int = 0) -> bool:
    return bool(chain.stamp) and not any(chain.stamp)


def _is_complete(chain: Chain, _: int) -> bool:
    return _is_zero(chain) and chain.started == chain.finished


def _is_overdue(chain: Chain, now: int) -> bool:
    deadline = chain.effective_deadline
    return deadline is not None and deadline <= now


def _is_overdue_at_zero(chain: Chain, now: int) -> bool:
    return _is_overdue(chain, now) and _is_zero(chain) and chain.started != chain.finished


class Transition(NamedTuple):
    """A change of state.

    Attributes:
        trigger: The step after which the guard is tested.
        condition: The guard in words.
        reason: Why the chain failed, a format string over it; None for the reason of the ``fail``.
    """

    source: Status
    trigger: Literal["request", "sweep", "both"]
    condition: str
    guard: Callable[[Chain, int], bool]
    target: Status
    reason: str | None = None


_COUNTS = ": the stamp is zero, but {0.started} units were started and {0.finished} finished"

TRANSITIONS: tuple[Transition, ...] = (
    Transition(
        "pending", "request", "create applied", lambda c, _: c.created_at is not None, "open"
    ),
    Transition("open", "request", "fail applied", lambda c, _: c.failing is not None, "failed"),
    # By a sweep: xor-ack-dynamodb, which knows no status, brought the stamp to zero.
    Transition("open", "both", "stamp zero and counts equal", _is_complete, "acked"),
    Transition(
        "open",
        "sweep",
        "deadline passed, stamp zero, counts unequal",
        _is_overdue_at_zero,
        "failed",
        TIMED_OUT + _COUNTS,
    ),
    Transition("open", "sweep", "deadline passed", _is_overdue, "failed", TIMED_OUT),
    Transition("pending", "sweep", "deadline passed", _is_overdue, "failed", NEVER_CREATED),
)
"""Every change of state. One pass from top to bottom runs all that are possible."""


def _run(chain: Chain, step: Literal["request", "sweep"], now: int) -> Chain:
    """Run the transitions that are possible after a step."""
    for source, trigger, _, guard, target, reason in TRANSITIONS:
        if trigger not in (step, "both") or source != chain.status or not guard(chain, now):
            continue
        changes: dict[str, Any] = {"status": target}
        if target in ("acked", "failed"):
            changes |= {
                "reason": reason.format(chain) if reason else chain.failing,
                "failing": None,
                "ended_at": now,
                "event_pending": True,
                "resume_pending": chain.resume is not None,
                "due_at": now + PUBLISH_GRACE_MS,
            }
        before, chain = chain, replace(chain, **changes)
        assert not before.final, "a final state never changes"
        assert chain.status != "acked" or _is_complete(chain, now), "no ack with work left"
        assert chain.status != "failed" or chain.reason is not None, "a failure has a reason"
    return chain


OutcomeKind = Literal["applied", "duplicate", "late", "rejected"]
"""A duplicate took effect before; a late request came after the chain's end."""


class Outcome(NamedTuple):
    """The outcome of a request; `error` is the reason of a rejection."""

    request: Request
    kind: OutcomeKind
    error: Exception | None = None


Retentions: TypeAlias = tuple[tuple[int, int], ...]
"""Earlier retentions, in order: the time until which each counts, and its milliseconds."""


class Limits(NamedTuple):
    """What all chains of an acker share. A time-out of None is never.

    Attributes:
        default_timeout_ms: Time until a chain fails whose create has no timeout.
        pending_timeout_ms: Time until a chain fails whose create does not come.
        retention_ms: Longest age of a message, and the time that spilled marks are kept after the
            chain's end.
        resumes: The kinds of `Request.resume` that the acker can serve.
        earlier_retentions: What ended under one of them is kept no longer.
    """

    default_timeout_ms: int | None = None
    pending_timeout_ms: int | None = None
    retention_ms: int = DEFAULT_RETENTION_MS
    resumes: frozenset[str] = frozenset(RESUME_KINDS)
    earlier_retentions: Retentions = ()

    def oldest(self, now: int) -> int:
        """Return the time before which a chain may have ended whose tombstone is gone."""
        bound = 0
        for until, retention_ms in self.earlier_retentions:
            bound = min(until, max(bound, now - retention_ms))
        return max(bound, now - self.retention_ms)


NO_LIMITS = Limits()


class Applied(NamedTuple):
    """A chain after `apply`, the given object if nothing changed; and an outcome a request."""

    chain: Chain | None
    outcomes: list[Outcome]


def apply(
    chain: Chain | None,
    requests: Sequence[Request],
    *,
    now: int,
    spilled_marks: Mapping[bytes, bytes] | None = None,
    limits: Limits = NO_LIMITS,
    marks: Sequence[bytes] | None = None,
) -> Applied:
    """Apply requests to a chain at once: all new ones are folded in, then transitions run.

    The requests are taken in `order_of`; the first create that is accepted wins. `now` is in
    milliseconds since the epoch. `spilled_marks` are those of these requests, key to checksum.
    `marks` are `mark_of` each request, if at hand.
    """
    marks = marks or [mark_of(request) for request in requests]
    seen = {**split_marks(chain.marks if chain else b""), **(spilled_marks or {})}
    # A create decides the length of stamps, before it the first stamp.
    length = len(chain.stamp) or None if chain else None
    verdicts = VERDICTS[_state_of(chain)]
    accepted: list[Request] = []
    accepted_marks: list[bytes] = []
    outcomes: dict[int, Outcome] = {}
    for position in order_of(requests):
        request, mark = requests[position], marks[position]
        key, checksum = mark[:MARK_KEY_BYTES], mark[MARK_KEY_BYTES:]
        before = seen.get(key)
        verdict = verdicts[request.op]
        taken = verdict == "TagExists" and before != checksum
        if before is not None and not taken:
            outcomes[position] = _duplicate(request, before == checksum)
            continue
        error = _tag_exists(request, chain) if taken else _invalid(request, length, limits)
        kind: OutcomeKind = "rejected" if error else "late" if verdict == "late" else "applied"
        outcomes[position] = Outcome(request, kind, error)
        if kind != "applied":
            continue
        seen[key] = checksum  # a rejected request does not use up its id
        accepted.append(request)
        accepted_marks.append(mark)
        length = request.stamp_length or length
        if request.op == "create":
            verdicts = VERDICTS["open"]
    in_order = [outcomes[position] for position in range(len(requests))]
    if not accepted:
        return Applied(chain, in_order)
    assert chain is None or not chain.final, "no request takes effect after the end"
    assert len({mark[:MARK_KEY_BYTES] for mark in accepted_marks}) == len(accepted), "once an id"
    if chain is None:
        chain = Chain(requests[0].tag, pending_deadline=_after(now, limits.pending_timeout_ms))
    changes = _fold(chain, accepted, now, limits.default_timeout_ms)
    changes["marks"] = chain.marks + b"".join(accepted_marks)
    return Applied(_scheduled(_run(replace(chain, **changes), "request", now)), in_order)


def order_of(requests: Sequence[Request]) -> list[int]:
    """Return the positions of requests in the order of their effect: creates, notes, fails, others.

    A create decides the length of stamps. A fail must not come after the stamp that ends the chain,
    and a note not after the fail.
    """
    first = ("create", "note", "fail")
    ranks = [first.index(r.op) if r.op in first else len(first) for r in requests]
    return sorted(range(len(requests)), key=ranks.__getitem__)


def _state_of(chain: Chain | None) -> State:
    if chain is None:
        return "absent"
    return "never created" if chain.final and not chain.created else chain.status


def _tag_exists(request: Request, chain: Chain | None) -> TagExists:
    if chain is None or chain.ended_at is None:
        return TagExists(request.tag, "it is open")
    return TagExists(request.tag, f"it is {_state_of(chain)}, since {rfc3339(chain.ended_at)}")


def _invalid(request: Request, length: int | None, limits: Limits) -> Exception | None:
    """Return why a request cannot be applied whatever state its chain is in."""
    resume = request.resume or {}
    if not resume.keys() <= limits.resumes:
        able = " or ".join(sorted(limits.resumes)) or "no resume"
        expected = f"{able}: see this acker's setting resume"
        return ArgumentError("resume", next(iter(resume)), expected)
    if request.op == "create" or length is None or request.stamp_length in (None, length):
        return None
    return BufferLengthsUnequal(request.stamp_length, length)


def _duplicate(request: Request, same_content: bool) -> Outcome:
    if same_content:
        return Outcome(request, "duplicate")
    return Outcome(request, "rejected", RequestIdReused(request.id))


def _fold(
    old: Chain, requests: Sequence[Request], now: int, default_timeout_ms: int | None
) -> dict[str, Any]:
    def deadline(request: Request) -> int | None:
        return _after(now, _milliseconds(request.timeout) or default_timeout_ms)

    changes: dict[str, Any] = {
        "version": old.version + 1,
        "first_seen_at": now if old.first_seen_at is None else old.first_seen_at,
        "started": old.started + sum(request.started for request in requests),
        "finished": old.finished + sum(request.finished for request in requests),
        **_fold_stamps(old, [r.stamp for r in requests if r.stamp is not None], now),
    }
    assert changes["started"] >= old.started, "counts only grow"
    assert changes["finished"] >= old.finished
    for request in requests:
        changes |= {"note": request.note} if request.note else {}
        if request.op == "create":
            changes["created_at"] = now
            changes["pending_deadline"] = None
            if not old.extended:
                changes["deadline"] = deadline(request)
            changes["idle_timeout"] = _milliseconds(request.idle_timeout)
            for name, value in (("detail", request.detail), ("resume", request.resume)):
                if value is not None:
                    changes[name] = json.dumps(value, separators=(",", ":"))
        elif request.op == "fail":
            reason = old.failing or changes.get("failing") or request.reason
            changes["failing"] = reason or "fail was asked"
        elif request.op == "extend":
            # An extend overrides the create's timeout, even if it overtook the create.
            changes["deadline"] = deadline(request)
            changes["extended"] = True
    return changes


def _fold_stamps(old: Chain, stamps: Sequence[bytes], now: int) -> dict[str, Any]:
    """Return the attributes that stamps of one length change.

    Only a create may bring another length than the chain's. It decides the length, and the chain
    fails: no sum of stamps of two lengths shows whether all work is done.
    """
    if not stamps:
        return {}
    length = len(stamps[0])
    total = int.from_bytes(old.stamp, "little")
    for stamp in stamps:
        total ^= int.from_bytes(stamp, "little")
    assert all(len(stamp) == length for stamp in stamps), "a write has stamps of one length"
    stamp = (total & ((1 << 8 * length) - 1)).to_bytes(length, "little")
    changes: dict[str, Any] = {"stamp": stamp, "last_stamp_at": now}
    if old.stamp and len(old.stamp) != length:
        changes["failing"] = old.failing or (
            f"the create's stamp has {length} bytes, but stamps of {len(old.stamp)} bytes came "
            "before it"
        )
    return changes


def _after(now: int, milliseconds: int | None) -> int | None:
    return None if milliseconds is None else now + milliseconds


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds * 1000))


def _scheduled(chain: Chain) -> Chain:
    """Set ``due_at`` to the deadline if that is nearer, or if one of them is unknown.

    A look that is too early costs one read; following every stamp would cost an index write each.
    """
    if chain.final:
        return chain
    deadline = chain.effective_deadline
    if deadline is None or chain.due_at is None or deadline < chain.due_at:
        chain = replace(chain, due_at=deadline)
    assert deadline is None or (chain.due_at or 0) <= deadline, "no deadline passes unseen"
    return chain


def expire(chain: Chain, now: int) -> Chain:
    """End a chain that is complete or whose deadline has passed; else postpone the next look.

    Returns the given object if there is nothing to write.
    """
    if chain.final:
        return chain
    ended = _run(chain, "sweep", now)
    assert ended.marks == chain.marks, "a sweep applies nothing"
    if ended.final:
        return replace(ended, version=chain.version + 1)
    if (deadline := chain.effective_deadline) != chain.due_at:
        return replace(chain, version=chain.version + 1, due_at=deadline)
    return chain


def mark_delivered(
    chain: Chain, delivered: Collection[str], *, now: int, refused: Mapping[str, str] | None = None
) -> Chain:
    """Return a finished chain after its end was reported, or refused, on channels.

    What a channel refused is repeated after 1, 2, 4 … 60 minutes, whatever the others do. An event
    is repeated until the bus accepts it; a refusal to resume is final a day after the first.

    `delivered` and, with reasons, `refused` are some of `Chain.undelivered`.
    """
    refused = refused or {}
    assert chain.final, "only the end of a chain is delivered"
    assert delivered or refused, "each write has a delivery"
    left = [channel for channel in chain.undelivered if channel not in delivered]
    refusals = {one: times for one, times in chain.refusals.items() if one in left}
    changes: dict[str, Any] = {}
    if refused and chain.refused_at is None:
        changes["refused_at"] = now
    for channel, reason in refused.items():
        since, _ = refusals.pop(channel, (now, now))
        if channel != EVENT and now - since >= _GIVE_UP_MS:
            changes["resume_failed"] = reason
            left.remove(channel)
        else:
            # Waits double if each is as long as all before it.
            wait = _FIRST_WAIT_MS + max(0, now - since)
            refusals[channel] = since, now + min(wait, _LONGEST_WAIT_MS)
    if chain.resume_pending and not {*left} - {EVENT}:
        changes["resume"] = None
        if "resume_failed" not in changes:
            changes["resumed_at"] = now
    at_once = (0, (chain.ended_at or 0) + PUBLISH_GRACE_MS)
    return replace(
        chain,
        version=chain.version + 1,
        event_pending=EVENT in left,
        resume_pending=bool({*left} - {EVENT}),
        refused=json.dumps(refusals, separators=(",", ":")) if refusals else None,
        due_at=min((refusals.get(one, at_once)[1] for one in left), default=None),
        **changes,
    )
