"""What the sweeper does: end chains whose deadline has passed, publish what is still owed.

DynamoDB's TTL is no timer (it may be days late). A sparse index holds when to look at which chain;
whether it is really late is looked up again in the conditional write.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

from xorack.acker.chain_writer import WriteStats, write_retrying
from xorack.acker.outbox import publish_pending
from xorack.core.chain import Chain, expire
from xorack.core.clock import milliseconds
from xorack.core.errors import shown
from xorack.core.ports import ChainStore, Publisher, Unavailable
from xorack.core.retry import RetryPolicy

__all__ = ["SweepResult", "sweep"]

_LOG = logging.getLogger("xorack")


@dataclass
class SweepResult:
    """What a sweep did.

    Attributes:
        looked: Chains looked at.
        ended: Chains ended: reason -> how many.
        events: Events published.
        event_pending: Events that could not be published.
        problems: Chains that could not be written; they come again at the next sweep.
        complete: Whether all that was due was looked at, or time ran out.
        stats: What it took.
    """

    looked: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    events: int = 0
    event_pending: int = 0
    problems: int = 0
    complete: bool = True
    stats: WriteStats = field(default_factory=WriteStats)


class _Looked(NamedTuple):
    """What a look at a chain found: the chain now, whether that failed, what it took."""

    chain: Chain | None
    problem: bool
    stats: WriteStats


def _end_if_late(
    chain: Chain, store: ChainStore, policy: RetryPolicy, now: Callable[[], int]
) -> _Looked:
    stats = WriteStats()
    try:
        after = write_retrying(store, chain, lambda c: expire(c, now()), policy, stats)
    except Exception as problem:  # noqa: BLE001 - the others are looked at all the same
        why = f"{type(problem).__name__}: {problem}"
        _LOG.error("chain not ended", extra={"tag": shown(chain.tag), "why": why})
        return _Looked(None, True, stats)
    return _Looked(after, False, stats)


def _read(
    tags: list[str], store: ChainStore, policy: RetryPolicy, swept: SweepResult
) -> list[Chain]:
    """The chains of a page; one whose item cannot be read is a problem of its own."""
    retry = policy.start()
    while True:
        try:
            return list(store.read(tags).values())
        except Unavailable as problem:
            # Half a minute of trouble is the whole table's: the next sweep looks again.
            if retry.attempt >= 5 or not retry.again():
                raise problem.cause from problem
        except Exception as problem:  # noqa: BLE001 - an item that is no chain
            if len(tags) == 1:
                why = f"{type(problem).__name__}: {problem}"
                _LOG.error("chain not read", extra={"tag": shown(tags[0]), "why": why})
                swept.problems += 1
                return []
            return [chain for tag in tags for chain in _read([tag], store, policy, swept)]


def sweep(
    store: ChainStore,
    publisher: Publisher,
    *,
    policy: RetryPolicy | None = None,
    now: Callable[[], int] = milliseconds,
    workers: int = 8,
) -> SweepResult:
    """Look at all chains that are due.

    Args:
        store: Where chains are kept.
        publisher: Where events go.
        policy: When to try again; its ``time_left`` bounds the whole, what is left then comes
            with the next sweep.
        now: The clock, milliseconds since 1970.
        workers: Chains that are written at the same time.

    Returns:
        What was done.

    Raises:
        Exception: The index or the table could not be read; the next sweep looks again.
    """
    policy = policy or RetryPolicy()
    swept = SweepResult()
    with ThreadPoolExecutor(max(1, workers)) as pool:
        for tags in store.due_pages(now()):
            if policy.time_left() <= 0:
                swept.complete = False
                break
            chains = _read(tags, store, policy, swept)
            swept.looked += len(chains)

            def look(chain: Chain) -> _Looked:
                return _end_if_late(chain, store, policy, now)

            event_pending = []
            results = map(look, chains) if workers <= 1 else pool.map(look, chains)
            for before, (after, problem, stats) in zip(chains, results, strict=True):
                swept.stats.add(stats)
                swept.problems += problem
                if after is None:
                    continue
                if after.final and not before.final:
                    swept.ended[after.reason or after.status] += 1
                if after.event_pending:
                    event_pending.append(after)
            unpublished = publish_pending(
                event_pending, store, publisher, policy, swept.stats, workers=workers
            )
            swept.events += len(event_pending) - len(unpublished)
            swept.event_pending += len(unpublished)
    return swept
