"""What a chain does. Pure: no I/O, no clock; whatever keeps chains drives this one function.

``apply(chain, requests) -> (chain', what happened)`` is the state machine of docs/protocol.md::

              stamp, fail, extend              create
    (nothing) --------------------> pending ------------> open
        |                              |                    | stamp zero and started == finished
        +------------ create ----------|------------------->|------> acked
                                       | never created      | fail asked, or timed out
                                       +------> failed <----+

Exactly once: XOR undoes itself, so a request that is applied twice is a lost or a false ack. The
chain therefore carries a *mark* of every request that it took, written together with the stamp.
Marks that would make the item large are moved out of it (`Chain.overflow`): they are copied to
items of their own first, which is safe to repeat, and only then left out of the chain.
docs/adr/0002-marks.md has the alternatives.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Literal, NamedTuple
from zlib import crc32

from xorack.core.errors import BufferLengthsUnequal, RequestIdReused, TagExists
from xorack.core.request import Request
from xorack.core.stamp import xor_bytes

__all__ = [
    "INLINE_MARKS",
    "MARK_BYTES",
    "MARK_KEY_BYTES",
    "MAX_FOLD",
    "NEVER_CREATED",
    "TIMED_OUT",
    "Applied",
    "Chain",
    "Outcome",
    "OutcomeKind",
    "Status",
    "apply",
    "deadline_of",
    "expire",
    "inline_marks",
    "mark_key",
    "mark_of",
    "published",
]

Status = Literal["pending", "open", "acked", "failed"]
OutcomeKind = Literal["applied", "duplicate", "late", "rejected"]

TIMED_OUT = "timed out"
NEVER_CREATED = "never created"

MARK_KEY_BYTES = 12
"""Bytes of a mark that tell the request's id: 96 bits, so that among a hundred thousand requests
two collide (and one would be lost) with a probability of about 10**-19."""
MARK_BYTES = 16
"""Bytes of a whole mark: the key, then 4 bytes that tell what the request said."""
INLINE_MARKS = 64
"""Marks that a chain's item keeps; more are moved out. With them a traced chain is about 2 KB."""
MAX_FOLD = 128
"""Most requests that one write applies, which bounds what a write costs."""
OWED_GRACE_MS = 60_000
"""How long after the end an owed event is left to those who wrote the end."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain as it is kept. Times are whole milliseconds since 1970, durations milliseconds.

    Attributes:
        tag: Its name.
        stamp: XOR of all stamps so far; empty before the first.
        status: ``pending`` (not created yet), ``open``, ``acked`` or ``failed``.
        started: Units started, as far as senders count.
        finished: Units finished, likewise.
        version: Counts the writes; 0 for one that was never written by us.
        first_seen_at: When the item was first written by us: tells a chain from an earlier one of its tag.
        created_at: When its create was applied. None: not yet, or by another tool, who knows when.
        last_stamp_at: When the last stamp was applied.
        ended_at: When it became ``acked`` or ``failed``.
        deadline: When it fails at the latest. None: never.
        idle_timeout: How long it may go without a stamp. None: forever.
        due_at: When the sweeper looks at it; kept at or before the true time, so that progress
            does not cost an index write for each stamp.
        detail: JSON text given at create, for the events.
        failing: Why, once ``fail`` was asked, until the chain is created and can end.
        reason: Why it failed.
        marks: Marks of the latest applied requests, 16 bytes each, oldest first.
        spilled: How many marks were moved out.
        event_pending: Whether its event may still have to be published.
        extended: Whether ``extend`` was asked: its deadline stands against the create's.
    """

    tag: str
    stamp: bytes = b""
    status: Status = "pending"
    started: int = 0
    finished: int = 0
    version: int = 0
    first_seen_at: int | None = None
    created_at: int | None = None
    last_stamp_at: int | None = None
    ended_at: int | None = None
    deadline: int | None = None
    idle_timeout: int | None = None
    due_at: int | None = None
    detail: str | None = None
    failing: str | None = None
    reason: str | None = None
    marks: bytes = field(default=b"", repr=False)
    spilled: int = 0
    event_pending: bool = False
    extended: bool = False

    @property
    def final(self) -> bool:
        """Whether it is ``acked`` or ``failed``: nothing changes it any more."""
        return self.status in ("acked", "failed")

    @property
    def created(self) -> bool:
        """Whether its create came."""
        return self.status != "pending" and self.reason != NEVER_CREATED

    def overflow(self, coming: int) -> bytes:
        """The marks that must be moved out before ``coming`` more are taken.

        Args:
            coming: How many requests the next write applies.

        Returns:
            All inline marks, where the chain would hold too many; else nothing. All, and not just
            the excess: then the next overflow is `INLINE_MARKS` requests away.
        """
        held = len(self.marks) // MARK_BYTES
        return self.marks if held + coming > INLINE_MARKS else b""

    def without_marks(self, moved: bytes) -> Chain:
        """The chain after marks at the head of its list were copied elsewhere."""
        if not moved:
            return self
        return replace(
            self,
            marks=self.marks[len(moved) :],
            spilled=self.spilled + len(moved) // MARK_BYTES,
        )


