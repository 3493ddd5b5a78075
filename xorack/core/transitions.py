"""The state machine of a chain. It does no I/O and reads no clock.

Two tables define it, and docs/protocol.md shows both. `VERDICTS` decides on requests by the chain's
state. `TRANSITIONS` lists every change of state. Three functions change a chain: `apply` applies
requests, `expire` checks the deadline, and `mark_reported` stores the results of reports.
`Chain.with_late` counts the requests that arrive after the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from xorack.core.chain import EVENT, NEVER_CREATED, PARENTS, TIMED_OUT, Chain, Deadlines, Status
from xorack.core.checks import RESUME_KINDS
from xorack.core.errors import ArgumentError, BufferLengthsUnequal, RequestIdReused, TagExists
from xorack.core.event import rfc3339
from xorack.core.marks import (
    MARK_KEY_BYTES,
    NO_CONTENT,
    callback_key,
    mark_key,
    mark_of,
    shared_key,
    split_marks,
    step_id,
    unit_of_step,
)
from xorack.core.masking import masked_fields
from xorack.core.ports import DEFAULT_RETENTION_MS, Failure
from xorack.core.request import Op, Request
from xorack.core.stamp import PLAIN_LENGTH, TRACED_LENGTHS, sum_of, xor

_Entry = TypeVar("_Entry")

MAX_FOLD = 128
"""The most requests that one write applies. The limit bounds the cost of a write."""
PUBLISH_GRACE_MS = 60_000
"""How long the writer that ends a chain may take to publish its event, before the sweeper does."""
_FIRST_WAIT_MS = 60_000
_LONGEST_WAIT_MS = 3_600_000
_GIVE_UP_MS = 86_400_000
"""The time from the first refusal of a callback until the acker gives it up."""

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
"""The verdict on a request that is no duplicate, by the chain's state and the operation."""


def _is_zero(chain: Chain, _: int = 0) -> bool:
    return bool(chain.stamp) and not any(chain.stamp)


def _is_complete(chain: Chain, _: int) -> bool:
    return _is_zero(chain) and (chain.counts.outstanding == 0 or chain.adopted)


def _is_overdue(chain: Chain, now: int) -> bool:
    deadline = chain.effective_deadline
    return deadline is not None and deadline <= now


def _is_overdue_at_zero(chain: Chain, now: int) -> bool:
    return _is_overdue(chain, now) and _is_zero(chain) and chain.counts.outstanding != 0


def _is_tolerated(chain: Chain, now: int) -> bool:
    """Return whether few enough units are outstanding, by the counts and by the stamp.

    The counts are not enough, because they hide a unit if another unit was finished whose start was
    lost. The stamp names both units. If it does not name all units, their number is unknown.
    """
    if chain.failing or not chain.counts.within_tolerance or not _is_overdue(chain, now):
        return False
    from xorack.core.peeling import units_if_few  # imported here: few invocations need it

    return bool(units_if_few(chain.stamp, chain.counts.tolerated_units))


class Transition(NamedTuple):
    """A change of state.

    Attributes:
        trigger: The guard is tested after requests are applied, or in a sweep.
        condition: The guard in words.
        reason: A format string that takes the chain and gives the reason of the failure. None: the
            reason of the ``fail``.
    """

    source: Status
    trigger: Literal["request", "sweep"]
    condition: str
    guard: Callable[[Chain, int], bool]
    target: Status
    reason: str | None = None


_COUNTS = (
    ": the stamp is zero, but {0.counts.started} units were started and "
    "{0.counts.finished} finished"
)

