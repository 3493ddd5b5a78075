"""Snapshots of the unfinished chains with the nearest deadlines.

They are the head of the index of deadlines; with equal timeouts these are the oldest chains. Any
other order needs another index, or a scan of the table.
"""

from __future__ import annotations

from dataclasses import dataclass

from xorack.aws.clock import milliseconds
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.errors import NotAChainError
from xorack.ops.status import ChainStatus

MAX_CHAINS = 100
_READS_PER_CHAIN = 4
"""Index entries read per requested chain: some belong to chains with only an event pending."""


@dataclass(frozen=True)
class Snapshot:
    """Unfinished chains by deadline at one moment, in milliseconds since 1970; perhaps not all.

    `event_pending` is the number of finished chains, of those read, with a pending event.
    """

    at: int
    chains: tuple[ChainStatus, ...]
    event_pending: int = 0
    invalid: tuple[NotAChainError, ...] = ()
    more: bool = False


def read_snapshot(store: DynamoDBStore, limit: int = 20, prefix: str = "") -> Snapshot:
    """Read the unfinished chains with the nearest deadlines, in bounded work.

    With a prefix, only chains whose tags begin with it; then the entire index may be searched.
    Chains without a deadline, which only the direct API creates, are not in the index.
    """
    at = milliseconds()
    tags, more = store.first_due(limit * _READS_PER_CHAIN, prefix)
    found: list[ChainStatus] = []
    invalid: list[NotAChainError] = []
    event_pending = 0
    while tags and len(found) < limit:
        chains = store.read(tags[:limit], invalid.append).values()
        tags = tags[limit:]
        event_pending += sum(chain.event_pending for chain in chains)
        found += [ChainStatus(chain, at) for chain in chains if not chain.final]
    more = more or bool(tags) or len(found) > limit
    found.sort(key=lambda one: (one.deadline is None, one.deadline, one.chain.tag))
    return Snapshot(at, tuple(found[:limit]), event_pending, tuple(invalid), more)
