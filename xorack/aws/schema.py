"""Names that code and infrastructure share: attributes, the index, metrics.

The stack creates the table, the alarms and the dashboard by these names; the adapters and the
functions use them. docs/protocol.md fixes `TAG`, `STAMP`, `STATUS` and `EXPIRES_AT`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from xorack.core import checks
from xorack.core.chain import ATTRIBUTES, EVENT, PARENTS

TAG: Final = "tag"
"""Default name of the partition key."""
STAMP: Final = "stamp"
STATUS: Final = "status"
EXPIRES_AT: Final = "expires_at"
"""The TTL attribute: seconds since the epoch."""

DUE_INDEX: Final = "due"
"""Sparse index of chains by the time at which the sweeper must look at them."""
DUE_SHARD: Final = "due_shard"
"""Partition key of the index: 0 to ``DUE_SHARDS`` - 1, and more for finished chains: `places`."""
DUE_AT: Final = "due_at"
"""Sort key of the index: milliseconds since the epoch."""
DUE_SHARDS: Final = 40
"""Partitions of the index for deadlines. Each takes 1,000 writes a second: together DynamoDB's
default quota. Finished chains with pending reports have others: no deadline waits for them.

Every reader of the index reads all of them. A lower number would hide the chains of the others."""
_FEWER: Final = 8
"""Chains with callbacks are rare: they have so many times fewer partitions."""


class Place(NamedTuple):
    """Partitions of the index, for the ended chains of which exactly these reports are pending.

    So no report waits for another: a chain whose callback was made moves to the place of chains
    that wait for the bus alone.
    """

    reports: frozenset[str]
    first: int
    shards: int

    def partitions(self) -> range:
        return range(self.first, self.first + self.shards)


@lru_cache(maxsize=8)
def places(due_shards: int) -> Mapping[frozenset[str], Place]:
    """Return the places of ended chains by their reports, for a number of `DUE_SHARDS`."""
    found: dict[frozenset[str], Place] = {}
    first = due_shards
    for callback in ("", *checks.RESUME_KINDS):
        shards = max(1, due_shards // _FEWER) if callback else due_shards
        for others in ((EVENT,), (PARENTS,), (EVENT, PARENTS), ()):
            if reports := frozenset(filter(None, (callback, *others))):
                found[reports] = Place(reports, first, shards)
                first += shards
    return found


def places_of(report: str) -> list[Place]:
    """Return the places of the chains of which a report on this report is pending."""
    return [place for place in places(DUE_SHARDS).values() if report in place.reports]


FORMAT_NAME: Final = "format"
FORMAT: Final = 1
"""The version of the attributes. Items of xor-ack-dynamodb have none."""

SPILLED_MARKS: Final = "spilled_marks"
"""The set of marks in an item that is a bucket of marks and not a chain."""

COUNTERS: Final = ("repeated", "late")
"""What is counted after a chain's end."""
ABSENT_AT_ZERO: Final = (*COUNTERS, "tolerated_units", "extended")
"""Numbers that are absent while they are 0."""
RESERVED: Final = frozenset((*ATTRIBUTES, DUE_SHARD, EXPIRES_AT, FORMAT_NAME, SPILLED_MARKS))
"""Attributes of an item. The partition key must have another name."""
SHOWN: Final = tuple(sorted(RESERVED - {"resume", SPILLED_MARKS}))
"""Attributes of chains that readers see, besides the partition key: no token of who waits."""

RESUME_KINDS: Final = tuple(checks.RESUME_KINDS)
"""Who may wait for a chain's end."""

METRIC_NAMESPACE: Final = "xorack"

ALIAS: Final = "live"
"""The alias of each function's version that runs: code and environment change in one step."""


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