TRANSITIONS: tuple[Transition, ...] = (
    Transition(
        "pending", "request", "create applied", lambda c, _: c.created_at is not None, "open"
    ),
    Transition("open", "request", "fail applied", lambda c, _: c.failing is not None, "failed"),
    Transition("open", "request", "stamp zero and counts equal", _is_complete, "acked"),
    Transition(
        "open",
        "sweep",
        "deadline passed, stamp zero, counts unequal",
        _is_overdue_at_zero,
        "failed",
        TIMED_OUT + _COUNTS,
    ),
    Transition(
        "open", "sweep", "deadline passed, few enough units outstanding", _is_tolerated, "acked"
    ),
    Transition("open", "sweep", "deadline passed", _is_overdue, "failed", TIMED_OUT),
    Transition("pending", "sweep", "deadline passed", _is_overdue, "failed", NEVER_CREATED),
)
"""Every change of state. One pass from top to bottom makes all changes that are possible."""


def _run(chain: Chain, step: Literal["request", "sweep"], now: int) -> Chain:
    """Make the changes of state that are possible after a step."""
    for source, trigger, _, guard, target, reason in TRANSITIONS:
        if trigger != step or source != chain.status or not guard(chain, now):
            continue
        changes: dict[str, Any] = {"status": target}
        if target in ("acked", "failed"):
            changes |= {
                "reason": reason.format(chain) if reason else chain.failing,
                "failing": None,
                "ended_at": now,
                "reports": replace(
                    chain.reports,
                    event_pending=True,
                    resume_pending=chain.reports.resume is not None,
                    parents_pending=chain.parents is not None,
                ),
                # The sweep reports the ends that it makes itself, and finds these chains in the
                # index.
                "due_at": now + (PUBLISH_GRACE_MS if step == "request" else 0),
            }
        before, chain = chain, replace(chain, **changes)
        assert not before.final, "a final state never changes"
        done = _is_complete(chain, now) or (step == "sweep" and _is_tolerated(chain, now))
        assert chain.status != "acked" or (done and not before.failing), "no ack with work left"
        assert chain.status != "failed" or chain.reason is not None, "a failure has a reason"
    return chain


OutcomeKind = Literal["applied", "duplicate", "late", "rejected"]
"""``duplicate``: the request took effect before. ``late``: it came after the chain's end."""


class RequestOutcome(NamedTuple):
    """The outcome of a request. If it was rejected, `error` says why."""

    request: Request
    kind: OutcomeKind
    error: Exception | None = None


Retentions: TypeAlias = tuple[tuple[int, int], ...]
"""Earlier retentions in order: the time until which each was in force, and its milliseconds."""


class Limits(NamedTuple):
    """Limits of all chains. A time-out of None is disabled.

    Attributes:
        default_timeout_ms: A chain whose create has no timeout fails after this time.
        pending_timeout_ms: A chain whose create does not arrive fails after this time.
        retention_ms: The longest age of a message. Spilled marks are kept for this time after the
            chain's end.
        resumes: The kinds of callbacks that the acker may make.
        earlier_retentions: Chains that ended under an earlier retention are kept for that
            retention.
        mask: Fields of details that are stored as hashes: see `xorack.core.masking`.
    """

    default_timeout_ms: int | None = None
    pending_timeout_ms: int | None = None
    retention_ms: int = DEFAULT_RETENTION_MS
    resumes: frozenset[str] = frozenset(RESUME_KINDS)
    earlier_retentions: Retentions = ()
    mask: frozenset[str] = frozenset()

    def oldest(self, now: int) -> int:
        """Return the time before which a chain may have ended so that its tombstone has expired."""
        bound = 0
        for until, retention_ms in self.earlier_retentions:
            bound = min(until, max(bound, now - retention_ms))
        return max(bound, now - self.retention_ms)


NO_LIMITS = Limits()


class Applied(NamedTuple):
    """The chain after the requests, or the same object if none changed it, and their outcomes."""

    chain: Chain | None
    outcomes: list[RequestOutcome]


class Effect(NamedTuple):
    """The changes that a request makes to its chain.

    Attributes:
        stamp, started, finished: The values of the request without the units that were finished
            before. A create that changes only the callback has no stamp.
        marks: The marks that the request leaves.
        sent_at: Time when the request was sent, milliseconds since the epoch.
    """

    request: Request
    stamp: bytes | None
    started: int
    finished: int
    marks: Sequence[bytes]
    sent_at: int


