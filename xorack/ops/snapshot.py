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

_READS_PER_CHAIN = 4
"""Index entries read per requested chain: some belong to chains with only an event pending."""


@dataclass(frozen=True)
class Snapshot:
    """Unfinished chains, the nearest deadline first, and items that are no chains."""

    chains: tuple[ChainStatus, ...]
    invalid: tuple[NotAChainError, ...] = ()


def read_snapshot(store: DynamoDBStore, limit: int = 20, prefix: str = "") -> Snapshot:
    """Read the unfinished chains with the nearest deadlines, in bounded work.

    With a prefix, only chains whose tags begin with it; then the entire index may be searched.
    Chains without a deadline, which only the direct API creates, are not in the index.
    """
    at = milliseconds()
    tags, _ = store.first_due(limit * _READS_PER_CHAIN, prefix)
    found: list[ChainStatus] = []
    invalid: list[NotAChainError] = []
    while tags and len(found) < limit:
        chains = store.read(tags[:limit], invalid.append).values()
        tags = tags[limit:]
        found += [ChainStatus(chain, at) for chain in chains if not chain.final]
    found.sort(key=lambda one: (one.deadline is None, one.deadline, one.chain.tag))
    return Snapshot(tuple(found[:limit]), tuple(invalid))
