"""A load of chains: the plan of each chain, its requests, and the sender."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import chain, islice, zip_longest
from typing import Any

from xorack.aws.sqs import send
from xorack.core.hashing import unit_id
from xorack.core.request import Request
from xorack.core.stamp import traced, xor

_TIMEOUT_SECONDS = 86_400.0
"""Longer than a run. The deadline of chains that lose units is moved when all is sent."""
_OPEN_CHAINS = 20
_TICK_SECONDS = 0.2
"""Requests within this time share a call."""
REPEATED = 0.1
"""The share of calls that are sent a second time. The first one always is."""


@dataclass(frozen=True)
class Plan:
    """The requests of a chain. They determine the expected end of the chain."""

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
        """Return the chain's requests in the order in which the load sends them."""

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
    """A load, with its faults as shares of chains. Equal loads have equal chains and messages."""

    chains: int
    sizes: tuple[int, ...] = (10,)
    rate: float = 1e6
    """The most requests a second."""
    losing: float = 0.02
    """The share of chains of which one or two units never finish."""
    reordered: float = 0.25
    """The share of chains that send their create last."""

    def plans(self, run: str) -> list[Plan]:
        draw = random.Random(1)
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


def interleave(plans: Sequence[Plan]) -> Iterator[Request]:
    """Yield the requests of 20 chains alternately, so that many chains are open at a time."""
    for first in range(0, len(plans), _OPEN_CHAINS):
        chains = [plan.requests() for plan in plans[first : first + _OPEN_CHAINS]]
        yield from filter(None, chain.from_iterable(zip_longest(*chains)))


@dataclass
class Sent:
    """Figures about sent requests. Times are seconds since the epoch by this machine's clock."""

    requests: int = 0
    """The number of requests without copies."""
    messages: int = 0
    copies: int = 0
    """The number of messages that were sent a second time."""
    begun_at: float = 0.0
    ended_at: float = 0.0
    times: dict[str, float] = field(default_factory=dict)
    """The time at which the last request of each chain was sent to SQS, by tag."""


def send_load(load: Load, run: str, queue_url: str, client: Any) -> Sent:
    """Send the chains of a load at its rate; raise SendError if the queue rejects a message."""
    sent, draw = Sent(begun_at=time.time()), random.Random(1)
    requests = interleave(load.plans(run))
    together = max(1, int(min(load.rate * _TICK_SECONDS, 10_000)))
    while part := list(islice(requests, together)):
        now, bodies = time.time(), [json.dumps(request.to_json()) for request in part]
        # In a fair queue, the load's group does not delay the messages of other senders.
        deliver = partial(send, queue_url, bodies, client, group=run)
        sent.messages += deliver().messages
        sent.requests += len(part)
        sent.times |= dict.fromkeys((request.tag for request in part), now)
        if draw.random() < REPEATED or not sent.copies:
            sent.copies += deliver().messages
        due = sent.begun_at + sent.requests / load.rate
        time.sleep(max(0.0, due - time.time()))
    sent.ended_at = time.time()
    return sent