@dataclass
class WriteState:
    """The state that decides on a request: the chain and the earlier requests of the same write.

    Attributes:
        seen: The marks of applied requests, key to checksum.
        shared: Whether some of these marks belong to callbacks or to units of `finishes_once`.
        length: The bytes of the chain's stamps. The create decides it, or else the first stamp.
        resume_sent_at: Time when the create that names the callback was sent.
    """

    chain: Chain | None
    limits: Limits
    seen: dict[bytes, bytes]

    def __post_init__(self) -> None:
        self.shared = NO_CONTENT in self.seen.values()
        self.length = len(self.chain.stamp) or None if self.chain else None
        self.verdicts = VERDICTS[_state_of(self.chain)]
        self.resume_sent_at = self.chain.reports.resume_sent_at if self.chain else None

    def add(self, effect: Effect) -> None:
        """Add the changes of a request. A rejected request has none, so its id stays unused."""
        for mark in effect.marks:
            self.seen[mark[:MARK_KEY_BYTES]] = mark[MARK_KEY_BYTES:]
        self.shared = self.shared or len(effect.marks) > 1
        if effect.stamp is not None:
            self.length = len(effect.stamp)
        if effect.request.resume is not None:
            self.resume_sent_at = effect.sent_at
        if effect.request.op == "create" and not (self.chain and self.chain.final):
            self.verdicts = VERDICTS["open"]


def judge(
    request: Request, mark: bytes, sent_at: int, state: WriteState
) -> tuple[RequestOutcome, Effect | None]:
    """Return the outcome of a request and its effect, if it has any. `mark` is its `mark_of`."""
    before, verdict = state.seen.get(mark[:MARK_KEY_BYTES]), state.verdicts[request.op]
    same = before == mark[MARK_KEY_BYTES:]
    if verdict == "TagExists" and not same:
        return RequestOutcome(request, "rejected", _tag_exists(request, state.chain)), None
    has_new_callback = same and _has_new_callback(request, sent_at, state)
    if before is not None and not has_new_callback:
        return _duplicate(request, same), None
    if error := _invalid(request, state.length, state.limits):
        return RequestOutcome(request, "rejected", error), None
    if verdict == "late":
        return RequestOutcome(request, "late"), None
    callback = () if request.resume is None else (callback_key(request) + NO_CONTENT,)
    if has_new_callback:
        return RequestOutcome(request, "duplicate"), Effect(request, None, 0, 0, callback, sent_at)
    stamp, finished, marks = request.stamp, request.finished, (mark, *callback)
    if request.finishes_once or state.shared:
        stamp, finished, shared = _new_units(request, mark, state.seen)
        marks += shared
    effect = Effect(request, stamp, request.started, finished, marks, sent_at)
    return RequestOutcome(request, "applied"), effect


def _has_new_callback(request: Request, sent_at: int, state: WriteState) -> bool:
    """Return whether a repeated create names a new callback and is the latest of the creates."""
    if request.resume is None or callback_key(request) in state.seen:
        return False
    return state.resume_sent_at is None or sent_at > state.resume_sent_at


def _new_units(
    request: Request, mark: bytes, seen: Mapping[bytes, bytes]
) -> tuple[bytes | None, int, tuple[bytes, ...]]:
    """Return the stamp, finished units and marks of a request, without already finished units."""
    stamp, finished, changed, shared = request.stamp, request.finished, [], []
    own = unit_of_step(request)  # the step of one unit marks this unit with its id
    if own is not None and shared_key(mark[:MARK_KEY_BYTES]) in seen:
        changed.append(own)
        finished -= 1
    for unit in request.finishes_once:
        key = mark_key(step_id(unit))
        if key not in seen and shared_key(key) not in seen:
            changed.append(unit)
            shared.append(shared_key(key) + NO_CONTENT)
            finished += 1
    length = request.stamp_length or 0
    if changed and (length == PLAIN_LENGTH or length in TRACED_LENGTHS):
        stamp = xor(stamp or bytes(length), sum_of(changed, TRACED_LENGTHS.get(length, 0)))
    elif request.finishes_once and stamp is None:
        stamp = bytes(length)
    return stamp, finished, tuple(shared)


