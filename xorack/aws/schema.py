"""Names that the code and the infrastructure share: attributes, the index, metrics.

The stack creates the table, the alarms and the dashboard with these names; the adapters and the
functions use them. docs/protocol.md defines `TAG`, `STAMP`, `STATUS` and `EXPIRES_AT`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from xorack.core import checks
from xorack.core.chain import ATTRIBUTES, EVENT, PARENTS

TAG: Final = "tag"
"""The default name of the partition key."""
STAMP: Final = "stamp"
STATUS: Final = "status"
EXPIRES_AT: Final = "expires_at"
"""The TTL attribute, in seconds since the epoch."""

DUE_INDEX: Final = "due"
"""A sparse index of chains by the time at which the sweeper must read them."""
DUE_SHARD: Final = "due_shard"
"""The index's partition key: 0 to ``DUE_SHARDS`` - 1 for deadlines, more for ends (`places`)."""
DUE_AT: Final = "due_at"
"""The index's sort key, in milliseconds since the epoch."""
DUE_SHARDS: Final = 40
"""The partitions of the index for deadlines. Each takes 1,000 writes a second, so that together
they take DynamoDB's default quota. Ended chains with pending reports have other partitions, so that
no deadline waits for them.

Every reader of the index reads all partitions. With a lower number, readers would miss the chains
of the other partitions. A higher number hides no chain, because each place has room for more."""
_ROOM: Final = 1_000
"""The most partitions of a place, which is the distance between the beginnings of two places."""
_FEWER: Final = 8
"""Chains with callbacks are rare, so they have fewer partitions by this factor."""


class Place(NamedTuple):
    """Partitions of the index for the ended chains that have exactly these pending reports.

    So no report waits for another report. After its callback, a chain moves to the partitions of
    chains that wait only for the bus.
    """

    reports: frozenset[str]
    first: int
    shards: int

    def partitions(self) -> range:
        return range(self.first, self.first + self.shards)


@lru_cache(maxsize=8)
def places(due_shards: int) -> Mapping[frozenset[str], Place]:
    """Return the partitions for ended chains by their pending reports.

    Their numbers follow those of the deadlines.
    """
    result: dict[frozenset[str], Place] = {}
    for callback in ("", *checks.RESUME_KINDS):
        shards = max(1, due_shards // _FEWER) if callback else due_shards
        for further in ((EVENT,), (PARENTS,), (EVENT, PARENTS), ()):
            if reports := frozenset(filter(None, (callback, *further))):
                result[reports] = Place(reports, _ROOM * (len(result) + 1), shards)
    return result


def places_of(report: str) -> list[Place]:
    """Return the places of the chains in which this report is pending."""
    return [place for place in places(DUE_SHARDS).values() if report in place.reports]


FORMAT_NAME: Final = "format"
FORMAT: Final = 1
"""The version of the attributes. Items of xor-ack-dynamodb have no version."""

SPILLED_MARKS: Final = "spilled_marks"
"""The set of marks in an item that is a bucket."""

COUNTERS: Final = ("repeated", "late")
"""Counts of requests that arrive after a chain's end."""
ABSENT_AT_ZERO: Final = (*COUNTERS, "tolerated_units", "extended", "end_levels")
"""Numbers that are stored only if they are not 0."""
RESERVED: Final = frozenset((*ATTRIBUTES, DUE_SHARD, EXPIRES_AT, FORMAT_NAME, SPILLED_MARKS))
"""All attributes of items. The partition key must have another name."""
SHOWN: Final = tuple(sorted(RESERVED - {"resume", SPILLED_MARKS}))
"""The attributes of chains that readers see besides the key. The callback's token is secret."""

RESUME_KINDS: Final = tuple(checks.RESUME_KINDS)
"""The kinds of callbacks."""

METRIC_NAMESPACE: Final = "xorack"

ALIAS: Final = "live"
"""The alias of each function's current version. Code and environment change in one step."""


class Metric:
    """Names of the metrics that the functions emit."""

    REQUESTS_APPLIED: Final = "RequestsApplied"
    REQUESTS_DUPLICATE: Final = "RequestsDuplicate"
    REQUESTS_LATE: Final = "RequestsLate"
    REQUESTS_REJECTED: Final = "RequestsRejected"
    REQUEST_IDS_REUSED: Final = "RequestIdsReused"
    CREATES_REPEATED: Final = "CreatesRepeated"
    CHAINS_CREATED: Final = "ChainsCreated"
    CHAINS_ACKED: Final = "ChainsAcked"
    ACKED_WITH_OUTSTANDING: Final = "AckedWithOutstanding"
    CHAINS_FAILED: Final = "ChainsFailed"
    CHAINS_FAILED_ON_REQUEST: Final = "ChainsFailedOnRequest"
    CHAINS_TIMED_OUT: Final = "ChainsTimedOut"
    CHAINS_NEVER_CREATED: Final = "ChainsNeverCreated"
    CHAINS_LOOKED_AT: Final = "ChainsLookedAt"
    ENDS_DROPPED: Final = "EndsDropped"
    EVENTS_PUBLISHED: Final = "EventsPublished"
    EVENTS_PENDING: Final = "EventsPending"
    EVENTS_PENDING_AFTER_SWEEP: Final = "EventsPendingAfterSweep"
    EVENTS_PENDING_SECONDS: Final = "EventsPendingSeconds"
    DELIVERIES_REFUSED: Final = "DeliveriesRefused"
    SWEEP_PROBLEMS: Final = "SweepProblems"
    SWEEPS_INCOMPLETE: Final = "SweepsIncomplete"
    WRITES: Final = "Writes"
    CONFLICTS: Final = "Conflicts"
    MARKS_SPILLED: Final = "MarksSpilled"
    MESSAGES_FAILED: Final = "MessagesFailed"
    ACK_LATENCY: Final = "AckLatency"
