"""Polling chains and reporting changes; each poll does bounded work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from xorack.acker.reading import read_valid
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.chain import Chain
from xorack.core.clock import milliseconds
from xorack.core.errors import NotAChain
from xorack.core.request import validate_tag
from xorack.ops.snapshot import Snapshot, read_snapshot
from xorack.ops.status import ChainStatus

__all__ = ["ChainWatcher", "WatchUpdate"]

_ENDED_KEPT = 10


@dataclass(frozen=True)
class WatchUpdate:
    """The watched chains at one poll.

    Attributes:
        snapshot: The unfinished chains.
        ended: Chains that ended while watched, the latest first; of named chains, all that ended.
        changed: Chains whose status, counts or stamp differ from the previous poll.
        not_found: Named tags without a chain.
    """

    snapshot: Snapshot
    ended: tuple[ChainStatus, ...]
    changed: tuple[ChainStatus, ...]
    not_found: tuple[str, ...] = ()


class ChainWatcher:
    """A poller of chains: the named ones, or those with the nearest deadlines.

    Without tags, a poll reads a snapshot, and the chains that left it since the previous poll.
    """

    def __init__(self, store: DynamoDBStore, tags: Sequence[str] = (), limit: int = 20) -> None:
        """Watch the named chains; without tags, at most `limit` chains.

        Raises:
            InvalidRequest: A tag is invalid.
        """
        self.tags = tuple(dict.fromkeys(validate_tag(tag) for tag in tags))
        self._store = store
        self._limit = limit
        self._previous: dict[str, Chain] = {}
        self._ended: dict[str, ChainStatus] = {}

    def poll(self) -> WatchUpdate:
        """Read the watched chains once.

        Raises:
            Unavailable: Try again.
        """
        return self._poll_named() if self.tags else self._poll_nearest()

    def _poll_named(self) -> WatchUpdate:
        tags = [tag for tag in self.tags if tag not in self._ended]
        invalid: list[NotAChain] = []
        chains = read_valid(self._store.read, tags, invalid.append)
        found = {chain.tag for chain in chains}.union(str(error.tag) for error in invalid)
        at = milliseconds()
        statuses = [ChainStatus(chain, at) for chain in chains]
        unfinished = tuple(status for status in statuses if not status.chain.final)
        snapshot = Snapshot(at, unfinished, invalid=tuple(invalid))
        return self._update(snapshot, statuses, tuple(tag for tag in tags if tag not in found))

    def _poll_nearest(self) -> WatchUpdate:
        snapshot = read_snapshot(self._store, self._limit)
        invalid = list(snapshot.invalid)
        gone = self._previous.keys() - {status.chain.tag for status in snapshot.chains}
        # A chain that left the snapshot unfinished has only moved behind nearer deadlines.
        ended = [c for c in read_valid(self._store.read, sorted(gone), invalid.append) if c.final]
        ended.sort(key=lambda chain: (chain.ended_at or 0, chain.tag))
        statuses = [*snapshot.chains, *(ChainStatus(chain, snapshot.at) for chain in ended)]
        return self._update(replace(snapshot, invalid=tuple(invalid)), statuses)

    def _update(
        self, snapshot: Snapshot, statuses: Sequence[ChainStatus], not_found: tuple[str, ...] = ()
    ) -> WatchUpdate:
        changed = tuple(
            status
            for status in statuses
            if _visible(self._previous.get(status.chain.tag)) != _visible(status.chain)
        )
        self._ended.update({one.chain.tag: one for one in statuses if one.chain.final})
        self._previous = {status.chain.tag: status.chain for status in snapshot.chains}
        while not self.tags and len(self._ended) > _ENDED_KEPT:
            del self._ended[next(iter(self._ended))]
        return WatchUpdate(snapshot, tuple(reversed(self._ended.values())), changed, not_found)


def _visible(chain: Chain | None) -> tuple[object, ...] | None:
    """Return the parts of a chain whose change is reported."""
    if chain is None:
        return None
    return (chain.status, chain.started, chain.finished, chain.failing, chain.stamp)