class Outcome(NamedTuple):
    """What became of one request.

    Attributes:
        request: The request.
        kind: ``applied``; ``duplicate`` (took effect before); ``late`` (the chain had ended);
            ``refused``.
        error: For ``refused``: why.
    """

    request: Request
    kind: OutcomeKind
    error: Exception | None = None


class Applied(NamedTuple):
    """What `apply` did.

    Attributes:
        chain: The chain now; the very object that was given if nothing changed.
        outcomes: One for each request, in their order.
    """

    chain: Chain | None
    outcomes: list[Outcome]


def mark_key(request_id: str) -> bytes:
    """The part of a mark that tells the request's id."""
    return blake2b(request_id.encode(), digest_size=MARK_KEY_BYTES).digest()


@lru_cache(maxsize=64)
def _said_before_stamp(op: str, started: int, finished: int) -> int:
    """The checksum of what a request says, but for its stamp; few of them say anything else."""
    return crc32(b"%s\0%d\0%d\0" % (op.encode(), started, finished))


def mark_of(request: Request) -> bytes:
    """A request's mark: its id's hash, then a checksum of what it said.

    By the second a sender's mistake, another request under a used id, is told from a duplicate. A
    CRC does for that, and takes a quarter of a hash's time.
    """
    said = _said_before_stamp(request.op, request.started, request.finished)
    if request.stamp is not None:
        said = crc32(request.stamp, said)
    return mark_key(request.id) + said.to_bytes(MARK_BYTES - MARK_KEY_BYTES, "big")


def inline_marks(chain: Chain | None) -> dict[bytes, bytes]:
    """The marks that a chain's item holds: key -> what was said."""
    if chain is None or not chain.marks:
        return {}
    marks = chain.marks
    return {
        marks[at : at + MARK_KEY_BYTES]: marks[at + MARK_KEY_BYTES : at + MARK_BYTES]
        for at in range(0, len(marks), MARK_BYTES)
    }


def _length(chain: Chain | None, requests: Iterable[Request]) -> int | None:
    """The length of the chain's stamps: what is there, else what create says, else the first."""
    if chain is not None and chain.stamp:
        return len(chain.stamp)
    first = None
    for request in requests:
        if request.stamp is not None:
            if request.op == "create":
                return len(request.stamp)
            if first is None:
                first = len(request.stamp)
    return first


def _seen(request: Request, same: bool) -> Outcome:
    """What becomes of a request whose id was used: by itself, or by one that said otherwise."""
    if same:
        return Outcome(request, "duplicate")
    return Outcome(request, "rejected", RequestIdReused(request.id))


def apply(
    chain: Chain | None,
    requests: Sequence[Request],
    *,
    now: int,
    elsewhere: Mapping[bytes, bytes] | None = None,
    default_timeout: int | None = None,
    marks: Sequence[bytes] | None = None,
) -> Applied:
    """Apply requests to a chain, all at once: first what is new is XORed in, then it is judged.

    Args:
        chain: The chain as it is kept, None where there is none.
        requests: Any number, all of this chain's tag. Their order matters only where it must: the
            first create wins.
        now: Milliseconds since 1970.
        elsewhere: Marks that were moved out of the chain, as far as these requests are concerned.
        default_timeout: Milliseconds until a chain fails whose create has no timeout (or which is
            never created). None: never.
        marks: The requests' marks, where they are at hand: `mark_of` each.

    Returns:
        The chain after, and what became of each request.
    """
    known = inline_marks(chain)
    if elsewhere:
        known.update(elsewhere)
    outcomes: list[Outcome | None] = [None] * len(requests)
    fresh: list[tuple[int, Request, bytes]] = []
    ended = chain if chain is not None and chain.final else None
    if marks is None:
        marks = [mark_of(request) for request in requests]
    for index, (request, mark) in enumerate(zip(requests, marks, strict=True)):
        before = known.get(mark[:MARK_KEY_BYTES])
        if before is not None:
            outcomes[index] = _seen(request, before == mark[MARK_KEY_BYTES:])
            continue
        if ended is not None:
            if request.op == "create" and ended.created:
                outcomes[index] = Outcome(request, "rejected", TagExists(request.tag))
            else:
                outcomes[index] = Outcome(request, "late")
            continue
        fresh.append((index, request, mark))

    new = _Draft(chain, fresh[0][1].tag, now, default_timeout) if fresh else None
    length = _length(chain, (request for _, request, _ in fresh))
    taken: dict[bytes, bytes] = {}
    for index, request, mark in fresh:
        assert new is not None  # fresh is not empty
        key = mark[:MARK_KEY_BYTES]
        if (before := taken.get(key)) is not None:
            outcomes[index] = _seen(request, before == mark)
            continue
        error = new.take(request, mark, length)
        outcomes[index] = Outcome(request, "rejected" if error else "applied", error)
        if error is None:  # what is refused uses no id
            taken[key] = mark
    done = [outcome for outcome in outcomes if outcome is not None]
    return Applied(chain if new is None or not new.marks else new.settled(), done)


