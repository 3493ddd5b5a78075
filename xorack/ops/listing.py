"""Lists of chains: filtered, and in order."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from xorack.aws.clock import milliseconds
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.ports import OnInvalid
from xorack.ops.status import STATUSES, ChainStatus

Order = Literal["deadline", "age", "tag"]
ORDERS: tuple[Order, ...] = get_args(Order)


@dataclass(frozen=True)
class ChainFilter:
    """A choice of chains: those that meet all conditions.

    The prefix is of their tags, the reason a part of that of their failure. The age is since the
    create, or else the first request; a chain of another program has none, and is never older.
    """

    statuses: Collection[str] = STATUSES
    prefix: str = ""
    reason: str = ""
    older_than_ms: int = 0

    def matches(self, status: ChainStatus) -> bool:
        """Return True if the chain meets all conditions but that of the tag."""
        begin = status.begin
        return (
            (not self.statuses or status.chain.status in self.statuses)
            and self.reason in (status.reason or "")
            and (not self.older_than_ms or begin is not None)
            and (begin is None or status.now - begin >= self.older_than_ms)
        )


def list_chains(
    store: DynamoDBStore,
    chosen: ChainFilter,
    on_invalid: OnInvalid,
    *,
    order: Order | None = None,
    limit: int | None = None,
    after: str = "",
) -> Iterator[ChainStatus]:
    """Yield chains of a table, eventually consistent; call `on_invalid` for other items.

    Without an order, the table is read as the chains are taken, perhaps only `after` a tag. With
    one, the entire table is read, and the chains up to the limit are in memory: by nearest
    deadline, by age, the oldest first, or by tag. Chains that have no such value come last.
    """
    now = milliseconds()
    scanned = store.scan(on_invalid, prefix=chosen.prefix, after=after)
    chains = filter(chosen.matches, (ChainStatus(chain, now) for chain in scanned))

    def key(status: ChainStatus) -> tuple[bool, int, str]:
        time = {"tag": 0, "deadline": status.deadline, "age": status.begin}[order or "tag"]
        return time is None, time or 0, status.chain.tag

    if order is None:
        return chains
    return iter(sorted(chains, key=key) if limit is None else heapq.nsmallest(limit, chains, key))
