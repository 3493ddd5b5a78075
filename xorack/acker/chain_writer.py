"""Apply requests to a kept chain, each exactly once, whatever happens in between.

The loop that everything drives which writes chains: the consumer, the direct API, the simulation.
It does no I/O of its own: the store is given, and so are clock and sleep.

One conditional write applies all requests of a chain, with their marks in that same write. If the
chain was changed by others, the failed write brings back what is there, and the requests are
applied to that. If the answer was lost, nobody knows: the chain is read again, and the marks tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from xorack.core.chain import (
    MARK_KEY_BYTES,
    MAX_FOLD,
    Applied,
    Chain,
    Outcome,
    apply,
    inline_marks,
    mark_of,
)
from xorack.core.errors import StaleLocalData, TagNotFound
from xorack.core.ports import DEFAULT_RETENTION_MS, ChainStore, Conflict, Unavailable
from xorack.core.request import Request
from xorack.core.retry import Crowd, Retry, RetryPolicy

__all__ = ["CachedChain", "WriteStats", "apply_requests", "write_retrying"]

_STALE_AFTER = 0.005
"""Seconds of a wait after which what a conflict brought back is read anew: about a round trip.
Where it takes longer waits many write, and a read costs a fifth of a write that is refused."""


@dataclass
class WriteStats:
    """What it took.

    Attributes:
        writes: Conditional writes that were made, those that failed included.
        conflicts: Those that found the chain changed by others.
        spilled: Marks that were moved out.
    """

    writes: int = 0
    conflicts: int = 0
    spilled: int = 0

    def add(self, other: WriteStats) -> None:
        """Add another's figures to these."""
        self.writes += other.writes
        self.conflicts += other.conflicts
        self.spilled += other.spilled


@dataclass(frozen=True, eq=False, repr=False)
class CachedChain:
    """A chain as it is believed to be.

    Attributes:
        chain: The chain; None: not there.
        fresh: Whether it was just read, and not remembered or guessed: only then may something be
            said of a request without a write that proves it.
    """

    chain: Chain | None
    fresh: bool


def apply_requests(
    store: ChainStore,
    tag: str,
    requests: Sequence[Request],
    *,
    now: Callable[[], int],
    policy: RetryPolicy,
    known: CachedChain | None = None,
    default_timeout: int | None = None,
    retention: int = DEFAULT_RETENTION_MS,
    must_exist: bool = False,
    new_ids: bool = False,
    crowd: Crowd | None = None,
    stats: WriteStats | None = None,
) -> Applied:
    """Apply requests to one chain where it is kept.

    Args:
        store: Where it is kept.
        tag: The chain.
        requests: Any number, all of this tag; at most `xorack.core.chain.MAX_FOLD` go into one write.
        now: The clock, milliseconds since 1970.
        policy: When to try again.
        known: The chain as it is believed to be; None: it is read first.
        default_timeout: Milliseconds, for chains whose create names no timeout.
        retention: Milliseconds that marks are kept.
        must_exist: Refuse to begin a chain.
        new_ids: The requests' ids were drawn for this call and are nowhere else: only a write of
            this very call can have applied one. Saves looking up marks that were moved out.
        crowd: What earlier calls found of others who write this chain; kept up to date.
        stats: Where what it took is added.

    Returns:
        The chain as it was last seen or written, and what became of each request, in order. A
        request whose write landed while its answer was lost counts as applied.

    Raises:
        TagNotFound: ``must_exist``, and there is no such chain.
        StaleLocalData: Others kept changing the chain until the tries were spent. Some of the
            requests may have been applied, if there were more than go into one write.
        Exception: What the store's call raised last, if that was the reason.
    """
    stats = WriteStats() if stats is None else stats
    # What decides how the others are read comes first: with a create the stamps' length is known.
    order = sorted(range(len(requests)), key=lambda index: requests[index].op != "create")
    outcomes: list[Outcome | None] = [None] * len(requests)
    chain = known.chain if known else None
    for positions in _parts(order):
        part = [requests[index] for index in positions]
        applied = _apply_part(
            store, tag, part, known, policy.start(crowd), now, default_timeout, retention,
            must_exist, new_ids, stats,
        )  # fmt: skip
        chain = applied.chain
        known = CachedChain(chain, fresh=True)
        for index, outcome in zip(positions, applied.outcomes, strict=True):
            outcomes[index] = outcome
    return Applied(chain, [outcome for outcome in outcomes if outcome is not None])


def _parts(order: list[int]) -> Iterator[list[int]]:
    return (order[at : at + MAX_FOLD] for at in range(0, len(order), MAX_FOLD))


