"""The chain writer: applies requests to a stored chain, each exactly once.

It is the only code that writes chains. One conditional write applies all requests of a chain and
adds their marks. If others changed the chain, the failed write returns the stored state, and the
requests are applied to that. If a response is lost, the chain is read again, and the marks tell
which requests were applied.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, TypeAlias

from xorack.aws.clock import milliseconds
from xorack.aws.retry import Retry, RetryPolicy
from xorack.core.budget import UNLIMITED, Budget
from xorack.core.chain import END_OF_TIME, Chain
from xorack.core.errors import ConflictError, StaleLocalData, TagNotFound, UnavailableError
from xorack.core.marks import (
    INLINE_MARKS,
    MANY_INLINE_MARKS,
    MARK_BYTES,
    keys_of,
    mark_of,
    split_marks,
)
from xorack.core.ports import ChainStore, OnInvalid
from xorack.core.request import Request
from xorack.core.transitions import (
    MAX_FOLD,
    Applied,
    Limits,
    Outcome,
    apply,
    expire,
    mark_delivered,
    order_of,
)

_STALE_AFTER_SECONDS = 0.005
"""Length of a wait, about a round trip, after which a state that a conflict returned is read
again. Many write when waits are long, and a read costs a fifth of a failed write."""
_COUNT_ATTEMPTS = 3
"""Attempts to count what came after a chain's end: others may count, or mark its event."""
_LATE_SWEEP_MS = 86_400_000
"""How long after its deadline a chain may be failed without prolonging its marks."""

_Unknown: TypeAlias = set[tuple[int, object]]


@dataclass
class WriteStats:
    """Counts of conditional writes, conflicts among them, spilled marks. Threads may share them."""

    writes: int = 0
    conflicts: int = 0
    spilled: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, *, writes: int = 0, conflicts: int = 0, spilled: int = 0) -> None:
        with self._lock:
            self.writes += writes
            self.conflicts += conflicts
            self.spilled += spilled


@dataclass(frozen=True)
class CachedChain:
    """A chain as the caller believes it to be; None if it does not exist.

    It is verified if it was just read. One that is remembered or guessed is not: only a write whose
    condition holds, or a read, proves it.
    """

    chain: Chain | None
    verified: bool


class Part(NamedTuple):
    """Requests of one write: their positions among all, their marks, and when each was sent."""

    positions: list[int]
    requests: list[Request]
    marks: list[bytes]
    sent_at: list[int | None] | None


@dataclass(eq=False)
class Application:
    """Requests on their way into one chain. What fails can go on later, where it was."""

    tag: str
    requests: Sequence[Request]  # all of this tag; those with `MAX_FOLD` marks share a write
    cached: CachedChain | None = None  # the chain as it is known; None: it is read first
    must_exist: bool = False  # raise TagNotFound instead of starting a chain
    fresh_ids: bool = False  # made for this call: no mark of them was spilled before
    sent_at: Sequence[int | None] | None = None  # see `xorack.core.transitions.apply`
    retry: Retry | None = None
    left: list[int] = field(init=False)
    """Positions of the requests without an outcome, in the order of their effect."""
    unknown: _Unknown = field(default_factory=set)
    """Positions, and generations of the chain, of writes whose response was lost."""
    searched: tuple[object, int, dict[bytes, bytes]] = (None, 0, {})
    """The generation and number of marks that were searched for the next part's, and the find."""
    _outcomes: dict[int, Outcome] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.left = order_of(self.requests)

    def next_part(self) -> Part:
        """Return the next requests of one write: at most `MAX_FOLD` marks, or one request."""
        count = marks = 0
        for position in self.left:
            marks += 1 + len(self.requests[position].finishes_once)
            if count and marks > MAX_FOLD:
                break
            count += 1
        positions = self.left[:count]
        requests = [self.requests[position] for position in positions]
        sent_at = [self.sent_at[position] for position in positions] if self.sent_at else None
        return Part(positions, requests, [mark_of(one) for one in requests], sent_at)

    def add(self, part: Part, outcomes: Sequence[Outcome]) -> None:
        self.left = self.left[len(part.positions) :]
        self.searched = (None, 0, {})
        self._outcomes.update(zip(part.positions, outcomes, strict=True))

    def applied(self) -> Applied:
        """Return the chain as last read or written, and the outcomes so far, in order."""
        assert len(self._outcomes) == len(self.requests) - len(self.left), "each has an outcome"
        outcomes = [self._outcomes[index] for index in sorted(self._outcomes)]
        return Applied(self.cached.chain if self.cached else None, outcomes)


