"""The chain writer: applies requests to a stored chain, each exactly once.

It is the only code that writes chains. One conditional write applies all requests of a chain and
adds their marks. If others changed the chain, the failed write returns the stored state, and the
requests are applied to that. If a response is lost, the chain is read again, and the marks tell
which requests were applied.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from xorack.aws.clock import milliseconds
from xorack.aws.retry import Retry, RetryPolicy
from xorack.core.budget import UNLIMITED, Budget
from xorack.core.chain import END_OF_TIME, Chain
from xorack.core.errors import ConflictError, StaleLocalData, TagNotFound, UnavailableError
from xorack.core.marks import INLINE_MARKS, MARK_BYTES, keys_of, mark_of, split_marks
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


@dataclass
class WriteStats:
    """Counts of conditional writes, of conflicts among them, and of marks that were spilled.

    Threads may share them.
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
    """A chain as the caller believes it to be; None if it does not exist.

    It is verified if it was just read. One that is remembered or guessed is not: only a write whose
    condition holds, or a read, proves it.
    """

    chain: Chain | None
    verified: bool


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

    def start_retry(self) -> Retry:
        """Start the attempts of one operation."""
        return self._policy.start(self._budget)

    def read(
        self, tags: Sequence[str], on_invalid: OnInvalid | None = None, *, attempts: int
    ) -> dict[str, Chain]:
        """Read chains, see `xorack.core.ports.ChainStore.read`, in at most `attempts` attempts."""
        retry = replace(self._policy, attempts=attempts).start(self._budget)
        return retry.call(partial(self.store.read, tags, on_invalid))

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

    def due_pages(self) -> Iterator[list[str]]:
        """Yield the tags of chains to look at now: see `xorack.core.ports.ChainStore.due_pages`."""
        return self.store.due_pages(self.now())

    def oldest(self) -> int:
        """Return the time before which a chain may have ended whose tombstone is gone."""
        return self.limits.oldest(self.now())

    def apply(
        self,
        tag: str,
        requests: Sequence[Request],
        cached: CachedChain | None = None,
        *,
        must_exist: bool = False,
        fresh_ids: bool = False,
        sent_at: Sequence[int | None] | None = None,
    ) -> Applied:
        """Apply requests to one chain.

        Args:
            tag: The chain.
            requests: Any number, all of this tag; those with `MAX_FOLD` marks share a write.
            cached: None: the chain is read first.
            must_exist: Raise TagNotFound instead of starting a chain.
            fresh_ids: The requests' ids were made for this call, so only a write of this call can
                have applied one. Saves the lookup of spilled marks.
            sent_at: When each was sent, see `xorack.core.transitions.apply`.

        Returns:
            The chain as it was last read or written, and an outcome for each request, in order. A
            request whose write landed while its response was lost counts as applied.

        Raises:
            TagNotFound: The chain must exist and does not.
            StaleLocalData: Others kept changing the chain until the retries were used up. If the
                requests need several writes, some of them may have been applied.
            Exception: What the store's last call raised, if that was the reason.
        """
        outcomes: dict[int, Outcome] = {}
        chain = cached.chain if cached else None
        for positions in _writes(requests):
            times = sent_at and [sent_at[i] for i in positions]
            part = _Part(self, tag, [requests[i] for i in positions], cached, times)
            chain, part_outcomes = part.write(must_exist, fresh_ids)
            cached = CachedChain(chain, verified=True)
            outcomes.update(zip(positions, part_outcomes, strict=True))
        assert len(outcomes) == len(requests), "each request has an outcome"
        return Applied(chain, [outcomes[index] for index in range(len(requests))])

    def expire(self, chain: Chain) -> Chain | None:
        """End a chain, as it was read before, if it is complete or its deadline has passed.

        Returns the chain as last read or written, None if it does not exist; the given one if
        another writer was quicker to end it. Raises as `apply`.
        """
        retry = self.start_retry()
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
        ended = chain.generation
        for _ in range(_COUNT_ATTEMPTS):
            after = chain.with_late(repeated, late, self.now())
            try:
                self.write(chain, after)
            except ConflictError as conflict:
                if conflict.chain is None or conflict.chain.generation != ended:
                    return chain
                chain = conflict.chain
                if conflict.maybe_ours:
                    return chain  # an SDK's retry met its own write
            else:
                return after
        return chain

    def mark_delivered(
        self, chain: Chain, delivered: Collection[str], refused: Mapping[str, str]
    ) -> Chain:
        """Mark what became of the reports of a chain's end, in one attempt.

        Returns the chain as it was written; the given one if another writer was quicker. The
        arguments are those of `xorack.core.transitions.mark_delivered`.
        """
        after = mark_delivered(chain, delivered, now=self.now(), refused=refused)
        try:
            self.write(chain, after)
        except ConflictError:
            return chain
        return after

    def latest_end(self, chain: Chain) -> int:
        """Return when a chain ends at the latest, as far as is known.

        One without a deadline, as of the direct API, counts as ending now: each write prolongs its
        marks. Otherwise they would never expire.
        """
        return self.now() if chain.latest_end == END_OF_TIME else chain.latest_end

    def keep_marks(self, after: Chain) -> Chain:
        """Prolong the life of spilled marks if a write moves the chain's end beyond it.

        Takes the chain that will be written; returns the chain to write instead.
        """
        needed = min(self.latest_end(after) + self.limits.retention_ms, END_OF_TIME)
        if after.marks_until is None or after.marks_until >= needed:
            return after
        # Further than needed: a chain that is extended every minute does this once a retention.
        until = min(needed + self.limits.retention_ms, END_OF_TIME)
        assert until >= needed, "marks outlive the chain"
        self.store.keep_spilled_marks(after, until)
        return replace(after, marks_until=until)

    def spill_marks(self, before: Chain | None, after: Chain) -> Chain:
        """Copy the marks out of the chain if the write would make it too large.

        All of them, not just the excess: the next time is then `INLINE_MARKS` requests away.
        """
        marks = before.marks if before else b""
        if before is None or not marks or len(after.marks) <= MARK_BYTES * INLINE_MARKS:
            return after
        assert len(marks) % MARK_BYTES == 0, "an item has whole marks"
        assert after.marks.startswith(marks), "the oldest marks leave first"
        # Copies first, then the write without them: a crash between leaves a mark twice.
        end = max(self.now(), self.latest_end(after))
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


