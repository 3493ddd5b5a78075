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
from xorack.core.ports import ChainStore, Failure, OnInvalid
from xorack.core.request import Request
from xorack.core.transitions import (
    MAX_FOLD,
    Applied,
    Limits,
    RequestOutcome,
    apply,
    expire,
    mark_reported,
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


class WriteBatch(NamedTuple):
    """Requests of one write: the position of the first one, their marks, and when each was sent."""

    first: int
    requests: Sequence[Request]
    marks: Sequence[bytes]
    sent_at: Sequence[int | None] | None


@dataclass(eq=False)
class Application:
    """Requests on their way into one chain. What fails can go on later, where it was."""

    tag: str
    requests: Sequence[Request]  # all of this tag, in the order of `in_order`
    cached: CachedChain | None = None  # the chain as it is known; None: it is read first
    must_exist: bool = False  # raise TagNotFound instead of starting a chain
    fresh_ids: bool = False  # made for this call: no mark of them was spilled before
    sent_at: Sequence[int | None] | None = None  # see `xorack.core.transitions.apply`
    retry: Retry | None = None
    outcomes: list[RequestOutcome] = field(default_factory=list)
    """The outcomes of the first requests; the others have none yet."""
    unknown: _Unknown = field(default_factory=set)
    """Positions, and generations of the chain, of writes whose response was lost."""
    searched: tuple[object, int, dict[bytes, bytes]] = (None, 0, {})
    """The generation and number of marks that were searched for the next batch's, and the find."""
    _ends: set[tuple[object, ...]] = field(default_factory=set)
    """Ends of the chain that this work has written; the response of some may be lost."""

    @property
    def is_done(self) -> bool:
        return len(self.outcomes) == len(self.requests)

    @property
    def chain(self) -> Chain | None:
        """The chain as last read or written."""
        return self.cached.chain if self.cached else None

    @property
    def has_ended_chain(self) -> bool:
        """Return whether a write of this work ended the chain as it is known."""
        return self.chain is not None and _end_of(self.chain) in self._ends

    def next_batch(self) -> WriteBatch:
        """Return the next requests of one write: at most `MAX_FOLD` marks, or one request."""
        first = end = len(self.outcomes)
        marks = 0
        for request in self.requests[first:]:
            marks += 1 + len(request.finishes_once)
            if end > first and marks > MAX_FOLD:
                break
            end += 1
        requests = self.requests[first:end]
        sent_at = self.sent_at[first:end] if self.sent_at else None
        return WriteBatch(first, requests, [mark_of(one) for one in requests], sent_at)

    def add(self, written: Written) -> None:
        self.searched = (None, 0, {})
        self.cached = CachedChain(written.chain, verified=True)
        self.outcomes += written.outcomes

    def begin_write(self, before: Chain | None, after: Chain) -> None:
        if after.final and not (before and before.final):
            self._ends.add(_end_of(after))  # the response may be lost

    def lose_write(self, after: Chain) -> None:
        self._ends.discard(_end_of(after))


class Written(NamedTuple):
    """The requests of a batch have their outcomes."""

    chain: Chain | None
    outcomes: Sequence[RequestOutcome]


class Conflict(NamedTuple):
    """Another writer has changed the chain, which is `stored` now, in each of the attempts."""

    tag: str
    stored: Chain | None
    attempts: int = 1

    @property
    def error(self) -> Exception:
        return StaleLocalData(self.tag, self.attempts)


class Unanswered(NamedTuple):
    """The table did not answer, which is the `error`."""

    error: Exception


class NeedsRead(NamedTuple):
    """The chain is only a guess, and has to be read before the requests can be judged."""


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

    def has_time(self) -> bool:
        return self._budget.left() > 0

    def seconds_left(self) -> float:
        return self._budget.left()

    def resumes(self) -> bool:
        """Return whether chains may have callbacks."""
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
        self,
        tags: Sequence[str],
        on_invalid: OnInvalid | None = None,
        *,
        attempts: int,
        marks: bool = True,
    ) -> dict[str, Chain]:
        """Read chains, see `xorack.core.ports.ChainStore.read`, in at most `attempts` attempts."""
        read = partial(self.store.read, tags, on_invalid, marks=marks)
        return self._start_retry(attempts).call(read)

    def write(self, before: Chain | None, after: Chain) -> None:
        """Write a chain in one attempt, and count it: see `xorack.core.ports.ChainStore.write`."""
        assert after.version == (before.version if before else 0) + 1, "each write is counted"
        self.stats.add(writes=1)
        try:
            self.store.write(before, after)
        except ConflictError:
            self.stats.add(conflicts=1)
            raise

    def apply(self, work: Application) -> Applied:
        """Apply requests to one chain; return the chain as last read or written, and the outcomes.

        A request whose write landed while its response was lost counts as applied.

        Raises:
            TagNotFound: The chain must exist and does not.
            StaleLocalData: Others kept changing the chain until the retries were used up.
            Exception: What the store's last call raised. Some requests may have been applied.
        """
        while not work.is_done:
            result = self.apply_next(work)
            if not isinstance(result, Written):
                raise result.error
        return Applied(work.chain, work.outcomes)

    def apply_next(
        self, work: Application, *, attempts: int | None = None, outages: int | None = None
    ) -> Written | Conflict | Unanswered:
        """Give the next requests their outcomes in one write; raise what will not pass.

        After a conflict that has used up the `attempts`, or `outages` in a row, the work can go on
        later.
        """
        batch = work.next_batch()
        if attempts is None:
            # Back off longer after each write, so that one of the competing writers succeeds.
            retry = work.retry = work.retry or self._start_retry()
        else:
            retry = self._start_retry(attempts)
        may_write, outages_in_a_row = True, 0
        while True:
            result = self._attempt(work, batch, may_write=may_write)
            if isinstance(result, Written):
                work.add(result)
                return result
            if isinstance(result, NeedsRead):
                work.cached = None
            elif isinstance(result, Conflict):
                if not may_write:
                    return result._replace(attempts=retry.attempt)
                outages_in_a_row = 0
                may_write = self._after_conflict(work, result, retry)
            else:
                work.cached = None
                outages_in_a_row += 1
                if not may_write or outages_in_a_row == outages or not retry.again():
                    return result

    def _attempt(
        self, work: Application, batch: WriteBatch, *, may_write: bool
    ) -> Written | Conflict | Unanswered | NeedsRead:
        """Read the chain if it is unknown, apply the requests and write, each once.

        If no write is allowed any more, the stored state may still be an earlier write of ours.
        """
        try:
            if work.cached is None:
                stored = self.store.read([work.tag]).get(work.tag)
                work.cached = CachedChain(stored, verified=True)
            chain, verified = work.cached.chain, work.cached.verified
            if chain is None and work.must_exist:
                if verified:
                    raise TagNotFound(work.tag)
                return NeedsRead()
            applied = apply(
                chain,
                batch.requests,
                now=self.now(),
                spilled_marks=self._spilled_marks(work, batch, chain),
                limits=self.limits,
                marks=batch.marks,
                sent_at=batch.sent_at,
            )
            if applied.chain is chain:
                return _credited(work, batch, applied) if verified else NeedsRead()
            if not may_write:
                return Conflict(work.tag, chain)
            return self._write_applied(work, batch, chain, applied)
        except UnavailableError as unavailable:
            return Unanswered(unavailable.cause)

    def _write_applied(
        self, work: Application, batch: WriteBatch, before: Chain | None, applied: Applied
    ) -> Written | Conflict | Unanswered:
        """Write the chain to which the requests of a batch were applied."""
        assert applied.chain is not None, "something was applied"
        after = self.keep_marks(self._spill_marks(before, applied.chain))
        if before is None or before.first_seen_at is None:
            after = replace(after, nonce=secrets.randbits(32))
        kinds = enumerate(applied.outcomes, batch.first)
        in_flight = {(at, after.generation) for at, one in kinds if one.kind == "applied"}
        _check_write(before, after, len(in_flight))
        work.begin_write(before, after)
        try:
            self.write(before, after)
        except ConflictError as conflict:
            if conflict.maybe_ours:
                work.unknown |= in_flight
            else:
                work.lose_write(after)
            return Conflict(work.tag, conflict.chain)
        except UnavailableError as unavailable:
            work.unknown |= in_flight
            return Unanswered(unavailable.cause)
        return _credited(work, batch, applied._replace(chain=after))

    def _after_conflict(self, work: Application, conflict: Conflict, retry: Retry) -> bool:
        """Go on with the stored state; return whether an attempt to write is left."""
        guessed = work.cached is not None and not work.cached.verified
        work.cached = CachedChain(conflict.stored, verified=True)
        if guessed:
            return True  # a wrong guess is not an attempt: the conflict returned the current state
        if not retry.again():
            return False
        if retry.waited_seconds > _STALE_AFTER_SECONDS:
            work.cached = None
        return True

    def _spilled_marks(
        self, work: Application, batch: WriteBatch, chain: Chain | None
    ) -> dict[bytes, bytes]:
        """Look up the spilled marks of a batch; if its ids are fresh, of writes of ours alone."""
        if chain is None or not chain.spilled:
            return {}
        generation, count, found = work.searched
        if generation == chain.generation and chain.spilled <= count:
            return found  # what was spilled since was in the item
        ours = {position - batch.first for position, _ in work.unknown}
        inline = split_marks(chain.marks)
        keys = dict.fromkeys(
            key
            for position, (request, mark) in enumerate(
                zip(batch.requests, batch.marks, strict=True)
            )
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

    def mark_reported(
        self, chain: Chain, reported: Collection[str], refused: Mapping[str, Failure]
    ) -> Chain:
        """Mark what `xorack.core.transitions.mark_reported` gets.

        Another writer may have counted a late request since the chain was read: then what was
        reported is marked in the stored chain. Returns the chain as it was written; the given one
        if nothing was.
        """
        before = chain
        for _ in range(_COUNT_ATTEMPTS):
            after = mark_reported(before, reported, now=self.now(), refused=refused)
            try:
                self.write(before, after)
                return after
            except ConflictError as conflict:
                stored = conflict.chain
                if conflict.maybe_ours or stored is None:
                    break
                # A new callback was not made yet, and a new generation has nothing reported.
                is_same = (stored.generation, stored.reports.resume) == (
                    chain.generation,
                    chain.reports.resume,
                )
                reported = [one for one in reported if is_same and one in stored.pending_reports]
                if not reported:
                    break
                before, refused = stored, {}
        return chain

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


def _credited(work: Application, batch: WriteBatch, applied: Applied) -> Written:
    """Report a duplicate of a write of ours whose response was lost as applied."""
    # In another generation it is none of ours: the write took the chain for new.
    generation = applied.chain and applied.chain.generation
    outcomes = [
        RequestOutcome(outcome.request, "applied")
        if outcome.kind == "duplicate" and (position, generation) in work.unknown
        else outcome
        for position, outcome in enumerate(applied.outcomes, batch.first)
    ]
    return Written(applied.chain, outcomes)


def _end_of(chain: Chain) -> tuple[object, ...]:
    return chain.tag, chain.generation, chain.ended_at


def _check_write(before: Chain | None, after: Chain, applied: int) -> None:
    """Stop a write of ours that would break the chain: what is applied is marked, in one chain."""
    old = before or Chain(after.tag)
    added = len(after.marks) + MARK_BYTES * after.spilled
    added -= len(old.marks) + MARK_BYTES * old.spilled
    assert added >= MARK_BYTES * max(1, applied), "each request that takes effect adds its mark"
    assert old.first_seen_at is None or after.generation == old.generation
