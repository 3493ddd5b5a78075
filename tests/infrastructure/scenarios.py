"""Metric data of an acker in named situations, minute by minute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from .cloudwatch import Data
from .templates import Template

Of = Callable[[int], float]
"""A figure of a minute."""
_MINUTE = 60


def constant(value: float) -> Of:
    return lambda minute: value


def between(start: int, end: int, value: float, otherwise: float = 0) -> Of:
    """A value from one minute to another, and another value at other times."""
    return lambda minute: value if start <= minute < end else otherwise


_NONE = constant(0)
_ONE = constant(1)


@dataclass
class _Message:
    sent: int
    poison: bool
    visible_at: int
    receives: int = 0


@dataclass
class Scenario:
    """A situation: what happens in which minute. By default an acker does its work well.

    Attributes:
        sent: Messages sent.
        poison: Messages sent that fail in each attempt.
        works: 1 if the consumer's attempts succeed.
        capacity: Messages that the consumer can receive.
        rejected: Requests that the consumer sends to the dead-letter queue.
        errors: Invocations of the consumer that fail, besides those that fail as a whole.
        seconds: Longest invocation of the consumer.
        throttled: Invocations that Lambda throttles.
        table_throttled: Throttled writes.
        sweeps: 1 for a sweep that succeeds, 0 for none, -1 for one that fails.
        sweep_seconds: Duration of a sweep.
        sweep_problems: Chains that a sweep could not end.
        chains_failed: Chains that fail.
        pending_seconds: Age of the oldest event that stays pending.
        refused: Events and callbacks that are refused for the first time, or given up.
        looks: 1 while somebody looks at the dead letters, which hides them.
        sqs_from: First minute of which SQS has data of the queue.
    """

    sent: Of = lambda minute: 20
    poison: Of = _NONE
    works: Of = _ONE
    capacity: Of = lambda minute: 100
    rejected: Of = _NONE
    errors: Of = _NONE
    seconds: Of = lambda minute: 2
    throttled: Of = _NONE
    table_throttled: Of = _NONE
    sweeps: Of = _ONE
    sweep_seconds: Of = _ONE
    sweep_problems: Of = _NONE
    chains_failed: Of = _NONE
    pending_seconds: Of = _NONE
    refused: Of = _NONE
    looks: Of = _NONE
    sqs_from: int = 0
    _queue: list[_Message] = field(default_factory=list, init=False)
    _dead: int = field(default=0, init=False)
    _dead_since: int | None = field(default=None, init=False)

    def data(self, template: Template, minutes: range) -> Data:
        """The data of an acker with a template's settings."""
        names, data = _Names(template), Data()
        run = replace(self)  # with empty queues
        for minute in minutes:
            run._put_queues(data, names, minute)
            run._put_functions(data, names, minute)
            if throttled := self.table_throttled(minute):
                data.put(minute, "AWS/DynamoDB", names.table, WriteThrottleEvents=throttled)
        return data

    def _put_queues(self, data: Data, names: _Names, minute: int) -> None:
        now, end = minute * _MINUTE, (minute + 1) * _MINUTE
        for of, poison in ((self.sent, False), (self.poison, True)):
            self._queue += [_Message(now, poison, now) for _ in range(int(of(minute)))]
        received, deleted = self._consume(names, minute, end)
        self._dead += int(self.rejected(minute))
        if minute >= self.sqs_from:
            visible = sum(one.visible_at < end for one in self._queue)
            # SQS does not count a message's age from its third receive on.
            ages = [end - one.sent for one in self._queue if one.receives < 3]
            known = {"ApproximateAgeOfOldestMessage": max(ages)} if ages else {}
            data.put(
                minute, "AWS/SQS", names.queue, NumberOfMessagesReceived=received,
                NumberOfMessagesDeleted=deleted, ApproximateNumberOfMessagesVisible=visible,
                ApproximateNumberOfMessagesNotVisible=len(self._queue) - visible, **known,
            )  # fmt: skip
        if received:
            data.put(
                minute, "AWS/Lambda", names.consumer, Invocations=1,
                Errors=max(self.errors(minute), not deleted), Duration=1000 * self.seconds(minute),
            )  # fmt: skip
        self._put_dead_letters(data, names, minute)

    def _consume(self, names: _Names, minute: int, end: int) -> tuple[int, int]:
        """Receive what is visible; return the numbers of messages received and deleted."""
        received = deleted = 0
        kept = []
        for message in self._queue:
            if message.visible_at >= end or received >= self.capacity(minute):
                kept.append(message)
            elif message.receives == names.max_receive_count:
                self._dead += 1  # SQS counts it neither as received nor as sent
            else:
                message.receives += 1
                received += 1
                if self.works(minute) and not message.poison:
                    deleted += 1
                    continue
                message.visible_at = max(message.visible_at, end - _MINUTE) + names.visibility
                kept.append(message)
        self._queue = kept
        return received, deleted

    def _put_dead_letters(self, data: Data, names: _Names, minute: int) -> None:
        """Put the metrics of a queue that has data only while it contains messages."""
        if not self._dead:
            return
        if self._dead_since is None:
            self._dead_since = minute
        hidden = self._dead if self.looks(minute) else 0
        data.put(
            minute, "AWS/SQS", names.dead_letters,
            ApproximateNumberOfMessagesVisible=self._dead - hidden,
            ApproximateNumberOfMessagesNotVisible=hidden,
            ApproximateAgeOfOldestMessage=(minute - self._dead_since) * _MINUTE,
        )  # fmt: skip

    def _put_functions(self, data: Data, names: _Names, minute: int) -> None:
        if throttled := self.throttled(minute):
            data.put(minute, "AWS/Lambda", names.consumer, Throttles=throttled)
        if not self.sweeps(minute):
            return
        data.put(
            minute, "AWS/Lambda", names.sweeper, Invocations=1, Errors=self.sweeps(minute) < 0,
            Duration=1000 * self.sweep_seconds(minute), Throttles=0,
        )  # fmt: skip
        if self.sweeps(minute) > 0:
            data.put(
                minute, "xorack", names.service, ChainsFailed=self.chains_failed(minute),
                SweepProblems=self.sweep_problems(minute),
                EventsPendingSeconds=self.pending_seconds(minute),
                DeliveriesRefused=self.refused(minute),
            )  # fmt: skip


class _Names:
    """Dimensions and settings of a template."""

    def __init__(self, template: Template) -> None:
        name, queue = template.queue()
        self.queue = {"QueueName": name}
        self.dead_letters = {"QueueName": template.dead_letters()[0]}
        self.consumer = {"FunctionName": template.function("consumer")[0]}
        self.sweeper = {"FunctionName": template.function("sweeper")[0]}
        self.table = {"TableName": template.table()[0]}
        self.service = {"service": template.environment("consumer")["POWERTOOLS_SERVICE_NAME"]}
        self.visibility: int = queue["VisibilityTimeout"]
        self.max_receive_count: int = queue["RedrivePolicy"]["maxReceiveCount"]