class _Draft:
    """A chain while requests are applied to it."""

    def __init__(
        self, chain: Chain | None, tag: str, now: int, default_timeout: int | None
    ) -> None:
        self.chain = chain
        self.tag = tag
        self.now = now
        self.default_timeout = default_timeout
        self.created = chain is not None and chain.status == "open"
        self.create: Request | None = None
        self.extend: Request | None = None
        self.failing: str | None = None
        self.stamp = 0
        self.length = 0
        self.started = self.finished = 0
        self.marks: list[bytes] = []

    def take(self, request: Request, mark: bytes, length: int | None) -> Exception | None:
        """Take one request in, or say why not."""
        if request.op == "create" and (self.created or self.create is not None):
            return TagExists(request.tag)
        stamp = request.stamp
        if stamp is not None:
            if len(stamp) != length:
                return BufferLengthsUnequal(len(stamp), length)
            self.stamp ^= int.from_bytes(stamp, "little")
            self.length = length
            self.started += request.started
            self.finished += request.finished
        if request.op == "create":
            self.create = request
        elif request.op == "fail":
            self.failing = self.failing or request.reason or "fail was asked"
        elif request.op == "extend":
            self.extend = request
        self.marks.append(mark)
        return None

    def _until(self, timeout: float | None) -> int | None:
        """A deadline, ``timeout`` seconds or the default from now."""
        if timeout is None:
            return None if self.default_timeout is None else self.now + self.default_timeout
        return self.now + _milliseconds(timeout)

    def settled(self) -> Chain:
        """The chain after all requests were taken: is it acked, or failed?"""
        now = self.now
        old = self.chain
        if old is None:
            old = Chain(self.tag, deadline=self._until(None))
        fields: dict[str, Any] = {
            "first_seen_at": now if old.first_seen_at is None else old.first_seen_at,
            "version": old.version + 1,
            "marks": old.marks + b"".join(self.marks),
            "started": old.started + self.started,
            "finished": old.finished + self.finished,
            "failing": old.failing or self.failing,
        }
        if self.length:
            added = self.stamp.to_bytes(self.length, "little")
            fields["stamp"] = xor_bytes(old.stamp, added) if old.stamp else added
            fields["last_stamp_at"] = now
        if self.create is not None:
            fields["status"] = "open"
            fields["created_at"] = now
            fields["deadline"] = self._until(self.create.timeout)
            if self.create.idle_timeout is not None:
                fields["idle_timeout"] = _milliseconds(self.create.idle_timeout)
            if self.create.detail is not None:
                fields["detail"] = json.dumps(self.create.detail, separators=(",", ":"))
        # An extend stands whether it came after its create, with it, or overtook it.
        if self.extend is not None:
            fields["deadline"] = self._until(self.extend.timeout)
            fields["extended"] = True
        elif old.extended:
            fields["deadline"] = old.deadline
        return _judged(replace(old, **fields), now)


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def deadline_of(chain: Chain) -> int | None:
    """When an unfinished chain fails if nothing comes: milliseconds since 1970, None for never."""
    times = [] if chain.deadline is None else [chain.deadline]
    if chain.idle_timeout is not None and chain.last_stamp_at is not None:
        times.append(chain.last_stamp_at + chain.idle_timeout)
    return min(times, default=None)


def _judged(chain: Chain, now: int) -> Chain:
    """End the chain if it is at its end; else see to it that its deadline will be noticed."""
    if chain.status == "open":
        if chain.failing is not None:
            return _ended(chain, "failed", chain.failing, now)
        if chain.stamp and not any(chain.stamp) and chain.started == chain.finished:
            return _ended(chain, "acked", None, now)
    deadline = deadline_of(chain)
    # A time to look that is too early costs one look; one for each stamp would cost an index
    # write for each stamp.
    if deadline is None or chain.due_at is None or deadline < chain.due_at:
        chain = replace(chain, due_at=deadline)
    return chain


def _ended(chain: Chain, status: Status, reason: str | None, now: int) -> Chain:
    return replace(
        chain,
        status=status,
        reason=reason,
        failing=None,
        ended_at=now,
        event_pending=True,
        due_at=now + OWED_GRACE_MS,
    )


def expire(chain: Chain, now: int) -> Chain:
    """Look at a chain whose time has come: is it really late?

    Args:
        chain: The chain as it is kept.
        now: Milliseconds since 1970.

    Returns:
        The chain, ``failed`` if its deadline has passed; else with a later time to look, if there
        was progress; the very object that was given if there is nothing to write.
    """
    if chain.final:
        return chain
    deadline = deadline_of(chain)
    if deadline is not None and deadline <= now:
        reason = TIMED_OUT if chain.status == "open" else NEVER_CREATED
        return _ended(replace(chain, version=chain.version + 1), "failed", reason, now)
    if deadline != chain.due_at:
        return replace(chain, version=chain.version + 1, due_at=deadline)
    return chain


def published(chain: Chain) -> Chain:
    """The chain after its event was published."""
    return replace(chain, version=chain.version + 1, event_pending=False, due_at=None)