class ChainWriter:
    """Applies requests and other changes to stored chains. Threads may share one."""

    def __init__(
        self,
        store: ChainStore,
        *,
        clock: Callable[[], int] = milliseconds,
        policy: RetryPolicy | None = None,
        budget: Budget = UNLIMITED,
        limits: Limits | None = None,
    ) -> None:
        self.store = store
        self.now = clock
        self._policy = policy or RetryPolicy()
        self._budget = budget
        self.limits = limits or Limits()
        self.stats = WriteStats()
        self.ends: set[tuple[object, ...]] | None = None

    def has_time(self) -> bool:
        return self._budget.left() > 0

    def seconds_left(self) -> float:
        return self._budget.left()

    def resumes(self) -> bool:
        """Tell whether chains may have callbacks."""
        return bool(self.limits.resumes)

    @property
    def mask(self) -> frozenset[str]:
        return self.limits.mask

    def oldest(self) -> int:
        """Return the time before which a chain may have ended whose tombstone is gone."""
        return self.limits.oldest(self.now())

    def _start_retry(self, attempts: int | None = None) -> Retry:
        policy = self._policy if attempts is None else replace(self._policy, attempts=attempts)
        return policy.start(self._budget)

    def read(
        self, tags: Sequence[str], on_invalid: OnInvalid | None = None, *, attempts: int
    ) -> dict[str, Chain]:
        """Read chains, see `xorack.core.ports.ChainStore.read`, in at most `attempts` attempts."""
        return self._start_retry(attempts).call(partial(self.store.read, tags, on_invalid))

    def write(self, before: Chain | None, after: Chain) -> None:
        """Write a chain in one attempt, and count it: see `xorack.core.ports.ChainStore.write`."""
        assert after.version == (before.version if before else 0) + 1, "each write is counted"
        self.stats.add(writes=1)
        if self.ends is not None and after.final and not (before and before.final):
            self.ends.add(_end_of(after))  # its response may be lost
        try:
            self.store.write(before, after)
        except ConflictError as conflict:
            self.stats.add(conflicts=1)
            if self.ends and not conflict.maybe_ours:
                self.ends.discard(_end_of(after))
            raise

    def ended(self, chain: Chain) -> bool:
        """Tell if a write of this writer ended a chain, once it keeps its `ends`."""
        return _end_of(chain) in (self.ends or ())

    def apply(self, work: Application) -> Applied:
        """Apply requests to one chain; return the chain as last read or written, and the outcomes.

        A request whose write landed while its response was lost counts as applied.

        Raises:
            TagNotFound: The chain must exist and does not.
            StaleLocalData: Others kept changing the chain until the retries were used up.
            Exception: What the store's last call raised. Some requests may have been applied.
        """
        while work.left:
            if problem := self.advance(work):
                raise problem
        return work.applied()

    def advance(
        self, work: Application, *, attempts: int | None = None, outages: int | None = None
    ) -> Exception | None:
        """Give the next requests their outcomes in one write; raise what will not pass.

        Returns what used up the `attempts`, or those in a row that the table did not answer: the
        work can go on later. None if the requests were written.
        """
        part = work.next_part()
        if attempts is None:
            # Its waits grow from write to write: of those that write a chain, one goes on at once.
            retry = work.retry = work.retry or self._start_retry()
        else:
            retry = self._start_retry(attempts)
        failed = 0
        exhausted: Exception | None = None
        while not isinstance(result := self._attempt(work, part, exhausted), Applied):
            if isinstance(result, ConflictError):
                failed = 0
                exhausted = self._after_conflict(work, result, retry)
                continue
            work.cached = None
            if isinstance(result, UnavailableError):
                failed += 1
                if exhausted is not None or failed == outages or not retry.again():
                    return result.cause
            elif result is not None:
                return result
        work.cached = CachedChain(result.chain, verified=True)
        work.add(part, result.outcomes)
        return None

    def _attempt(
        self, work: Application, part: Part, exhausted: Exception | None
    ) -> Applied | Exception | None:
        """Apply and write once; None if the cached chain must be verified, `exhausted` if not."""
        in_flight: _Unknown = set()
        try:
            if work.cached is None:
                stored = self.store.read([work.tag]).get(work.tag)
                work.cached = CachedChain(stored, verified=True)
            chain, verified = work.cached.chain, work.cached.verified
            if chain is None and work.must_exist:
                if verified:
                    raise TagNotFound(work.tag)
                return None
            applied = apply(
                chain,
                part.requests,
                now=self.now(),
                spilled_marks=self._spilled_marks(work, part, chain),
                limits=self.limits,
                marks=part.marks,
                sent_at=part.sent_at,
            )
            if applied.chain is chain:
                return _credited(work, part, applied) if verified else None
            if exhausted is not None:
                return exhausted
            assert applied.chain is not None, "something was applied"
            after = self.keep_marks(self._spill_marks(chain, applied.chain))
            if chain is None or chain.first_seen_at is None:
                after = replace(after, nonce=secrets.randbits(32))
            kinds = zip(part.positions, applied.outcomes, strict=True)
            in_flight = {(at, after.generation) for at, one in kinds if one.kind == "applied"}
            _check_write(chain, after, len(in_flight))
            self.write(chain, after)
            return _credited(work, part, applied._replace(chain=after))
        except ConflictError as conflict:
            work.unknown |= in_flight if conflict.maybe_ours else set()
            return conflict
        except UnavailableError as unavailable:
            work.unknown |= in_flight
            return unavailable

    def _after_conflict(
        self, work: Application, conflict: ConflictError, retry: Retry
    ) -> Exception | None:
        """Go on with the stored state; return the error if no attempt to write is left."""
        guessed = work.cached is not None and not work.cached.verified
        work.cached = CachedChain(conflict.chain, verified=True)
        if guessed:
            return None  # a wrong guess is not an attempt: the conflict returned the current state
        if not retry.again():
            # The stored state may be our own write: apply once more, without a write.
            return StaleLocalData(work.tag, retry.attempt)
        if retry.waited_seconds > _STALE_AFTER_SECONDS:
            work.cached = None
        return None

    def _spilled_marks(
        self, work: Application, part: Part, chain: Chain | None
    ) -> dict[bytes, bytes]:
        """Look up the spilled marks of a part; if its ids are fresh, of writes of ours alone."""
        if chain is None or not chain.spilled:
            return {}
        generation, count, found = work.searched
        if generation == chain.generation and chain.spilled <= count:
            return found  # what was spilled since was in the item
        ours = {position for position, _ in work.unknown}
        inline = split_marks(chain.marks)
        keys = dict.fromkeys(
            key
            for position, request, mark in zip(*part[:3], strict=True)
            if position in ours or not work.fresh_ids
            for key in keys_of(request, mark)
        )
        missing = [key for key in keys if key not in inline]
        found = self.store.get_spilled_marks(chain, missing) if missing else {}
        found |= {key: inline[key] for key in keys if key in inline}
        if not work.fresh_ids:
            work.searched = chain.generation, chain.spilled + len(chain.marks) // MARK_BYTES, found
        return found

    def expire(self, chain: Chain) -> Chain | None:
        """End a chain, as it was read, if its deadline has passed.

        Returns the chain as last read or written, None if there is none, the given one if another
        writer was quicker to end it. Raises as `apply`.
        """
        retry = self._start_retry()
        current: Chain | None = chain
        stale = maybe_ours = False
        while True:
            problem: Exception
            try:
                if stale:
                    current = self.store.read([chain.tag]).get(chain.tag)
                    stale = False
                if current is None:
                    return None
                after = expire(current, self.now())
                if after is not current:
                    after = self.keep_marks(after)
                    assert after.generation == current.generation, "an end keeps the generation"
                    self.write(current, after)
                elif current.final and not maybe_ours:
                    return chain
                return after
            except ConflictError as conflict:
                current = conflict.chain
                maybe_ours = maybe_ours or conflict.maybe_ours
                problem = StaleLocalData(chain.tag, retry.attempt)
            except UnavailableError as unavailable:
                stale = maybe_ours = True
                problem = unavailable.cause
            if not retry.again():
                raise problem
            stale = stale or retry.waited_seconds > _STALE_AFTER_SECONDS

    def count_late(self, chain: Chain, repeated: int, late: int) -> Chain:
        """Count what came after a chain's end; return the chain as last read or written."""
        for _ in range(_COUNT_ATTEMPTS):
            after = chain.with_late(repeated, late, self.now())
            try:
                self.write(chain, after)
                return after
            except ConflictError as conflict:
                if conflict.chain is None or conflict.chain.generation != chain.generation:
                    break
                chain = conflict.chain
                if conflict.maybe_ours:
                    break  # an SDK's retry met its own write
        return chain

    def mark_delivered(
        self, chain: Chain, delivered: Collection[str], refused: Mapping[str, str]
    ) -> Chain:
        """Mark, in one attempt, what `xorack.core.transitions.mark_delivered` gets.

        Returns the chain as it was written; the given one if another writer was quicker.
        """
        after = mark_delivered(chain, delivered, now=self.now(), refused=refused)
        try:
            self.write(chain, after)
        except ConflictError:
            return chain
        return after

    def _latest_end(self, chain: Chain) -> int:
        # Without a deadline, as of the direct API, each write prolongs the marks: else they stay.
        return self.now() if chain.latest_end == END_OF_TIME else chain.latest_end

    def keep_marks(self, after: Chain) -> Chain:
        """Prolong spilled marks if a write moves the chain's end; return the chain to write."""
        needed = min(self._latest_end(after) + self.limits.retention_ms, END_OF_TIME)
        if after.marks_until is None or after.marks_until >= needed:
            return after
        # Further than needed: a chain that is extended every minute does this once a retention.
        until = min(needed + self.limits.retention_ms, END_OF_TIME)
        assert until >= needed, "marks outlive the chain"
        self.store.keep_spilled_marks(after, until)
        return replace(after, marks_until=until)

    def _spill_marks(self, before: Chain | None, after: Chain) -> Chain:
        """Copy the marks, all but the last few, out of a chain that would get too large."""
        size = MARK_BYTES * INLINE_MARKS
        old = before.marks if before else b""
        # Larger writes take a second unit anyway: they may fill its KB.
        most = size if 2 * (len(after.marks) - len(old)) <= size else MARK_BYTES * MANY_INLINE_MARKS
        marks = old[: len(old) // size * size]
        if before is None or not marks or len(after.marks) <= most:
            return after
        assert after.marks.startswith(marks), "the oldest marks leave first"
        # Copies first, then the write without them: a crash between leaves a mark twice.
        end = max(self.now(), self._latest_end(after))
        until = min(end + self.limits.retention_ms + _LATE_SWEEP_MS, END_OF_TIME)
        # As long as the others: all buckets are prolonged if one of them must be.
        until = max(until, after.marks_until or 0)
        self.store.put_spilled_marks(before, marks, until)
        spilled = len(marks) // MARK_BYTES
        self.stats.add(spilled=spilled)
        return replace(
            after,
            marks=after.marks[len(marks) :],
            spilled=after.spilled + spilled,
            marks_until=after.marks_until or until,
        )


def _credited(work: Application, part: Part, applied: Applied) -> Applied:
    """Report a duplicate of a write of ours whose response was lost as applied."""
    # In another generation it is none of ours: the write took the chain for new.
    generation = applied.chain and applied.chain.generation
    outcomes = [
        Outcome(outcome.request, "applied")
        if outcome.kind == "duplicate" and (position, generation) in work.unknown
        else outcome
        for position, outcome in zip(part.positions, applied.outcomes, strict=True)
    ]
    return applied._replace(outcomes=outcomes)


def _end_of(chain: Chain) -> tuple[object, ...]:
    return chain.tag, chain.generation, chain.ended_at


def _check_write(before: Chain | None, after: Chain, applied: int) -> None:
    """Stop a write of ours that would break the chain: what is applied is marked, in one chain."""
    old = before or Chain(after.tag)
    added = len(after.marks) + MARK_BYTES * after.spilled
    added -= len(old.marks) + MARK_BYTES * old.spilled
    assert added >= MARK_BYTES * max(1, applied), "each request that takes effect adds its mark"
    assert old.first_seen_at is None or after.generation == old.generation
