"""Fakes of the ports, in memory; tests make them fail."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any

from xorack.aws.retry import RetryPolicy
from xorack.core.chain import Chain
from xorack.core.event import event_detail
from xorack.core.message import Rejected
from xorack.core.ports import Failure

NO_WAIT = RetryPolicy(attempts=20, sleep=lambda seconds: None)
"""Retries at once."""


class FakeBus:
    """An event bus that keeps its events; it does not accept those of the tags in `rejects`."""

    batch_size = 10

    def __init__(self) -> None:
        self.events: list[dict] = []
        self.rejects: set[str] = set()

    def publish(self, chains: Sequence[Chain]) -> dict[str, Failure]:
        self.events += [event_detail(chain) for chain in chains if chain.tag not in self.rejects]
        rejected = Failure("outage", "rejected")
        return {chain.tag: rejected for chain in chains if chain.tag in self.rejects}


class FakeQueue:
    """An SQS client that keeps its messages, and rejects the first entry of some calls."""

    def __init__(self, rejects: int = 0, *, permanent: bool = False) -> None:
        self.calls: list[list[dict[str, Any]]] = []
        self.rejects, self.permanent = rejects, permanent
        self._guard = threading.Lock()

    def send_message_batch(self, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:
        failed = []
        with self._guard:
            if self.rejects:
                self.rejects -= 1
                fault = {"Code": "C", "Message": "m", "SenderFault": self.permanent}
                failed = [{"Id": Entries[0]["Id"], **fault}]
            self.calls.append(Entries[len(failed) :])
        return {"Failed": failed}

    @property
    def entries(self) -> list[dict[str, Any]]:
        return [entry for call in self.calls for entry in call]

    @property
    def requests(self) -> list[Any]:
        """The requests of all messages, as JSON values."""
        bodies = (json.loads(entry["MessageBody"]) for entry in self.entries)
        return [request for body in bodies for request in body["requests"]]


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