def _apply_part(
    store: ChainStore,
    tag: str,
    requests: Sequence[Request],
    known: CachedChain | None,
    retry: Retry,
    now: Callable[[], int],
    default_timeout: int | None,
    retention: int,
    must_exist: bool,
    new_ids: bool,
    stats: WriteStats,
) -> Applied:
    """Apply as many requests as go into one write."""
    marks = [mark_of(request) for request in requests]
    tried: set[int] = set()  # positions of requests that a write of ours may have applied
    spent: Exception | None = None  # why there will be no other write
    retry.queue_up()
    while True:
        try:
            if known is None:
                known = CachedChain(store.read([tag]).get(tag), fresh=True)
            chain = known.chain
            if chain is None and must_exist:
                if known.fresh:
                    raise TagNotFound(tag)
                known = None
                continue
            asked = [marks[index] for index in sorted(tried)] if new_ids else marks
            elsewhere = _marks_elsewhere(store, chain, asked)
            applied = apply(
                chain,
                requests,
                now=now(),
                elsewhere=elsewhere,
                default_timeout=default_timeout,
                marks=marks,
            )
            if applied.chain is chain or applied.chain is None:
                if not known.fresh:
                    known = None
                    continue
                return Applied(chain, _credited(applied.outcomes, tried))
            if spent is not None:
                raise spent
            taken = [i for i, outcome in enumerate(applied.outcomes) if outcome.kind == "applied"]
            after = applied.chain
            if chain is not None and (moved := chain.overflow(len(taken))):
                # First the copies, then the write that leaves them out: a crash in between
                # leaves a mark twice, never nowhere.
                until = max(now(), after.deadline or 0) + retention
                store.put_spilled_marks(chain, moved, until)
                after = after.without_marks(moved)
                stats.spilled += after.spilled - chain.spilled
            stats.writes += 1
            try:
                store.write(chain, after)
            except Unavailable:
                tried.update(taken)
                raise
            except Conflict as conflict:
                if conflict.perhaps_ours:
                    tried.update(taken)
                raise
            retry.succeeded()
            return Applied(after, _credited(applied.outcomes, tried))
        except Conflict as conflict:
            stats.conflicts += 1
            guessed = known is not None and not known.fresh
            known = CachedChain(conflict.chain, fresh=True)
            # A guess that was wrong is no try: the conflict was the read that it saved.
            if not guessed and not retry.again(_writes_between(chain, conflict.chain)):
                # It may be our own write that was met: what is there tells once more.
                spent = StaleLocalData(tag, retry.attempt)
            elif not guessed and retry.waited > _STALE_AFTER:
                known = None
            continue
        except Unavailable as unavailable:
            known = None
            if spent is not None or not retry.again():
                raise unavailable.cause from unavailable


def _writes_between(believed: Chain | None, there: Chain | None) -> int:
    """How often others wrote a chain since it was read: at least once, if it is not the same."""
    return max(1, (there.version if there else 0) - (believed.version if believed else 0))


def _marks_elsewhere(
    store: ChainStore, chain: Chain | None, marks: Sequence[bytes]
) -> dict[bytes, bytes]:
    """The marks under these marks' keys that were moved out of the chain."""
    if chain is None or not chain.spilled:
        return {}
    inline = inline_marks(chain)
    keys = dict.fromkeys([mark[:MARK_KEY_BYTES] for mark in marks])
    asked = [key for key in keys if key not in inline]
    return store.get_spilled_marks(chain, asked) if asked else {}


def _credited(outcomes: list[Outcome], tried: set[int]) -> list[Outcome]:
    """A duplicate of what we wrote ourselves, in a write whose answer was lost, is no duplicate."""
    if not tried:
        return outcomes
    return [
        Outcome(outcome.request, "applied")
        if outcome.kind == "duplicate" and index in tried
        else outcome
        for index, outcome in enumerate(outcomes)
    ]


def write_retrying(
    store: ChainStore,
    chain: Chain,
    change: Callable[[Chain], Chain],
    policy: RetryPolicy,
    stats: WriteStats | None = None,
) -> Chain | None:
    """Change a chain by something that may be done twice: ended by time, or published.

    Args:
        store: Where it is kept.
        chain: The chain as it was read.
        change: Chain to chain; gives back the very object if there is nothing to change.
        policy: When to try again.
        stats: Where what it took is added.

    Returns:
        The chain as it was last seen or written; None if it is gone.

    Raises:
        StaleLocalData: Others kept changing it until the tries were spent.
        Exception: What the store's call raised last, if that was the reason.
    """
    stats = WriteStats() if stats is None else stats
    retry = policy.start()
    current: Chain | None = chain
    known = True
    while True:
        problem: Exception
        try:
            if not known:
                current = store.read([chain.tag]).get(chain.tag)
                known = True
            if current is None:
                return None
            after = change(current)
            if after is current:
                return current
            stats.writes += 1
            store.write(current, after)
            return after
        except Conflict as conflict:
            stats.conflicts += 1
            current = conflict.chain
            problem = StaleLocalData(chain.tag, retry.attempt)
        except Unavailable as unavailable:
            known = False
            problem = unavailable.cause
        if not retry.again():
            raise problem
        known = known and retry.waited <= _STALE_AFTER
