"""Fakes of the ports, in memory; tests make them fail."""

from __future__ import annotations

from collections.abc import Sequence

from xorack.aws.retry import RetryPolicy
from xorack.core.chain import Chain
from xorack.core.event import event_detail
from xorack.core.message import Rejected

NO_WAIT = RetryPolicy(attempts=20, sleep=lambda seconds: None)
"""Retries at once."""


class FakeBus:
    """An event bus that keeps its events; it does not accept those of the tags in `rejects`."""

    batch_size = 10

    def __init__(self) -> None:
        self.events: list[dict] = []
        self.rejects: set[str] = set()

    def publish(self, chains: Sequence[Chain]) -> dict[str, str]:
        self.events += [event_detail(chain) for chain in chains if chain.tag not in self.rejects]
        return {chain.tag: "rejected" for chain in chains if chain.tag in self.rejects}


class FakeDeadLetters:
    """A dead-letter queue that keeps its messages; it accepts none if `broken`."""

    def __init__(self) -> None:
        self.letters: list[Rejected] = []
        self.broken = False

    def __call__(self, rejected: Sequence[Rejected]) -> list[int]:
        if self.broken:
            return list(range(len(rejected)))
        self.letters += rejected
        return []
