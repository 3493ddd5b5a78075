"""Finds chains for a page: those with the nearest deadlines, and chains in a part of the table.

The table's key is the tag, so only a scan finds ended chains. Each page reads a limited part of the
table, and a position leads to the next part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, NamedTuple

from xorack.aws.clock import milliseconds
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.chain import Chain
from xorack.core.errors import NotAChainError
from xorack.core.ports import OnInvalid
from xorack.ops.explain import Cause, causes
from xorack.ops.similar_texts import cause_of
from xorack.ops.status import ChainStatus

GROUPS = {"unfinished": ("open", "pending"), "failed": ("failed",), "acked": ("acked",)}
"""The statuses to which a page can be limited."""
OVERDUE = "overdue"
"""The group of unfinished chains whose deadline has passed."""
MAX_SHOWN = 50
SEARCHED = 5_000
"""The most items that are read for a page. Chains of 2 KB make 10 MB, or 1,250 read units."""
_READS_PER_CHAIN = 4
"""Index entries read for each requested chain, because some chains only have pending events."""
_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Query:
    """The chains of a page, and their order. They belong to a group of `GROUPS`, `OVERDUE` or all.

    `text` is a part of the tag, the detail, the reason or the note. `cause` is the cause of failed
    chains: see `cause_of`. The part of the table begins after the key `after`. Earlier pages have
    shown `skip` chains of this part.
    """

    group: str = ""
    prefix: str = ""
    text: str = ""
    cause: str = ""
    order: str = ""
    after: str = ""
    skip: int = 0


class Hour(NamedTuple):
    """Chains of the last hour. Ended chains are counted by minute, the oldest minute first.

    `took_ms` is the median time from create to ack; None for a minute without an ack.
    """

    created: int
    acked: list[int]
    failed: list[int]
    took_ms: list[int | None]

    @property
    def most(self) -> int:
        """The largest number of chains that ended in one minute."""
        return max(map(sum, zip(self.acked, self.failed, strict=True)))

    @property
    def longest_ms(self) -> int:
        """The longest median of a minute; 0 without an ack."""
        return max((took or 0 for took in self.took_ms), default=0)


@dataclass(frozen=True)
class ChainPage:
    """Chains from a part of the table in which `searched` items were read.

    The numbers, `causes` and `hour` cover all chains that match. `chains` are those of this page,
    and `more` is the query for the next page.
    """

    query: Query
    chains: tuple[ChainStatus, ...]
    counts: Counter[str]
    searched: int
    more: Query | None
    complete: bool
    overdue: int = 0
    event_pending: int = 0
    invalid: tuple[NotAChainError, ...] = ()
    causes: tuple[Cause, ...] = ()
    hour: Hour | None = None


def read_chains(
    store: DynamoDBStore, query: Query, shown: int = MAX_SHOWN, searched: int = SEARCHED
) -> ChainPage:
    """Read a page of at most `shown` chains from at most `searched` items of the table.

    If the table is larger, the first page also has the most urgent chains of the entire table, from
    the index of deadlines. With a prefix, the page has only the searched part, because the index
    cannot search for a prefix.
    """
    at = milliseconds()
    invalid: list[NotAChainError] = []
    part = store.scan_part(searched, invalid.append, prefix=query.prefix, after=query.after)
    statuses = {chain.tag: ChainStatus(chain, at) for chain in part.chains}
    is_first = not query.prefix and not query.after
    if is_first and part.after and query.group in ("", "unfinished", OVERDUE):
        # These consistent reads may be newer than the scan.
        nearest = nearest_deadlines(store, 2 * shown, invalid.append)
        statuses.update((chain.tag, ChainStatus(chain, at)) for chain in nearest)
    statuses = {tag: status for tag, status in statuses.items() if _is_wanted(status, query)}
    names = {status: group for group, statuses in GROUPS.items() for status in statuses}
    counts = Counter(names[each.chain.status] for each in statuses.values())
    overdue = [status for status in statuses.values() if status.urgency == "late"]
    groups = [(names[status.chain.status], status) for status in statuses.values()]
    chosen = [status for group, status in groups if query.group in ("", group)]
    chosen = overdue if query.group == OVERDUE else chosen
    chosen.sort(key=ORDERS[query.order])
    end = query.skip + shown
    more = None
    if end < len(chosen):
        more = replace(query, skip=end)
    elif part.after:
        more = replace(query, skip=0, after=part.after)
    return ChainPage(
        query=query,
        chains=tuple(chosen[query.skip : end]),
        counts=counts,
        searched=part.read,
        more=more,
        complete=not query.after and not part.after,
        overdue=len(overdue),
        event_pending=sum(each.chain.reports.event_pending for each in statuses.values()),
        invalid=tuple({str(error.tag): error for error in invalid}.values()),
        causes=tuple(causes([*statuses.values()]) if counts["failed"] else ()),
        hour=_last_hour(statuses.values(), at),
    )


def nearest_deadlines(store: DynamoDBStore, least: int, on_invalid: OnInvalid) -> list[Chain]:
    """Return at least this many of the unfinished chains with the nearest deadlines, if they exist.

    They are at the beginning of the index of deadlines, among chains that only have pending events.
    Chains without a deadline, which only the direct API creates, are not in the index.
    """
    tags, chains = store.first_due(least * _READS_PER_CHAIN), list[Chain]()
    while tags and len(chains) < least:
        read = store.read(tags[:least], on_invalid).values()
        chains += [chain for chain in read if not chain.final]
        tags = tags[least:]
    return chains


def _last_hour(chains: Iterable[ChainStatus], at: int) -> Hour | None:
    created, ended = 0, {"acked": [0] * 60, "failed": [0] * 60}
    took: list[list[int]] = [[] for _ in range(60)]
    for status in chains:
        chain = status.chain
        created += (chain.created_at or 0) > at - _HOUR_MS
        minute = 59 - (at - (chain.ended_at or 0)) // 60_000
        if chain.final and 0 <= minute < 60:
            ended[chain.status][minute] += 1
            if chain.status == "acked" and status.age_ms is not None:
                took[minute].append(status.age_ms)
    medians = [round(median(times)) if times else None for times in took]
    hour = Hour(created, **ended, took_ms=medians)
    return hour if created or hour.most else None


def _is_wanted(status: ChainStatus, query: Query) -> bool:
    """Return whether a chain meets all conditions of a query except the group."""
    chain = status.chain
    if query.cause and (chain.status != "failed" or cause_of(status.reason or "") != query.cause):
        return False
    texts = (chain.tag, chain.detail, status.reason, status.note_text)
    wanted = query.text.lower()
    return not wanted or any(wanted in text.lower() for text in texts if text)


def _by_urgency(status: ChainStatus) -> tuple[Any, ...]:
    chain = status.chain
    if not chain.final:
        return 0, status.deadline is None, status.deadline or 0, chain.tag
    return 1 + (chain.status == "acked"), False, -(chain.ended_at or 0), chain.tag


ORDERS: Mapping[str, Callable[[ChainStatus], Any]] = {
    "": _by_urgency,
    "tag": lambda status: status.chain.tag,
    "progress": lambda status: -1.0 if status.percent is None else status.percent,
    "age": lambda status: -(status.age_ms or 0),
}
"""The orders of a page: by status and then deadline or end, by tag, by progress, by age."""
