"""Lists of chains: filtered, in order, page by page."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple, get_args

from xorack.aws.clock import milliseconds
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.errors import ArgumentError
from xorack.core.ports import OnInvalid
from xorack.ops.status import STATUSES, ChainStatus

Order = Literal["deadline", "age", "tag"]
ORDERS: tuple[Order, ...] = get_args(Order)

_Key = tuple[bool, int, str]
_POSITION = re.compile("([0-9]{1,18}|none):(.+)", re.DOTALL)


@dataclass(frozen=True)
class ChainFilter:
    """A choice of chains: those that meet all conditions.

    Attributes:
        statuses: Their statuses; empty for any.
        prefix: The beginning of their tags.
        reason: A part of the reason of their failure.
        older_than_ms: Least age since the create, or else the first request. The age
            of chains of another program is unknown: they do not meet this condition.
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


class Page(NamedTuple):
    """Chains, and the position after the last of them; None if there are no more."""

    chains: Iterable[ChainStatus]
    after: Callable[[], str | None]


def list_chains(
    store: DynamoDBStore,
    chosen: ChainFilter,
    on_invalid: OnInvalid,
    *,
    order: Order | None = None,
    limit: int | None = None,
    after: str = "",
) -> Page:
    """List chains of a table, eventually consistent.

    Without an order, the table is read until the limit is reached. With one, the whole table is
    read, and the chains up to the limit are in memory.

    Args:
        store: The table.
        chosen: The chains to list.
        on_invalid: Called for each item that is not a chain.
        order: By nearest deadline, by age, the oldest first, or by tag. Chains that have no such
            value come last.
        limit: Most chains; None for all.
        after: The position at which an earlier page of this order ended.
    """
    now = milliseconds()
    scanned = store.scan(on_invalid, prefix=chosen.prefix, after="" if order else after)
    statuses = (ChainStatus(chain, now) for chain in scanned)
    chains: Iterator[ChainStatus] = filter(chosen.matches, statuses)
    if order is None:
        return _scanned(chains, limit)
    if after:
        start = _parse(order, after)
        chains = (status for status in chains if _key(order, status) > start)
    if limit is None:
        return Page(sorted(chains, key=lambda status: _key(order, status)), lambda: None)
    first = heapq.nsmallest(limit + 1, chains, key=lambda status: _key(order, status))
    position = _format(order, first[limit - 1]) if len(first) > limit else None
    return Page(first[:limit], lambda: position)


def _scanned(chains: Iterator[ChainStatus], limit: int | None) -> Page:
    """Return a page in the order of the scan; it is read as it is consumed."""
    last = ""

    def first() -> Iterator[ChainStatus]:
        nonlocal last
        for status in islice(chains, limit):
            last = status.chain.tag
            yield status

    return Page(first(), lambda: last if limit and next(chains, None) is not None else None)


def _key(order: Order, status: ChainStatus) -> _Key:
    if order == "tag":
        return False, 0, status.chain.tag
    time = status.deadline if order == "deadline" else status.begin
    return time is None, time or 0, status.chain.tag


def _format(order: Order, status: ChainStatus) -> str:
    absent, time, tag = _key(order, status)
    return tag if order == "tag" else f"{'none' if absent else time}:{tag}"


def _parse(order: Order, position: str) -> _Key:
    if order == "tag":
        return False, 0, position
    match = _POSITION.fullmatch(position)
    if match is None:
        raise ArgumentError("after", position, f"the position of a list in the order of {order}")
    return match[1] == "none", 0 if match[1] == "none" else int(match[1]), match[2]
