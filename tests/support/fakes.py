"""Fakes of the ports, in memory; tests make them fail."""

from __future__ import annotations

from collections.abc import Sequence

from xorack.core.chain import Chain
from xorack.core.event import event_detail
from xorack.core.message import Rejected
from xorack.core.retry import RetryPolicy

NO_WAIT = RetryPolicy(attempts=20, sleep=lambda seconds: None)
"""Retries at once."""


class FakeBus:
    """An event bus that keeps its events; it rejects the tags in `refuse`."""

    def __init__(self) -> None:
        self.events: list[dict] = []
        self.refuse: set[str] = set()

    def publish(self, chains: Sequence[Chain]) -> dict[str, str]:
        failures = {}
        for chain in chains:
            if chain.tag in self.refuse:
                failures[chain.tag] = "refused by the test"
            else:
                self.events.append(event_detail(chain))
        return failures


class FakeDeadLetters:
    """A dead-letter queue that keeps its messages; it rejects all of them if `broken`."""

    def __init__(self) -> None:
        self.letters: list[Rejected] = []
        self.broken = False

    def send(self, refused: Sequence[Rejected]) -> list[int]:
        if self.broken:
            return list(range(len(refused)))
        self.letters.extend(refused)
        return []
