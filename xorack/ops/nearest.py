"""The unfinished chains with the nearest deadlines.

They are the head of the index of deadlines; with equal timeouts these are the oldest chains. Any
other order would need another index, or a scan of the table.
"""

from __future__ import annotations

from collections.abc import Callable

from xorack.acker.reading import read_valid
from xorack.aws.clock import milliseconds
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.errors import NotAChainError
from xorack.ops.status import ChainStatus

_READS_PER_CHAIN = 4
"""Index entries read per requested chain: some belong to chains with only an event pending."""


def read_nearest(
    store: DynamoDBStore,
    limit: int,
    on_invalid: Callable[[NotAChainError], None],
    prefix: str = "",
) -> list[ChainStatus]:
    """Read the unfinished chains with the nearest deadlines, in bounded work.

    With a prefix, only chains whose tags begin with it; then the whole index may be searched.
    Chains without a deadline, which only the direct API creates, are not in the index. Calls
    `on_invalid` for each item that is not a chain.
    """
    at = milliseconds()
    tags = store.first_due(limit * _READS_PER_CHAIN, prefix)
    found: list[ChainStatus] = []
    for first in range(0, len(tags), limit):
        chains = read_valid(store.read, tags[first : first + limit], on_invalid)
        found += (ChainStatus(chain, at) for chain in chains if not chain.final)
        if len(found) >= limit:
            break
    found.sort(key=lambda one: (one.deadline is None, one.deadline, one.chain.tag))
    return found[:limit]
