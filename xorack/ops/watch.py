"""Chains as they go on: one look after another, each of bounded work, and what changed between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.chain import Chain
from xorack.core.clock import milliseconds
from xorack.core.request import validate_tag
from xorack.ops.dashboard import read_readable, unfinished
from xorack.ops.status import ChainStatus, status_of

__all__ = ["Look", "Watcher"]

_ENDED_KEPT = 10


@dataclass(frozen=True)
class Look:
    """How the watched chains stand.

    Attributes:
        at: When this was, milliseconds since 1970.
        chains: Those that are not finished, in the order of their deadlines or as they were named.
        ended: Those that ended while they were watched, the last one first; of chains that were
            named, all that ended.
        missing: Tags that were named and are not there.
        changed: Those whose status, counts or stamp are not what they were at the last look.
        more: Whether there are more unfinished chains.
        event_pending: Finished chains whose event is not published yet, as far as they were seen.
        unreadable: Items that are no chains: tag -> what is wrong.
    """

    at: int
    chains: tuple[ChainStatus, ...]
    ended: tuple[ChainStatus, ...]
    missing: tuple[str, ...] = ()
    changed: tuple[ChainStatus, ...] = ()
    more: bool = False
    event_pending: int = 0
    unreadable: tuple[tuple[str, str], ...] = ()


class Watcher:
    """Looks at chains again and again.

    Without tags, a look reads the head of the index of deadlines (see `xorack.ops.dashboard`), and those
    chains that were in it at the last look and are not any more. With tags, it reads these.
    """

    def __init__(
        self,
        store: DynamoDBStore,
        tags: Sequence[str] = (),
        *,
        limit: int = 20,
        now: Callable[[], int] = milliseconds,
    ) -> None:
        """Watch chains.

        Args:
            store: The table.
            tags: The chains; none: the unfinished ones whose deadlines are nearest.
            limit: How many at most, where none are named.
            now: The clock.

        Raises:
            InvalidRequest: A tag is none.
        """
        self.tags = tuple(dict.fromkeys(validate_tag(tag) for tag in tags))
        self._store = store
        self._limit = limit
        self._now = now
        self._known: dict[str, Chain] = {}
        self._ended: dict[str, ChainStatus] = {}

    def look(self) -> Look:
        """Look once.

        Returns:
            How they stand now.

        Raises:
            Unavailable: Try again.
        """
        return self._look_at_named() if self.tags else self._look_at_unfinished()

    def _look_at_named(self) -> Look:
        wanted = [tag for tag in self.tags if tag not in self._ended]
        unreadable: list[tuple[str, str]] = []
        read = read_readable(self._store, wanted, unreadable) if wanted else []
        at = self._now()
        found = [status_of(chain, at) for chain in read]
        there = {chain.tag for chain in read}.union(tag for tag, _ in unreadable)
        missing = tuple(tag for tag in wanted if tag not in there)
        return self._seen(at, found, missing=missing, unreadable=tuple(unreadable))

    def _look_at_unfinished(self) -> Look:
        seen = unfinished(self._store, self._limit, now=self._now)
        tags = {one.chain.tag for one in seen.chains}
        gone = [tag for tag in self._known if tag not in tags]
        unreadable = list(seen.unreadable)
        read = read_readable(self._store, gone, unreadable) if gone else []
        # One that goes on, and is only no longer among the nearest deadlines, is out of sight.
        ended = [status_of(chain, seen.at) for chain in read if chain.final]
        ended.sort(key=lambda one: (one.chain.ended_at or 0, one.chain.tag))
        return self._seen(
            seen.at,
            [*seen.chains, *ended],
            more=seen.more,
            event_pending=seen.event_pending,
            unreadable=tuple(unreadable),
        )

    def _seen(
        self,
        at: int,
        found: Sequence[ChainStatus],
        *,
        missing: tuple[str, ...] = (),
        more: bool = False,
        event_pending: int = 0,
        unreadable: tuple[tuple[str, str], ...] = (),
    ) -> Look:
        changed = []
        for one in found:
            tag = one.chain.tag
            if _essence(self._known.get(tag)) != _essence(one.chain):
                changed.append(one)
            if one.chain.final:
                self._ended[tag] = one
        going = tuple(one for one in found if not one.chain.final)
        self._known = {one.chain.tag: one.chain for one in going}
        while not self.tags and len(self._ended) > _ENDED_KEPT:
            del self._ended[next(iter(self._ended))]
        ended = tuple(reversed(self._ended.values()))
        return Look(at, going, ended, missing, tuple(changed), more, event_pending, unreadable)


def _essence(chain: Chain | None) -> tuple[object, ...] | None:
    """What of a chain is worth telling when it changes."""
    if chain is None:
        return None
    return (chain.status, chain.started, chain.finished, chain.failing, chain.stamp)
