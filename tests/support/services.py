"""The services over any ports, one call each."""

from __future__ import annotations

from xorack.acker.chain_writer import ChainWriter
from xorack.acker.consumer import BatchResult, Consumer, Message
from xorack.acker.outbox import Outbox
from xorack.acker.parallel import Workers
from xorack.acker.sweeper import Sweeper, SweepResult
from xorack.aws.clock import milliseconds
from xorack.core.budget import UNLIMITED
from xorack.core.chain import EVENT
from xorack.core.ports import DEFAULT_RETENTION_MS
from xorack.core.transitions import Applied, Limits

__all__ = ["BatchResult", "Message", "SweepResult", "apply_requests", "consume", "sweep", "writer"]


def writer(
    store,
    *,
    now=milliseconds,
    policy=None,
    budget=UNLIMITED,
    default_timeout_ms=None,
    retention_ms=DEFAULT_RETENTION_MS,
) -> ChainWriter:
    limits = Limits(
        default_timeout_ms, pending_timeout_ms=default_timeout_ms, retention_ms=retention_ms
    )
    return ChainWriter(store, clock=now, policy=policy, budget=budget, limits=limits)


def channels(publisher):
    """Return channels: given ones, or one publisher of events."""
    return publisher if isinstance(publisher, dict) else {EVENT: publisher}


def apply_requests(
    store, tag, requests, cached=None, *, must_exist=False, fresh_ids=False, **limits
) -> Applied:
    chains = writer(store, **limits)
    return chains.apply(tag, requests, cached, must_exist=must_exist, fresh_ids=fresh_ids)


def consume(messages, store, publisher, dead_letters, *, workers=8, **limits) -> BatchResult:
    chains = writer(store, **limits)
    outbox = Outbox(chains, channels(publisher), workers=Workers(workers))
    return Consumer(chains, outbox, dead_letters).consume(messages)


def sweep(store, publisher, *, workers=8, **limits) -> SweepResult:
    chains = writer(store, **limits)
    outbox = Outbox(chains, channels(publisher), workers=Workers(workers))
    return Sweeper(chains, outbox).sweep()
