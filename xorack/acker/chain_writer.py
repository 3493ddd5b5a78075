"""The chain writer: applies requests to stored chains. Each request takes effect exactly once.

The chain writer is the only code that writes chains. One conditional write applies the requests for
a chain and adds their marks. If another writer has changed the chain, the failed write returns the
stored state, and the requests are applied to that state. If a response is lost, the chain is read
again, and its marks show which requests were applied.
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
    END_CONTENT,
    INLINE_MARKS,
    MANY_INLINE_MARKS,
    MARK_BYTES,
    MARK_KEY_BYTES,
    end_marks_of,
    keys_of,
    mark_of,
    marks_in,
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
"""A wait of about a round trip. After a longer wait, the state that a conflict returned is read
again, because many writers compete when waits are long. A read costs a fifth of a failed write."""
_COUNT_ATTEMPTS = 3
"""The attempts to count late requests, because other writers may count or mark reports too."""
_LATE_SWEEP_MS = 86_400_000
"""How long after its deadline a chain may be failed without prolonging its marks."""

_Unknown: TypeAlias = set[tuple[int, object]]


@dataclass
class WriteStats:
    """The numbers of writes, of writes that met a conflict, and of spilled marks.

    Threads may share it.
    """

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
    """The chain as the caller knows it; None if it does not exist.

    It is verified if it was just read. If it is remembered or guessed, it is not verified until a
    read, or a write whose condition holds, confirms it.
    """

    chain: Chain | None
    verified: bool


class WriteBatch(NamedTuple):
    """The requests of one write: the position of the first request, their marks and send times."""

    first: int
    requests: Sequence[Request]
    marks: Sequence[bytes]
    sent_at: Sequence[int | None] | None


@dataclass(eq=False)
class Application:
    """Requests for one chain, and how far they are applied.

    An application can continue after a failure.
    """

    tag: str
    requests: Sequence[Request]  # all requests are for this tag, and sorted by `in_order`
    cached: CachedChain | None = None  # the chain if it is known; None means: read it first
    must_exist: bool = False  # True: raise TagNotFound instead of starting a chain
    fresh_ids: bool = False  # True: the ids were made for this call, so their marks are not spilled
    sent_at: Sequence[int | None] | None = None  # see `xorack.core.transitions.apply`
    retry: Retry | None = None
    outcomes: list[RequestOutcome] = field(default_factory=list)
    """The outcomes so far, which are those of the first requests."""
    unknown: _Unknown = field(default_factory=set)
    """The requests whose response was lost: their positions and the generations of the chain."""
    searched: tuple[object, int, dict[bytes, bytes]] = (None, 0, {})
    """The latest search for spilled marks: generation, number of marks searched, marks found."""
    _ends: set[tuple[object, ...]] = field(default_factory=set)
    """The ends of the chain that this application has written. A response may have been lost."""

    @property
    def is_done(self) -> bool:
        return len(self.outcomes) == len(self.requests)

    @property
    def chain(self) -> Chain | None:
        """The chain as it was read or written last."""
        return self.cached.chain if self.cached else None

    @property
    def has_ended_chain(self) -> bool:
        """Return whether a write of this application has ended the chain."""
        return self.chain is not None and _end_of(self.chain) in self._ends

    def next_batch(self) -> WriteBatch:
        """Return the requests of the next write: at most `MAX_FOLD` marks, or one request."""
        first = end = len(self.outcomes)
        marks = 0
        for request in self.requests[first:]:
            marks += 1 + len(request.finishes_once)
            if end > first and marks > MAX_FOLD:
                break
            end += 1
        requests = self.requests[first:end]
        sent_at = self.sent_at[first:end] if self.sent_at else None
        return WriteBatch(first, requests, [mark_of(request) for request in requests], sent_at)

    def add(self, written: Written) -> None:
        self.searched = (None, 0, {})
        self.cached = CachedChain(written.chain, verified=True)
        self.outcomes += written.outcomes

    def begin_write(self, before: Chain | None, after: Chain) -> None:
        if after.final and not (before and before.final):
            # Remember this before the write, because its response may be lost.
            self._ends.add(_end_of(after))

    def lose_write(self, after: Chain) -> None:
        self._ends.discard(_end_of(after))


class Written(NamedTuple):
    """All requests of the batch have outcomes."""

    chain: Chain | None
    outcomes: Sequence[RequestOutcome]


class Conflict(NamedTuple):
    """Another writer changed the chain at each attempt. The chain is now `stored`."""

    tag: str
    stored: Chain | None
    attempts: int = 1

    @property
    def error(self) -> Exception:
        return StaleLocalData(self.tag, self.attempts)


class Unanswered(NamedTuple):
    """The table did not answer the last attempt, because of the `error`."""

    error: Exception


class NeedsRead(NamedTuple):
    """The chain was only guessed. It has to be read before the requests can be processed."""


class ChainWriter:
    """Applies requests and other changes to stored chains. Threads may share a writer."""

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

    @property
    def mask(self) -> frozenset[str]:
        return self.limits.mask

    def oldest(self) -> int:
        """Return a time; the tombstone of a chain that ended before this time may have expired."""
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
        """Read chains in at most `attempts` attempts: see `xorack.core.ports.ChainStore.read`."""
        read = partial(self.store.read, tags, on_invalid, marks=marks)
        return self._start_retry(attempts).call(read)

    def write(self, before: Chain | None, after: Chain) -> None:
        """Write a chain in one attempt and count it: see `xorack.core.ports.ChainStore.write`."""
        assert after.version == (before.version if before else 0) + 1, "each write is counted"
        self.stats.add(writes=1)
        try:
            self.store.write(before, after)
        except ConflictError:
            self.stats.add(conflicts=1)
            raise

    def apply(self, work: Application) -> Applied:
        """Apply all requests of an application to its chain.

        Returns the chain as it was read or written last, and the outcomes. A request whose write
        succeeded, although its response was lost, counts as applied.

        Raises:
            TagNotFound: The chain must exist and does not.
            StaleLocalData: Other writers changed the chain at each attempt.
            Exception: The store's last call failed. Some requests may have been applied.
        """
        while not work.is_done:
            result = self.apply_next(work)
            if not isinstance(result, Written):
                raise result.error
        return Applied(work.chain, work.outcomes)

    def apply_next(
        self, work: Application, *, attempts: int | None = None, outages: int | None = None
    ) -> Written | Conflict | Unanswered:
        """Apply the next requests in one write; raise errors that a retry does not fix.

        The call gives up after `attempts`, or after `outages` in a row. The same application can
        continue later.
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
        """Read the chain if it is unknown, apply the requests, and write the chain, each once.

        Without `may_write`, the chain is only read: an earlier write may have succeeded although
        its response was lost.
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
        applied_marks = applied.chain.marks
        after = self.keep_marks(self._spill_marks(before, applied.chain))
        if before is None or before.first_seen_at is None:
            after = replace(after, nonce=secrets.randbits(32))
        kinds = enumerate(applied.outcomes, batch.first)
        in_flight = {(at, after.generation) for at, each in kinds if each.kind == "applied"}
        _check_write(before, after, len(applied_marks), len(in_flight))
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
        """Continue with the stored state; return whether another attempt to write is left."""
        guessed = work.cached is not None and not work.cached.verified
        work.cached = CachedChain(conflict.stored, verified=True)
        if guessed:
            return True  # a wrong guess costs no attempt, because the conflict returned the chain
        if not retry.again():
            return False
        if retry.waited_seconds > _STALE_AFTER_SECONDS:
            work.cached = None
        return True

    def _spilled_marks(
        self, work: Application, batch: WriteBatch, chain: Chain | None
    ) -> dict[bytes, bytes]:
        """Return the spilled marks of a batch.

        Fresh ids have such marks only after a lost response.
        """
        if chain is None or not (chain.spilled or chain.end_levels):
            return {}
        generation, count, marks = work.searched
        # Marks of ends are not counted, so it is unknown which of these marks were spilled since
        # then.
        if generation == chain.generation and chain.spilled <= count and not chain.end_levels:
            # Marks that were spilled since then were in the item, where the search found them.
            return marks
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
        marks = self.store.get_spilled_marks(chain, missing) if missing else {}
        marks |= {key: inline[key] for key in keys if key in inline}
        if not work.fresh_ids:
            work.searched = chain.generation, chain.spilled + len(chain.marks) // MARK_BYTES, marks
        return marks

    def expire(self, chain: Chain) -> Chain | None:
        """End a chain, as it was read, if its deadline has passed.

        Returns the chain as it was read or written last; None if it does not exist; the same object
        if another writer has ended it first. Raises the errors of `apply`.
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
        """Count late requests; return the chain as it was read or written last."""
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
                    break  # the SDK's retry may have met its own write, so the late request counts
        return chain

    def mark_reported(
        self, chain: Chain, reported: Collection[str], refused: Mapping[str, Failure]
    ) -> Chain:
        """Store which reports were made or refused; see `xorack.core.transitions.mark_reported`.

        If another writer has counted a late request since the chain was read, the reports that were
        made are marked in the stored chain. Returns the chain as it was written, or the same object
        if nothing was written.
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
                # A new callback and a new generation need reports of their own.
                is_same = (stored.generation, stored.reports.resume) == (
                    chain.generation,
                    chain.reports.resume,
                )
                pending = stored.pending_reports if is_same else ()
                reported = [report for report in reported if report in pending]
                if not reported:
                    break
                before, refused = stored, {}
        return chain

    def _latest_end(self, chain: Chain) -> int:
        # A chain of the direct API may have no deadline. Then each write prolongs the marks,
        # because nothing else shows how long they are needed.
        return self.now() if chain.latest_end == END_OF_TIME else chain.latest_end

    def keep_marks(self, after: Chain) -> Chain:
        """Prolong the spilled marks if the chain may end later; return the chain to write."""
        needed = min(self._latest_end(after) + self.limits.retention_ms, END_OF_TIME)
        if after.marks_until is None or after.marks_until >= needed:
            return after
        # Prolong the marks further than needed. So a chain that is extended every minute prolongs
        # them only once in each retention.
        until = min(needed + self.limits.retention_ms, END_OF_TIME)
        assert until >= needed, "marks outlive the chain"
        self.store.keep_spilled_marks(after, until)
        return replace(after, marks_until=until)

    def _spill_marks(self, before: Chain | None, after: Chain) -> Chain:
        """Copy the oldest marks to buckets if the chain's item would get too large."""
        size = MARK_BYTES * INLINE_MARKS
        if before is None:
            return after
        # Larger writes need a second write unit anyway, so marks may fill its 1,024 bytes.
        added = len(after.marks) - len(before.marks)
        most = size if 2 * added <= size else MARK_BYTES * MANY_INLINE_MARKS
        if len(after.marks) <= most:
            return after
        end = max(self.now(), self._latest_end(after))
        longest = self.limits.retention_ms + _LATE_SWEEP_MS
        # Keep these marks at least as long as earlier marks, because all buckets are prolonged
        # together.
        until = max(min(end + longest, END_OF_TIME), after.marks_until or 0)
        # The copies are written before the item loses the marks. A crash between the two leaves a
        # mark twice, which is harmless.
        old = marks_in(before.marks)
        ends = end_marks_of([mark for mark in old if mark[MARK_KEY_BYTES:] == END_CONTENT])
        full = self.store.put_end_marks(before, ends.by_bucket, until) if ends.by_bucket else []
        copied = {mark for marks in ends.by_bucket.values() for mark in marks} - {*full}
        others = [mark for mark in old if mark[MARK_KEY_BYTES:] != END_CONTENT] + full
        others = others[: len(others) // INLINE_MARKS * INLINE_MARKS]
        if others:
            self.store.put_spilled_marks(before, b"".join(others), until)
            spilled = after.spilled + len(others)
            after = replace(after, spilled=spilled, marks_until=after.marks_until or until)
        if copied:
            after = replace(after, end_levels=after.end_levels | 1 << ends.level)
        leaving = copied.union(others)
        self.stats.add(spilled=len(leaving))
        left = [mark for mark in marks_in(after.marks) if mark not in leaving]
        assert len(left) + len(leaving) == len(after.marks) // MARK_BYTES, "no mark is lost"
        return replace(after, marks=b"".join(left))


def _credited(work: Application, batch: WriteBatch, applied: Applied) -> Written:
    """Count a duplicate as applied if this application wrote it and the response was lost."""
    # In another generation of the chain, the mark is from another request.
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


def _check_write(before: Chain | None, after: Chain, marks: int, applied: int) -> None:
    """Assert that a write marks all applied requests and keeps the chain's generation.

    `marks` is the number of bytes of the marks before some are spilled.
    """
    old = before or Chain(after.tag)
    added = marks - len(old.marks)
    assert added >= MARK_BYTES * max(1, applied), "each request that takes effect adds its mark"
    assert old.first_seen_at is None or after.generation == old.generation
