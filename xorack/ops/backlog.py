"""Counts the messages in an acker's queues: messages that wait, and dead letters."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from xorack.core.text import plural, span

_VISIBLE = "ApproximateNumberOfMessages"
_IN_FLIGHT = "ApproximateNumberOfMessagesNotVisible"
_DELAYED = "ApproximateNumberOfMessagesDelayed"
STUCK_MS = 60_000
"""After this time, no consumer takes the messages. On a quiet queue, Lambda waits at most 20 s."""
_METRIC_MINUTES = 15
_METRIC_SECONDS = 60
"""The metric has one value a minute."""


@dataclass(frozen=True)
class Backlog:
    """The numbers of messages in the acker's queue and of dead letters, as SQS estimates them.

    `in_flight` counts the waiting messages that the consumer has received. `oldest_ms` is the age
    of the oldest message, or a lower bound of it; None if it is unknown.
    """

    waiting: int
    dead_letters: int
    in_flight: int = 0
    oldest_ms: int | None = None

    @property
    def is_stuck(self) -> bool:
        """Return whether messages wait and no consumer takes them."""
        waits = self.waiting > self.in_flight == 0
        return waits and self.oldest_ms is not None and self.oldest_ms >= STUCK_MS

    @property
    def advice(self) -> str:
        """Advice on messages that wait while none is in flight; empty without such messages."""
        if not self.waiting > self.in_flight == 0 or self.is_stuck:
            return ""
        return f"if {'it stays' if self.waiting == 1 else 'they stay'}, the consumer does not run"

    @property
    def stuck_text(self) -> str:
        """A text for a consumer that takes no messages; empty if the consumer takes them."""
        if not self.is_stuck:
            return ""
        return (
            f"the consumer takes no messages: {plural(self.waiting, 'message')} in the queue, "
            f"the oldest for {span(self.oldest_ms or 0)}. Is it stopped, throttled or failing?"
        )

    def __str__(self) -> str:
        """Describe the messages in the queues; empty if there are none."""
        dead = plural(self.dead_letters, "dead letter")
        parts = [f"{plural(self.waiting, 'message')} not applied yet"] if self.waiting else []
        parts += [self.stuck_text] if self.is_stuck else []
        parts += [f"{dead}: xorack dead-letters list"] if self.dead_letters else []
        return "; ".join(parts)


def _counts(client: Any, queue_url: str) -> tuple[int, int]:
    """Return how many messages a queue has, and how many of them are in flight."""
    names = [_VISIBLE, _IN_FLIGHT, _DELAYED]
    response = client.get_queue_attributes(QueueUrl=queue_url, AttributeNames=names)
    counts = {name: int(response.get("Attributes", {}).get(name, 0)) for name in names}
    return sum(counts.values()), counts[_IN_FLIGHT]


def depth(client: Any, queue_url: str) -> int:
    """Return how many messages a queue has: visible, in-flight and delayed messages."""
    return _counts(client, queue_url)[0]


@dataclass
class QueueAge:
    """The age of a queue's oldest message, from CloudWatch, which is asked at most once a minute.

    The client is made at the first use, because most queues are empty.
    """

    make_client: Callable[[], Any]
    clock: Callable[[], float] = time.monotonic
    _client: Any = field(default=None, init=False)
    _until: float = field(default=-math.inf, init=False)
    _oldest_ms: int | None = field(default=None, init=False)

    def oldest_ms(self, queue_url: str) -> int | None:
        """Return the age from the queue's metric; None if it has no value, or cannot be read."""
        if self.clock() >= self._until:
            self._until = self.clock() + _METRIC_SECONDS
            self._oldest_ms = self._read(queue_url)
        return self._oldest_ms

    def _read(self, queue_url: str) -> int | None:
        now = datetime.now(timezone.utc)
        with suppress(ClientError, BotoCoreError, KeyError):
            self._client = self._client or self.make_client()
            points = self._client.get_metric_statistics(
                Namespace="AWS/SQS",
                MetricName="ApproximateAgeOfOldestMessage",
                Dimensions=[{"Name": "QueueName", "Value": queue_url.rpartition("/")[2]}],
                StartTime=now - timedelta(minutes=_METRIC_MINUTES),
                EndTime=now,
                Period=_METRIC_SECONDS,
                Statistics=["Maximum"],
            )["Datapoints"]
            if points:
                latest: float = max(points, key=lambda point: point["Timestamp"])["Maximum"]
                return round(1000 * latest)
        return None


def read_backlog(
    client: Any, queue_url: str, dead_letters_url: str, age: QueueAge | None = None
) -> Backlog | None:
    """Read the number of messages in both queues; None if SQS does not return it.

    Commands that show chains work without it, for example without the permission
    sqs:GetQueueAttributes. `age` returns the age of the oldest message.
    """
    try:
        waiting, in_flight = _counts(client, queue_url)
        dead_letters = depth(client, dead_letters_url)
    except (ClientError, BotoCoreError):
        return None
    oldest_ms = age.oldest_ms(queue_url) if waiting and age is not None else None
    return Backlog(waiting, dead_letters, in_flight, oldest_ms)


@dataclass
class Watch:
    """Reads the backlog repeatedly, and notices if no consumer takes the messages.

    This works before CloudWatch's metric arrives, which is several minutes late. If a consumer
    serves the queue, messages are in flight, or the queue is empty, at one of two reads.
    """

    read: Callable[[], Backlog | None]
    clock: Callable[[], float] = time.monotonic
    _since: float | None = field(default=None, init=False)

    def __call__(self) -> Backlog | None:
        """Read the backlog. The result has the observed waiting time of the messages."""
        backlog = self.read()
        if backlog is None or backlog.in_flight or not backlog.waiting:
            self._since = None
            return backlog
        if self._since is None:
            self._since = self.clock()
        seen_ms = round(1000 * (self.clock() - self._since))
        return replace(backlog, oldest_ms=max(seen_ms, backlog.oldest_ms or 0))
