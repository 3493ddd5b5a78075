"""Receives the events of a deployed acker through a temporary rule and a temporary queue."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from botocore.exceptions import BotoCoreError, ClientError

from xorack.aws.client import error_code
from xorack.core.errors import StateError
from xorack.core.event import SOURCE

Event: TypeAlias = dict[str, Any]
"""An event as EventBridge delivers it."""

_WAIT_SECONDS = 1
_PROBE_SECONDS = 90
_TOGETHER = 10
"""The most messages of one call of SQS."""


@dataclass
class Subscription:
    """A rule and a queue with the same name.

    Attributes:
        name: The name of the rule and the queue.
        prefix: Only events of chains whose tags begin with this prefix are received.
        left_behind: The resources that could not be removed, a line each.
    """

    name: str
    bus_name: str
    client: Callable[[str], Any]
    prefix: str = ""
    left_behind: list[str] = field(default_factory=list)
    _url: str = ""

    @contextmanager
    def open(self) -> Iterator[Subscription]:
        """Make the rule and the queue, and remove both at the end."""
        with ExitStack() as stack:
            # The creation may be interrupted, so its removal is registered first.
            stack.callback(self._remove, "rule", self._remove_rule)
            rule_arn = self._make_rule()
            stack.callback(self._remove, "queue", self._remove_queue)
            self._make_queue(rule_arn)
            self._probe()
            yield self

    def receive(self) -> list[Event]:
        """Return the next events, at most ten. Return none after about a second without events."""
        try:
            received = self._poll()
            entries = [
                {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
                for number, message in enumerate(received)
            ]
            if entries:
                self.client("sqs").delete_message_batch(QueueUrl=self._url, Entries=entries)
        except (ClientError, BotoCoreError):
            time.sleep(_WAIT_SECONDS)  # the events stay in the queue until the next call
            return []
        events = (json.loads(message["Body"]) for message in received)
        return [event for event in events if event["source"] == SOURCE]

    @property
    def _rule(self) -> dict[str, str]:
        return {"Rule": self.name, "EventBusName": self.bus_name}

    def _make_rule(self) -> str:
        tag = [{"prefix": self.prefix}] if self.prefix else [{"exists": True}]
        pattern = json.dumps({"source": [SOURCE, self.name], "detail": {"tag": tag}})
        text = "temporary: made by the command line of xorack"
        where = {"Name": self.name, "EventBusName": self.bus_name, "Description": text}
        return str(self.client("events").put_rule(**where, EventPattern=pattern)["RuleArn"])

    def _make_queue(self, rule_arn: str) -> None:
        _, partition, _, region, account, _ = rule_arn.split(":", 5)
        queue_arn = f"arn:{partition}:sqs:{region}:{account}:{self.name}"
        statement = {
            "Effect": "Allow",
            "Principal": {"Service": "events.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": queue_arn,
            "Condition": {"ArnEquals": {"aws:SourceArn": rule_arn}},
        }
        # The policy is set at the creation, because a later change may take effect after a minute.
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        attributes = {"Policy": policy, "MessageRetentionPeriod": "86400"}
        made = self.client("sqs").create_queue(QueueName=self.name, Attributes=attributes)
        self._url = made["QueueUrl"]
        targets = [{"Id": "queue", "Arn": queue_arn}]
        answer = self.client("events").put_targets(**self._rule, Targets=targets)
        if answer.get("FailedEntryCount"):
            reason = answer["FailedEntries"][0].get("ErrorMessage")
            raise StateError(f"the rule {self.name} rejects its queue as a target: {reason}")

    def _probe(self) -> None:
        """Publish test events until ten arrive, because a new rule may take a minute to work."""
        entry = {"EventBusName": self.bus_name, "Source": self.name, "DetailType": "probe"}
        entry["Detail"] = json.dumps({"tag": f"{self.prefix}probe"})
        deadline = time.monotonic() + _PROBE_SECONDS
        while time.monotonic() < deadline:
            self.client("events").put_events(Entries=[entry] * _TOGETHER)
            arrived = 0
            # At first, some servers of SQS may not know a new queue.
            with suppress(self.client("sqs").exceptions.QueueDoesNotExist):
                while messages := self._poll():
                    arrived += len(messages)
                    if arrived >= _TOGETHER:
                        return  # `receive` deletes test events that are delivered again
        raise StateError(
            f"no event reached the queue {self.name} within {_PROBE_SECONDS} s: check that "
            f"events.amazonaws.com may send to queues of this account, and that the bus "
            f"{self.bus_name} is in this account"
        )

    def _poll(self) -> list[Any]:
        limits = {"MaxNumberOfMessages": _TOGETHER, "WaitTimeSeconds": _WAIT_SECONDS}
        received = self.client("sqs").receive_message(QueueUrl=self._url, **limits)
        return list(received.get("Messages", []))

    def _remove(self, kind: str, remove: Callable[[], object]) -> None:
        """Remove a resource if it exists. If that fails, remember its name."""
        try:
            remove()
        except (ClientError, BotoCoreError) as error:
            code = error_code(error)
            if not code.endswith(("NonExistentQueue", "DoesNotExist", "NotFoundException")):
                self.left_behind.append(f"{kind} {self.name} ({error})")

    def _remove_rule(self) -> None:
        self.client("events").remove_targets(**self._rule, Ids=["queue"])
        self.client("events").delete_rule(Name=self.name, EventBusName=self.bus_name)

    def _remove_queue(self) -> None:
        sqs = self.client("sqs")
        sqs.delete_queue(QueueUrl=sqs.get_queue_url(QueueName=self.name)["QueueUrl"])
