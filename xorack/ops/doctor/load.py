"""A load of chains: the plan of each chain, its requests, and the sender."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from typing import Any

from xorack.aws.sqs import send
from xorack.core.hashing import unit_id
from xorack.core.request import Request
from xorack.core.stamp import traced, xor

_TIMEOUT_SECONDS = 86_400.0
"""Longer than a run. The deadline of chains that lose units is moved when all is sent."""
_OPEN_CHAINS = 20


@dataclass(frozen=True)
class Plan:
    """The requests of a chain. Its expected end follows from them."""

    tag: str
    number: int
    units: int
    """The number of the chain's units, including the root."""
    lost: int = 0
    """The number of units that never finish, which are the last ones."""
    creates_last: bool = False

    @property
    def finished(self) -> int:
        return self.units - self.lost

    def unit(self, position: int) -> int:
        """Return the id of a unit. The root has position 0."""
        return unit_id("doctor", self.number, position)

    def outstanding(self) -> list[int]:
        return [self.unit(position) for position in range(self.finished, self.units)]

    def requests(self) -> list[Request]:
        """Return the chain's requests in the order in which it sends them."""

        def stamp(first: int, end: int) -> bytes:
            return reduce(xor, (bytes(traced(self.unit(n))) for n in range(first, end)))

        root, detail = stamp(0, 1), {"chain": self.number}
        made = [
            Request.create(self.tag, "create", root, timeout=_TIMEOUT_SECONDS, detail=detail),
            Request.stamp_(
                self.tag, "root", stamp(0, self.units), started=self.units - 1, finished=1
            ),
        ]
        made += [
            Request.stamp_(self.tag, f"unit {n}", stamp(n, n + 1), finished=1)
            for n in range(1, self.finished)
        ]
        return made[::-1] if self.creates_last else made


@dataclass(frozen=True, kw_only=True)
class Load:
    """A load with its faults, which are shares. Equal loads have equal chains and messages."""

    chains: int
    seed: int = 1
    sizes: tuple[int, ...] = (10,)
    rate: float = 1e6
    """The most requests a second."""
    tick_seconds: float = 0.2
    """Requests within this time share a call."""
    losing: float = 0.02
    """The share of chains of which one or two units never finish."""
    reordered: float = 0.25
    """The share of chains that send their create last."""
    repeated: float = 0.1
    """The share of calls that are sent a second time. The first one always is."""

    def plans(self, run: str) -> list[Plan]:
        draw = random.Random(self.seed)
        return [
            Plan(
                f"{run}/{number}",
                number,
                units := draw.choice(self.sizes),
                draw.randint(1, 2) if units > 2 and draw.random() < self.losing else 0,
                draw.random() < self.reordered,
            )
            for number in range(self.chains)
        ]


def interleave(plans: Iterator[Plan]) -> Iterator[Request]:
    """Yield the requests of several chains alternately, so that many chains are open at a time."""
    streams = [iter(plan.requests()) for plan in islice(plans, _OPEN_CHAINS)]
    while streams:
        for stream in list(streams):
            request = next(stream, None)
            if request is not None:
                yield request
                continue
            streams.remove(stream)
            streams += [iter(plan.requests()) for plan in islice(plans, 1)]


@dataclass
class Sent:
    """Figures of the sending. Times are seconds since the epoch by this machine's clock."""

    requests: int = 0
    """The number of requests without copies."""
    messages: int = 0
    copies: int = 0
    """The number of messages that were sent a second time."""
    begun_at: float = 0.0
    ended_at: float = 0.0
    times: dict[str, float] = field(default_factory=dict)
    """The time at which the last request of each chain was sent to SQS, by tag."""


@dataclass
class Sender:
    """Sends the chains of a load at its rate."""

    load: Load
    run: str
    queue_url: str
    client: Any

    def send(self) -> Sent:
        """Send all requests; raise SendError if the queue does not accept a message."""
        load, sent = self.load, Sent(begun_at=time.time())
        draw = random.Random(f"{load.seed}/parts")
        requests = interleave(iter(load.plans(self.run)))
        together = max(1, int(load.rate * load.tick_seconds)) if load.rate < 1e5 else 10_000
        while part := list(islice(requests, together)):
            now, bodies = time.time(), [json.dumps(request.to_json()) for request in part]
            sent.messages += self.deliver(bodies)
            sent.requests += len(part)
            sent.times |= dict.fromkeys((request.tag for request in part), now)
            if draw.random() < load.repeated or not sent.copies:
                sent.copies += self.deliver(bodies)
            due = sent.begun_at + sent.requests / load.rate
            time.sleep(max(0.0, due - time.time()))
        sent.ended_at = time.time()
        return sent

    def deliver(self, bodies: list[str]) -> int:
        """Send requests as texts; return the number of messages."""
        # In a fair queue, the load's group does not delay the messages of other senders.
        return send(self.queue_url, bodies, self.client, group=self.run).messages
