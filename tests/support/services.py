"""The services in one call each, for tests that do not care how they are put together."""

from __future__ import annotations

from xorack.acker.chain_writer import ChainWriter, Limits
from xorack.acker.consumer import BatchResult, Consumer, Message
from xorack.acker.outbox import Outbox
from xorack.acker.sweeper import Sweeper, SweepResult
from xorack.core.clock import milliseconds
from xorack.core.ports import DEFAULT_RETENTION_MS
from xorack.core.transitions import Applied

__all__ = ["BatchResult", "Message", "SweepResult", "apply_requests", "consume", "sweep", "writer"]


def writer(store, *, now=milliseconds, policy=None, default_timeout=None, retention=None):
    limits = Limits(default_timeout, DEFAULT_RETENTION_MS if retention is None else retention)
    return ChainWriter(store, clock=now, retry_policy=policy, limits=limits)


def apply_requests(
    store, tag, requests, cached=None, *, must_exist=False, fresh_ids=False, **limits
):
    """Apply requests to a stored chain; returns `Applied`."""
    applied: Applied = writer(store, **limits).apply(
        tag, requests, cached, must_exist=must_exist, fresh_ids=fresh_ids
    )
    return applied


def consume(messages, store, publisher, dead_letters, *, workers=8, **limits) -> BatchResult:
    """Consume a batch of messages."""
    chains = writer(store, **limits)
    outbox = Outbox(chains, publisher, workers=workers)
    return Consumer(chains, outbox, dead_letters, workers=workers).consume(messages)


def sweep(store, publisher, *, workers=8, **limits) -> SweepResult:
    """Sweep a store."""
    chains = writer(store, **limits)
    return Sweeper(chains, Outbox(chains, publisher, workers=workers), workers=workers).sweep()
