"""Publish the events of chains that ended: the last step of the consumer and of the sweeper."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from xorack.acker.chain_writer import WriteStats, write_retrying
from xorack.core.chain import Chain, published
from xorack.core.errors import shown
from xorack.core.ports import ChainStore, Publisher
from xorack.core.retry import RetryPolicy

__all__ = ["each", "publish_pending"]

_LOG = logging.getLogger("xorack")
_T = TypeVar("_T")
_R = TypeVar("_R")


def each(work: Callable[[_T], _R], items: Sequence[_T], workers: int) -> Iterable[_R]:
    """Work on all items, several at a time."""
    if workers <= 1 or len(items) <= 1:
        return map(work, items)
    with ThreadPoolExecutor(min(workers, len(items))) as pool:
        return list(pool.map(work, items))


def publish_pending(
    chains: Sequence[Chain],
    store: ChainStore,
    publisher: Publisher,
    policy: RetryPolicy,
    stats: WriteStats | None = None,
    *,
    workers: int = 1,
) -> dict[str, str]:
    """Publish what is owed, and cross it off.

    Args:
        chains: Finished chains whose events are owed.
        store: Where they are kept.
        publisher: Where events go.
        policy: When to try again.
        stats: Where what it took is added.
        workers: Chains that are written at the same time.

    Returns:
        What is still owed: tag -> why.
    """
    if not chains:
        return {}
    unpublished = publisher.publish(chains)
    for tag, why in unpublished.items():
        _LOG.error("event not published", extra={"tag": shown(tag), "why": why})

    def cross_off(chain: Chain) -> WriteStats:
        took = WriteStats()
        try:
            write_retrying(store, chain, _mark_published(chain), policy, took)
        except Exception as problem:  # noqa: BLE001 - it goes out once more then, under its id
            why = f"{type(problem).__name__}: {problem}"
            _LOG.warning("event still noted as owed", extra={"tag": shown(chain.tag), "why": why})
        return took

    told = [chain for chain in chains if chain.tag not in unpublished]
    for took in each(cross_off, told, workers):
        if stats is not None:
            stats.add(took)
    return unpublished


def _mark_published(told: Chain) -> Callable[[Chain], Chain]:
    """What crosses an event off, if it is still this one that is owed."""

    def change(chain: Chain) -> Chain:
        same = (
            chain.event_pending
            and chain.first_seen_at == told.first_seen_at
            and chain.ended_at == told.ended_at
        )
        return published(chain) if same else chain

    return change