def apply(
    chain: Chain | None,
    requests: Sequence[Request],
    *,
    now: int,
    spilled_marks: Mapping[bytes, bytes] | None = None,
    limits: Limits = NO_LIMITS,
    marks: Sequence[bytes] | None = None,
    sent_at: Sequence[int | None] | None = None,
) -> Applied:
    """Apply requests to a chain: fold all new requests in, then make changes of state.

    Args:
        chain: The chain; None if it does not exist.
        requests: The requests, as `in_order` sorts them. The first create that is accepted counts.
            The last sent copy of this create names the callback.
        now: Milliseconds since the epoch.
        spilled_marks: The spilled marks that decide on these requests (`keys_of`): key to checksum.
        limits: The acker's limits.
        marks: The mark of each request, if the caller has computed them.
        sent_at: When each request was sent, in milliseconds since the epoch. By default now.
    """
    marks = marks or [mark_of(request) for request in requests]
    sent_at = sent_at or [now] * len(requests)
    seen = split_marks(chain.marks) if chain else {}
    state = WriteState(chain, limits, seen | dict(spilled_marks or {}))
    outcomes: list[RequestOutcome] = []
    effects: list[Effect] = []
    for request, mark, sent in zip(requests, marks, sent_at, strict=True):
        outcome, effect = judge(request, mark, now if sent is None else sent, state)
        outcomes.append(outcome)
        if effect is not None:
            state.add(effect)
            effects.append(effect)
    if not effects:
        return Applied(chain, outcomes)
    if chain is None:
        pending = Deadlines(pending_deadline=_after(now, limits.pending_timeout_ms))
        chain = Chain(requests[0].tag, deadlines=pending)
    after = _fold(chain, effects, now, limits)
    if chain.final:
        assert all(effect.stamp is None for effect in effects), "the end is final"
        return Applied(_answering(after, now), outcomes)
    return Applied(_scheduled(_run(after, "request", now)), outcomes)


_MAX_FAILED = 20
"""The most failed children that a chain names. It counts all of them."""
_MAX_FAILED_BYTES = 2048
_RANKS: dict[Op, int] = {"create": 0, "note": 1, "fail": 2}


def in_order(requests: Iterable[_Entry], request_of: Callable[[_Entry], Request]) -> list[_Entry]:
    """Return requests in the order in which they take effect: creates, notes, fails, the rest.

    A create comes first because it decides the length of stamps. Notes come before fails, because
    an ended chain takes no note.
    """
    return sorted(requests, key=lambda entry: _RANKS.get(request_of(entry).op, len(_RANKS)))


def _state_of(chain: Chain | None) -> State:
    if chain is None:
        return "absent"
    return "never created" if chain.final and not chain.created else chain.status


def _tag_exists(request: Request, chain: Chain | None) -> TagExists:
    if chain is None or chain.ended_at is None:
        return TagExists(request.tag, "it is open")
    return TagExists(request.tag, f"it is {_state_of(chain)}, since {rfc3339(chain.ended_at)}")


def _invalid(request: Request, length: int | None, limits: Limits) -> Exception | None:
    """Return why a request can never be applied, whatever the chain's state. None if it can."""
    resume = request.resume or {}
    if not resume.keys() <= limits.resumes:
        able = " or ".join(sorted(limits.resumes)) or "no resume"
        expected = f"{able}: see this acker's setting resume"
        return ArgumentError("resume", next(iter(resume)), expected)
    if request.op == "create" or length is None or request.stamp_length in (None, length):
        return None
    return BufferLengthsUnequal(request.stamp_length, length)


def _duplicate(request: Request, same_content: bool) -> RequestOutcome:
    if same_content:
        return RequestOutcome(request, "duplicate")
    return RequestOutcome(request, "rejected", RequestIdReused(request.id))


