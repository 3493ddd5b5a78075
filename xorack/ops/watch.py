"""Polling chains and reporting changes; each poll does bounded work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from xorack.aws.clock import milliseconds
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.chain import Chain
from xorack.core.errors import NotAChainError
from xorack.core.request import validate_tag
from xorack.ops.run_chains import ChainCounts, RunChains
from xorack.ops.snapshot import Snapshot, read_snapshot
from xorack.ops.status import ChainStatus

_MAX_ENDED = 10


@dataclass(frozen=True)
class WatchUpdate:
    """The watched chains at one poll, and a snapshot of those that are unfinished.

    Attributes:
        ended: Chains that ended while watched, the latest first; of named chains, all that ended.
        changed: Chains whose status, counts or stamp differ from the previous poll.
        not_found: Named tags without a chain.
        counts: The counts of the named chains; those of a run if it was counted, else None.
    """

    snapshot: Snapshot
    ended: tuple[ChainStatus, ...]
    changed: tuple[ChainStatus, ...]
    not_found: tuple[str, ...] = ()
    counts: ChainCounts | None = None
    run: RunChains | None = None

    @property
    def done(self) -> bool:
        """True if all named chains, or all chains of the run, have ended."""
        if self.counts is None:
            return False
        return self.run.has_ended(self.counts) if self.run else not self.counts.unfinished


class ChainWatcher:
    """A poller of chains: the named ones, or those with the nearest deadlines, perhaps of a run.

    Without tags, a poll reads a snapshot, and the chains that left it since the previous poll. A
    run is counted only when the snapshot is empty: a count reads the entire table.
    """

    def __init__(
        self,
        store: DynamoDBStore,
        tags: Sequence[str] = (),
        limit: int = 20,
        run: RunChains | None = None,
    ) -> None:
        """Watch the named chains; without tags, at most `limit` chains, only of `run` if given."""
        self.tags = tuple(dict.fromkeys(validate_tag(tag) for tag in tags))
        self._store = store
        self._limit = limit
        self._run = run
        self._previous: dict[str, Chain] = {}
        self._ended: dict[str, ChainStatus] = {}

    def poll(self, *, count: bool = False) -> WatchUpdate:
        """Read the watched chains once; raise UnavailableError if a retry may help.

        With `count`, count the run even if chains of it are unfinished.
        """
        return self._poll_named() if self.tags else self._poll_nearest(count)

    def _poll_named(self) -> WatchUpdate:
        tags = [tag for tag in self.tags if tag not in self._ended]
        invalid: list[NotAChainError] = []
        chains, counts = self._store.read(tags, invalid.append), ChainCounts()
        found = chains.keys() | {str(error.tag) for error in invalid}
        at = milliseconds()
        statuses = [ChainStatus(chain, at) for chain in chains.values()]
        unfinished = tuple(status for status in statuses if not status.chain.final)
        update = self._update(Snapshot(at, unfinished, invalid=tuple(invalid)), statuses)
        not_found = tuple(tag for tag in tags if tag not in found)
        for status in (*update.ended, *unfinished):
            counts.add(status.chain.status, status.chain.tag, status.reason)
        for error in invalid:
            counts.add_invalid(error)
        for tag in not_found:
            counts.add("not_found", tag)
        return replace(update, not_found=not_found, counts=counts)

    def _poll_nearest(self, count: bool) -> WatchUpdate:
        prefix = self._run.prefix if self._run else ""
        snapshot = read_snapshot(self._store, self._limit, prefix)
        invalid = list(snapshot.invalid)
        gone = self._previous.keys() - {status.chain.tag for status in snapshot.chains}
        # A chain that left the snapshot unfinished is behind nearer deadlines now.
        left = self._store.read(sorted(gone), invalid.append)
        ended = [chain for chain in left.values() if chain.final]
        ended.sort(key=lambda chain: (chain.ended_at or 0, chain.tag))
        statuses = [*snapshot.chains, *(ChainStatus(chain, snapshot.at) for chain in ended)]
        # Counts decide about the end: the index lags, and has no chains without a deadline.
        counted = self._run if count or not snapshot.chains else None
        counts = counted.count(self._store) if counted else None
        update = self._update(replace(snapshot, invalid=tuple(invalid)), statuses)
        return replace(update, counts=counts, run=self._run)

    def _update(self, snapshot: Snapshot, statuses: Sequence[ChainStatus]) -> WatchUpdate:
        changed = tuple(
            status
            for status in statuses
            if _visible(self._previous.get(status.chain.tag)) != _visible(status.chain)
        )
        self._ended.update({one.chain.tag: one for one in statuses if one.chain.final})
        self._previous = {status.chain.tag: status.chain for status in snapshot.chains}
        while not self.tags and len(self._ended) > _MAX_ENDED:
            del self._ended[next(iter(self._ended))]
        return WatchUpdate(snapshot, tuple(reversed(self._ended.values())), changed)


def _visible(chain: Chain | None) -> tuple[object, ...] | None:
    """Return the parts of a chain whose change is reported."""
    if chain is None:
        return None
    return (chain.status, chain.started, chain.finished, chain.failing, chain.stamp)