def _writes(requests: Sequence[Request]) -> Iterator[list[int]]:
    """Yield the positions of requests by write: one request, or more with `MAX_FOLD` marks."""
    part: list[int] = []
    marks = 0
    for position in order_of(requests):
        count = 1 + len(requests[position].finishes_once)
        if part and marks + count > MAX_FOLD:
            yield part
            part, marks = [], 0
        part.append(position)
        marks += count
    if part:
        yield part


class _Part:
    """The requests of one write, across its attempts."""

    def __init__(
        self,
        writer: ChainWriter,
        tag: str,
        requests: Sequence[Request],
        cached: CachedChain | None,
        sent_at: Sequence[int | None] | None,
    ) -> None:
        self.writer = writer
        self.tag = tag
        self.requests = requests
        self.cached = cached
        self.sent_at = sent_at
        self.marks = [mark_of(request) for request in requests]
        self.retry = writer.start_retry()
        # Positions and generations: of the current write, and of writes whose response was lost.
        self.in_flight: set[tuple[int, object]] = set()
        self.maybe_applied: set[tuple[int, object]] = set()
        self.exhausted: Exception | None = None

    def write(self, must_exist: bool, fresh_ids: bool) -> Applied:
        while True:
            try:
                applied = self._attempt(must_exist, fresh_ids)
                if applied is not None:
                    return applied
            except ConflictError as conflict:
                self._after_conflict(conflict)
            except UnavailableError as unavailable:
                self.maybe_applied |= self.in_flight
                self.cached = None
                if self.exhausted is not None or not self.retry.again():
                    raise unavailable.cause from unavailable

    def _attempt(self, must_exist: bool, fresh_ids: bool) -> Applied | None:
        """Apply and write once; return None if the cached chain must be verified first."""
        self.in_flight = set()
        if self.cached is None:
            stored = self.writer.store.read([self.tag]).get(self.tag)
            self.cached = CachedChain(stored, verified=True)
        chain, verified = self.cached.chain, self.cached.verified
        if chain is None and must_exist:
            if verified:
                raise TagNotFound(self.tag)
            self.cached = None
            return None
        ours = [self.marks[index] for index in sorted({index for index, _ in self.maybe_applied})]
        applied = apply(
            chain,
            self.requests,
            now=self.writer.now(),
            spilled_marks=self._spilled_marks(chain, ours if fresh_ids else self.marks),
            limits=self.writer.limits,
            marks=self.marks,
            sent_at=self.sent_at,
        )
        if applied.chain is chain:
            if not verified:
                self.cached = None
                return None
            return self._credited(applied)
        if self.exhausted is not None:
            raise self.exhausted
        assert applied.chain is not None, "something was applied"
        after = self.writer.keep_marks(self.writer.spill_marks(chain, applied.chain))
        if chain is None or chain.first_seen_at is None:
            after = replace(after, nonce=secrets.randbits(32))
        new = [i for i, (_, kind, _) in enumerate(applied.outcomes) if kind == "applied"]
        self.in_flight = {(index, after.generation) for index in new}
        _check_write(chain, after, len(self.in_flight))
        self.writer.write(chain, after)
        return self._credited(applied._replace(chain=after))

    def _after_conflict(self, conflict: ConflictError) -> None:
        if conflict.maybe_ours:
            self.maybe_applied |= self.in_flight
        guessed = self.cached is not None and not self.cached.verified
        self.cached = CachedChain(conflict.chain, verified=True)
        if guessed:
            return  # a wrong guess is not an attempt: the conflict returned the current state
        if not self.retry.again():
            # The stored state may be our own write: apply once more, without a write.
            self.exhausted = StaleLocalData(self.tag, self.retry.attempt)
        elif self.retry.waited_seconds > _STALE_AFTER_SECONDS:
            self.cached = None

    def _spilled_marks(self, chain: Chain | None, marks: Sequence[bytes]) -> dict[bytes, bytes]:
        if chain is None or not chain.spilled:
            return {}
        inline = split_marks(chain.marks)
        wanted, both = set(marks), zip(self.requests, self.marks, strict=True)
        keys = dict.fromkeys(k for one, mark in both if mark in wanted for k in keys_of(one, mark))
        missing = [key for key in keys if key not in inline]
        return self.writer.store.get_spilled_marks(chain, missing) if missing else {}

    def _credited(self, applied: Applied) -> Applied:
        """Report a duplicate of a write of ours whose response was lost as applied.

        It is none of ours in another generation: the write took the chain for new.
        """
        generation = applied.chain and applied.chain.generation
        outcomes = [
            Outcome(outcome.request, "applied")
            if outcome.kind == "duplicate" and (index, generation) in self.maybe_applied
            else outcome
            for index, outcome in enumerate(applied.outcomes)
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