def _fold(old: Chain, effects: Sequence[Effect], now: int, limits: Limits) -> Chain:
    """Return the chain with all effects folded in, before changes of state."""
    changes: dict[str, Any] = {
        "version": old.version + 1,
        "first_seen_at": now if old.first_seen_at is None else old.first_seen_at,
        "marks": old.marks + b"".join(mark for effect in effects for mark in effect.marks),
        **_fold_stamps(old, [effect.stamp for effect in effects if effect.stamp is not None], now),
    }
    counts = replace(
        old.counts,
        started=old.counts.started + sum(effect.started for effect in effects),
        finished=old.counts.finished + sum(effect.finished for effect in effects),
    )
    assert counts.started >= old.counts.started, "counts only grow"
    assert counts.finished >= old.counts.finished
    deadlines, reports = old.deadlines, old.reports
    if ends := [effect.request for effect in effects if effect.request.child is not None]:
        changes["children"] = _with_ends(old.ended_children, ends)
    for request, stamp, *_, sent_at in effects:
        changes |= _noted(request, changes.get("note", old.note))
        if request.resume is not None:
            callback = _json(request.resume)
            reports = replace(reports, resume=callback, resume_sent_at=sent_at)
        if request.op == "create" and stamp is not None:
            # Ages and durations count from the sending, so they include the time in the queue.
            changes["created_at"] = min(now, sent_at)
            counts = replace(counts, tolerated_units=request.tolerated_units)
            deadlines = _created(deadlines, request, now, limits)
            if request.parents:
                changes["parents"] = _json([parent.to_json() for parent in request.parents])
                changes["fail_parent"] = request.fail_parent
            if request.detail is not None:
                changes["detail"] = _json(masked_fields(request.detail, limits.mask))
        elif request.op == "fail":
            reason = old.failing or changes.get("failing") or request.reason
            changes["failing"] = reason or "fail was asked"
        elif request.op == "extend":
            # An extend overrides the create's timeout, even if it arrives before the create.
            deadlines = replace(deadlines, deadline=_deadline(request, now, limits), extended=now)
    return replace(old, **changes, counts=counts, deadlines=deadlines, reports=reports)


def _noted(request: Request, before: str | None) -> dict[str, str]:
    """Return the note after a request. A failed child's note does not replace a sender's note."""
    if not request.note:
        return {}
    if request.child is not None and before and "chain" not in json.loads(before):
        return {}
    return {"note": request.note}


def _with_ends(children: dict[str, Any], ends: Sequence[Request]) -> str:
    """Return the ended children after further ends, with tags of failed children if they fit."""
    tags = children["failed_tags"]
    for end in ends:
        children["acked" if end.op == "stamp" else "failed"] += 1
        named = [*tags, end.child]
        # Tags grow in the event, which escapes characters, and Step Functions takes only 32 KiB.
        has_room = len(named) <= _MAX_FAILED and len(json.dumps(named)) <= _MAX_FAILED_BYTES
        if end.op != "stamp" and has_room:
            tags.append(end.child)
    return _json(children)


def _created(before: Deadlines, create: Request, now: int, limits: Limits) -> Deadlines:
    """Return the deadlines after a create."""
    return replace(
        before,
        deadline=before.deadline if before.extended else _deadline(create, now, limits),
        pending_deadline=None,
        idle_timeout=_milliseconds(create.idle_timeout),
    )


def _deadline(request: Request, now: int, limits: Limits) -> int | None:
    return _after(now, _milliseconds(request.timeout) or limits.default_timeout_ms)


def _fold_stamps(old: Chain, stamps: Sequence[bytes], now: int) -> dict[str, Any]:
    """Return the attributes that change with these stamps, which have one length."""
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
        # The create decides the length. A sum of stamps of two lengths does not show all work.
        changes["failing"] = old.failing or (
            f"the create's stamp has {length} bytes, but stamps of {len(old.stamp)} bytes came "
            "before it"
        )
    return changes


def _after(now: int, milliseconds: int | None) -> int | None:
    return None if milliseconds is None else now + milliseconds


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds * 1000))


