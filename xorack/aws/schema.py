"""Names that code and infrastructure share: attributes, the index, metrics.

The stack creates the table, the alarms and the dashboard by these names; the adapters and the
functions use them. docs/protocol.md fixes `TAG`, `STAMP`, `STATUS` and `EXPIRES_AT`.
"""

from __future__ import annotations

from typing import Final

from xorack.core import checks
from xorack.core.chain import ATTRIBUTES

TAG: Final = "tag"
"""Default name of the partition key."""
STAMP: Final = "stamp"
STATUS: Final = "status"
EXPIRES_AT: Final = "expires_at"
"""The TTL attribute: seconds since the epoch."""

DUE_INDEX: Final = "due"
"""Sparse index of chains by the time at which the sweeper must look at them."""
DUE_SHARD: Final = "due_shard"
"""Partition key of the index: 0 to ``DUE_SHARDS`` - 1, and as many more for finished chains."""
DUE_AT: Final = "due_at"
"""Sort key of the index: milliseconds since the epoch."""
DUE_SHARDS: Final = 40
"""Partitions of the index for deadlines. Each takes 1,000 writes a second: together DynamoDB's
default quota. Finished chains with pending reports have as many more: no deadline waits for them.

Every reader of the index reads all of them. A lower number would hide the chains of the others."""

FORMAT_NAME: Final = "format"
FORMAT: Final = 1
"""The version of the attributes. Items of xor-ack-dynamodb have none."""

SPILLED_MARKS: Final = "spilled_marks"
"""The set of marks in an item that is a bucket of marks and not a chain."""

COUNTERS: Final = ("repeated", "late")
"""What is counted after a chain's end."""
ABSENT_AT_ZERO: Final = (*COUNTERS, "tolerated_units")
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
