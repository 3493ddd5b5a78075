"""Snapshots of the unfinished chains with the nearest deadlines.

These chains are at the beginning of the index of deadlines. If all chains have the same time-out,
they are the oldest chains. Another order would need another index, or a scan of the table.
"""

from __future__ import annotations

from dataclasses import dataclass

from xorack.aws.clock import milliseconds
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.errors import NotAChainError
from xorack.ops.status import ChainStatus

_READS_PER_CHAIN = 4
"""Index entries read for each requested chain, because some chains only have pending events."""


@dataclass(frozen=True)
class Snapshot:
    """Unfinished chains, the nearest deadline first, and items that are not chains."""

    chains: tuple[ChainStatus, ...]
    invalid: tuple[NotAChainError, ...] = ()


def read_snapshot(store: DynamoDBStore, limit: int = 20) -> Snapshot:
    """Read the unfinished chains with the nearest deadlines, with a limited number of reads.

    Chains without a deadline, which only the direct API creates, are not in the index.
    """
    at = milliseconds()
    tags = store.first_due(limit * _READS_PER_CHAIN)
    statuses: list[ChainStatus] = []
    invalid: list[NotAChainError] = []
    while tags and len(statuses) < limit:
        chains = store.read(tags[:limit], invalid.append).values()
        tags = tags[limit:]
        statuses += [ChainStatus(chain, at) for chain in chains if not chain.final]
    statuses.sort(key=lambda each: (each.deadline is None, each.deadline, each.chain.tag))
    return Snapshot(tuple(statuses[:limit]), tuple(invalid))