def _answering(chain: Chain, now: int) -> Chain:
    """Return an ended chain whose new callback is pending.

    Results of earlier callbacks are removed.
    """
    refusals = {name: times for name, times in chain.reports.refusals.items() if name == EVENT}
    reports = replace(
        chain.reports,
        resume_pending=True,
        resumed_at=None,
        resume_failed=None,
        refused=_json(refusals) if refusals else None,
    )
    at = now + PUBLISH_GRACE_MS
    due_at = at if chain.due_at is None else min(at, chain.due_at)
    return replace(chain, reports=reports, due_at=due_at)


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _scheduled(chain: Chain) -> Chain:
    """Set ``due_at`` to the chain's deadline, unless ``due_at`` is already earlier.

    A chain without a deadline gets no ``due_at``.
    """
    if chain.final:
        return chain
    # A ``due_at`` that is too early costs the sweeper one read. A change of it costs a write to the
    # index.
    deadline = chain.effective_deadline
    if deadline is None or chain.due_at is None or deadline < chain.due_at:
        chain = replace(chain, due_at=deadline)
    assert deadline is None or (chain.due_at or 0) <= deadline, "no deadline passes unseen"
    return chain


def expire(chain: Chain, now: int) -> Chain:
    """End a chain whose deadline has passed; else move its next check to the deadline.

    Returns the same object if there is nothing to write.
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


def mark_reported(
    chain: Chain,
    reported: Collection[str],
    *,
    now: int,
    refused: Mapping[str, Failure] | None = None,
) -> Chain:
    """Return an ended chain after some of its reports were made or refused.

    A refused report is repeated after 1, 2, 4 … 60 minutes, whatever the other reports do. An event
    is repeated until the bus accepts it. A callback is given up one day after its first refusal, or
    at once if it is gone. `reported` and `refused` have names of `Chain.pending_reports`.
    """
    refused = refused or {}
    assert chain.final, "only the end of a chain is reported"
    assert reported or refused, "each write stores the result of a report"
    left = [report for report in chain.pending_reports if report not in reported]
    before = chain.reports
    refusals = {name: times for name, times in before.refusals.items() if name in left}
    changes: dict[str, Any] = {}
    for report, failure in refused.items():
        since, _ = refusals.pop(report, (now, now))
        is_gone = failure.kind == "gone"
        if before.refused_at is None and not is_gone:
            changes["refused_at"] = now
        if is_gone or (report != EVENT and now - since >= _GIVE_UP_MS):
            changes["resume_failed"] = failure.reason
            left.remove(report)
        else:
            refusals[report] = since, _next_attempt(since, now)
    resume_pending = bool({*left} - {EVENT, PARENTS})
    if before.resume_pending and not resume_pending:
        changes["resume"] = None
        if "resume_failed" not in changes:
            changes["resumed_at"] = now
    reports = replace(
        before,
        event_pending=EVENT in left,
        parents_pending=PARENTS in left,
        resume_pending=resume_pending,
        refused=_json(refusals) if refusals else None,
        **changes,
    )
    due_at = _next_report_at(chain, left, refusals)
    return replace(chain, version=chain.version + 1, reports=reports, due_at=due_at)


def _next_report_at(
    chain: Chain, left: Sequence[str], refusals: Mapping[str, tuple[int, int]]
) -> int | None:
    """Return when the sweep makes the reports that are left; None if there are none."""
    # A chain that the sweep has ended is due at its end, because no consumer reports it.
    grace_ms = 0 if chain.due_at == chain.ended_at else PUBLISH_GRACE_MS
    at_once = (0, (chain.ended_at or 0) + grace_ms)
    return min((refusals.get(report, at_once)[1] for report in left), default=None)


def _next_attempt(since: int, now: int) -> int:
    """Return the time of the next attempt.

    The wait is as long as the time since the first attempt, so waits double.
    """
    return now + min(_FIRST_WAIT_MS + max(0, now - since), _LONGEST_WAIT_MS)
