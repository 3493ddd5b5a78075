"""Helps to test code that tracks work, without AWS: `MemoryTracker`, and a fixture for pytest.

The acker of such a tracker is a dictionary in this process. It follows the rules of a deployed
acker: a request takes effect once, and a chain is acked when all of its units are finished. With
``pytest_plugins = ["xorack.testing"]`` in ``conftest.py``, the fixture is available.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from xorack.acker.parents import request_of
from xorack.client.tracker import Tracker
from xorack.core.chain import Chain, Status
from xorack.core.event import event_detail
from xorack.core.message import parse
from xorack.core.request import Request, validate_tag
from xorack.core.transitions import Limits, apply, expire

_QUEUE_URL = "memory://acker"
_DAY_MS = 86_400_000
_LIMITS = Limits(default_timeout_ms=_DAY_MS, pending_timeout_ms=4 * _DAY_MS)


class _MemoryQueues:
    """A client of SQS. It applies the acker's messages in memory, and keeps all other messages."""

    def __init__(self) -> None:
        self.chains: dict[str, Chain] = {}
        self.events: list[dict[str, Any]] = []
        self.rejected: list[str] = []
        self.messages: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.passed_ms = 0
        self._lock = threading.Lock()

    @property
    def _now(self) -> int:
        return time.time_ns() // 1_000_000 + self.passed_ms

    def send_message_batch(self, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:
        with self._lock:
            for entry in Entries:
                if QueueUrl == _QUEUE_URL:
                    self._apply(entry["MessageBody"])
                else:
                    self.messages[QueueUrl].append(_record_of(entry))
        return {"Failed": []}

    def pass_time(self, milliseconds: int) -> None:
        with self._lock:
            self.passed_ms += milliseconds
            for chain in [*self.chains.values()]:
                self._keep(chain, expire(chain, self._now))

    def _apply(self, body: str) -> None:
        parsed = parse(body)
        self.rejected += [rejected.reason for rejected in parsed.rejected]
        self._write(parsed.requests)

    def _write(self, requests: Iterable[Request]) -> None:
        by_tag: dict[str, list[Request]] = defaultdict(list)
        for request in requests:
            by_tag[request.tag].append(request)
        for tag, selected in by_tag.items():
            before = self.chains.get(tag)
            after, outcomes = apply(before, selected, now=self._now, limits=_LIMITS)
            self.rejected += [f"{tag}: {each.error}" for each in outcomes if each.error]
            if after is not None:
                self._keep(before, after)

    def _keep(self, before: Chain | None, after: Chain) -> None:
        self.chains[after.tag] = after
        if after.final and not (before and before.final):
            self.events.append(event_detail(after))
            units = after.parent_units
            self._write(request_of(after, unit, tag) for unit in units for tag in unit.tags)


class MemoryTracker(Tracker):
    """A tracker for tests. Its acker is in this process.

    Attributes:
        events: The details of the events of ended chains, in their order.
        rejected: The reasons why requests were rejected. A test should expect none.

    Examples:
        >>> tracker = MemoryTracker()
        >>> token = tracker.start("order/17")
        >>> with tracker.step(token) as step:
        ...     line = step.child("line 1")
        >>> tracker.state("order/17")
        'open'
        >>> with tracker.step(line):
        ...     pass
        >>> tracker.events[0]["status"], tracker.rejected
        ('acked', [])
    """

    def __init__(self, **options: Any) -> None:
        """Make a tracker. It has the options of `Tracker`, such as ``token_key``."""
        self._queues = _MemoryQueues()
        super().__init__(_QUEUE_URL, self._queues, **{"table_name": "memory", **options})

    @property
    def events(self) -> list[dict[str, Any]]:
        return self._queues.events

    @property
    def rejected(self) -> list[str]:
        return self._queues.rejected

    def state(self, tag: str) -> Status | None:
        """Return the status of a chain, like `Tracker.state`."""
        chain = self._queues.chains.get(validate_tag(tag))
        return chain.status if chain else None

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and fail the chains whose deadline has passed."""
        self._queues.pass_time(round(seconds * 1000))

    def received(self, queue_url: str) -> dict[str, Any]:
        """Take the messages that `fan_out` sent to a queue, as an event for a Lambda function.

        Pass the tracker's `client` to `fan_out`.
        """
        return {"Records": self._queues.messages.pop(queue_url, [])}


def _record_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as Lambda passes it to a function."""
    attributes = {
        name: {"stringValue": value["StringValue"], "dataType": value["DataType"]}
        for name, value in entry.get("MessageAttributes", {}).items()
    }
    group = entry.get("MessageGroupId")
    return {
        "messageId": str(uuid.uuid4()),
        "receiptHandle": "memory",
        "body": entry["MessageBody"],
        "attributes": {"MessageGroupId": group} if group else {},
        "messageAttributes": attributes,
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:memory",
    }


try:
    import pytest
except ModuleNotFoundError:  # the tracker works without pytest
    pass
else:

    @pytest.fixture
    def xorack_tracker() -> Iterator[MemoryTracker]:
        """A tracker in memory. The test fails if the acker rejected a request."""
        tracker = MemoryTracker()
        yield tracker
        assert tracker.rejected == [], "requests were rejected: see MemoryTracker.rejected"
