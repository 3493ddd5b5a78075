"""The services over any ports, one call each."""

from __future__ import annotations

from tests.support.fakes import NO_WAIT, FakeBus, FakeDeadLetters
from tests.support.memory_store import MemoryStore
from xorack.acker.chain_writer import Application, ChainWriter
from xorack.acker.consumer import BatchResult, Consumer, Message
from xorack.acker.outbox import Outbox
from xorack.acker.parallel import Workers
from xorack.acker.sweeper import Sweeper, SweepResult
from xorack.aws.clock import milliseconds
from xorack.core.budget import UNLIMITED
from xorack.core.chain import EVENT
from xorack.core.ports import DEFAULT_RETENTION_MS
from xorack.core.transitions import Applied, Limits

NOW = 1_700_000_000_000
DAY = 86_400_000


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


def publishers(publisher):
    """Return publishers by name; a single publisher is that of events."""
    return publisher if isinstance(publisher, dict) else {EVENT: publisher}


def apply_requests(
    store, tag, requests, cached=None, *, must_exist=False, fresh_ids=False, **limits
) -> Applied:
    return writer(store, **limits).apply(Application(tag, requests, cached, must_exist, fresh_ids))


def consume(messages, store, publisher, dead_letters, *, workers=8, **limits) -> BatchResult:
    chains = writer(store, **limits)
    outbox = Outbox(chains, publishers(publisher), workers=Workers(workers))
    return Consumer(chains, outbox, dead_letters).consume(messages)


def sweep(store, publisher, *, workers=8, **limits) -> SweepResult:
    chains = writer(store, **limits)
    outbox = Outbox(chains, publishers(publisher), workers=Workers(workers))
    return Sweeper(chains, outbox).sweep()


class World:
    """A consumer and a sweeper, by default over fakes, with a clock that stands still."""

    def __init__(self, store=None, bus=None, now=NOW):
        self.store = MemoryStore() if store is None else store
        self.bus = FakeBus() if bus is None else bus
        self.dead_letters, self.now = FakeDeadLetters(), now

    def consume(self, *bodies, budget=UNLIMITED, workers=1, receives=1) -> BatchResult:
        """Consume messages m0, m1, ... in one batch."""
        counts = receives if isinstance(receives, list) else [receives] * len(bodies)
        messages = [Message(f"m{i}", bodies[i], counts[i]) for i in range(len(bodies))]
        ports = self.store, self.bus, self.dead_letters
        options = {"budget": budget, "workers": workers, "now": lambda: self.now}
        return consume(messages, *ports, policy=NO_WAIT, default_timeout_ms=DAY, **options)

    def sweep(self, budget=UNLIMITED) -> SweepResult:
        options = {"policy": NO_WAIT, "budget": budget, "now": lambda: self.now}
        return sweep(self.store, self.bus, workers=1, **options)

    def fail(self, method, when, error):
        """Make calls of the store raise an error; ``del world.store.METHOD`` repairs it."""
        real = getattr(self.store, method)

        def call(*arguments, **named):
            if when(*arguments):
                raise error
            return real(*arguments, **named)

        setattr(self.store, method, call)

    def tags(self):
        return [event["tag"] for event in self.bus.events]
