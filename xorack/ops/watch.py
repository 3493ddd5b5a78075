"""Polling chains and reporting changes; each poll does bounded work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xorack.acker.reading import read_valid
from xorack.aws.clock import milliseconds
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.chain import Chain
from xorack.core.errors import NotAChainError
from xorack.core.request import validate_tag
from xorack.ops.nearest import read_nearest
from xorack.ops.run import ChainCounts, Run
from xorack.ops.status import ChainStatus


@dataclass(frozen=True)
class WatchUpdate:
    """The watched chains at one poll: the named ones, or the nearest and those that have ended.

    Attributes:
        changed: Chains whose status, counts or stamp differ from the previous poll.
        not_found: Named tags without a chain.
        counts: The counts of the named chains; those of a run if it was counted, else None.
    """

    chains: Sequence[ChainStatus]
    changed: Sequence[ChainStatus]
    invalid: Sequence[NotAChainError] = ()
    not_found: Sequence[str] = ()
    counts: ChainCounts | None = None
    run: Run | None = None

    @property
    def done(self) -> bool:
        """True if all named chains, or all chains of the run, have ended."""
        if self.counts is None:
            return False
        return self.run.has_ended(self.counts) if self.run else not self.counts.unfinished


class ChainWatcher:
    """A poller of chains: the named ones, or those with the nearest deadlines, perhaps of a run.

    Without tags, a poll reads the nearest, and the chains that left these since the previous poll.
    A run is counted only when none is left: a count reads the whole table.
    """

    def __init__(
        self,
        store: DynamoDBStore,
        tags: Sequence[str] = (),
        limit: int = 20,
        run: Run | None = None,
    ) -> None:
        """Watch the named chains; without tags, at most `limit` chains, only of `run` if given."""
        self.tags = tuple(dict.fromkeys(validate_tag(tag) for tag in tags))
        self._store = store
        self._limit = limit
        self._run = run
        self._previous: dict[str, Chain] = {}
        self._ended: list[ChainStatus] = []

    def poll(self, *, count: bool = False) -> WatchUpdate:
        """Read the watched chains once; raise UnavailableError if a retry may help.

        With `count`, count the run even if chains of it are unfinished.
        """
        return self._poll_named() if self.tags else self._poll_nearest(count)

    def _poll_named(self) -> WatchUpdate:
        over = {status.chain.tag for status in self._ended}
        tags = [tag for tag in self.tags if tag not in over]
        invalid: list[NotAChainError] = []
        statuses = self._read(tags, invalid)
        found = {status.chain.tag for status in statuses}.union(str(e.tag) for e in invalid)
        not_found = [tag for tag in tags if tag not in found]
        chains = [*self._ended, *statuses]
        self._ended += (status for status in statuses if status.chain.final)
        counts = ChainCounts()
        for status in chains:
            counts.add(status.chain.status, status.chain.tag, status.reason)
        for error in invalid:
            counts.add_invalid(error)
        for tag in not_found:
            counts.add("not_found", tag)
        return WatchUpdate(chains, self._changes(statuses), invalid, not_found, counts)

    def _poll_nearest(self, count: bool) -> WatchUpdate:
        prefix = self._run.prefix if self._run else ""
        invalid: list[NotAChainError] = []
        nearest = read_nearest(self._store, self._limit, invalid.append, prefix)
        gone = self._previous.keys() - {status.chain.tag for status in nearest}
        # A chain that left them unfinished has only moved behind nearer deadlines.
        ended = [one for one in self._read(sorted(gone), invalid) if one.chain.final]
        ended.sort(key=lambda one: (one.chain.ended_at or 0, one.chain.tag))
        # Counts decide about the end: the index lags, and lacks chains without a deadline.
        counted = self._run if count or not nearest else None
        counts = counted.count(self._store) if counted else None
        chains = [*nearest, *ended]
        return WatchUpdate(chains, self._changes(chains), invalid, counts=counts, run=self._run)

    def _read(self, tags: Sequence[str], invalid: list[NotAChainError]) -> list[ChainStatus]:
        at = milliseconds()
        chains = read_valid(self._store.read, tags, invalid.append)
        return [ChainStatus(chain, at) for chain in chains]

    def _changes(self, statuses: Sequence[ChainStatus]) -> list[ChainStatus]:
        """Return what has changed since the previous poll, and remember this one."""
        before = self._previous
        self._previous = {one.chain.tag: one.chain for one in statuses if not one.chain.final}
        return [
            one for one in statuses if _visible(before.get(one.chain.tag)) != _visible(one.chain)
        ]


def _visible(chain: Chain | None) -> tuple[object, ...] | None:
    """Return the parts of a chain whose change is reported."""
    if chain is None:
        return None
    return (chain.status, chain.started, chain.finished, chain.failing, chain.stamp)
