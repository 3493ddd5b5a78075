"""What a run sees from outside: the events by a temporary rule and queue, and its dead letters."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from measure.options import TAG
from xorack.aws.client import error_code
from xorack.core.errors import XorAckError
from xorack.core.event import SOURCE
from xorack.ops.redrive import Redrive

_RECEIVERS = 4
_WAIT_SECONDS = 1
_PROBE_SECONDS = 90
_MAX_DEAD_LETTERS = 1_000_000


class MeasureFailed(XorAckError):
    """The measurement cannot continue; the message names the cause for the user."""


@dataclass(frozen=True)
class Event:
    """An event as the subscriber's queue delivered it."""

    kind: str  # its `detail-type`
    detail: Mapping[str, Any]
    received_at: float  # its first copy's arrival by this machine's clock, in seconds


@dataclass
class Events:
    """The events of a run: those that differ, by tag. Threads may share it."""

    by_tag: dict[str, list[Event]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, kind: str, detail: Mapping[str, Any], received_at: float) -> None:
        """Add an event, unless it is a copy."""
        with self._lock:
            events = self.by_tag.setdefault(str(detail.get("tag")), [])
            if all((event.kind, event.detail) != (kind, detail) for event in events):
                events.append(Event(kind, detail, received_at))


@dataclass
class Leftovers:
    """Names of what a clean-up could not remove."""

    lines: list[str] = field(default_factory=list)

    def remove(self, name: str, remove: Callable[[], object]) -> None:
        """Remove a thing unless it does not exist; remember its name if that fails."""
        try:
            remove()
        except (XorAckError, ClientError, BotoCoreError) as error:
            code = error_code(error)
            if not code.endswith(("NonExistentQueue", "DoesNotExist", "NotFoundException")):
                self.lines.append(f"{name} ({error})")


@contextmanager
def subscribed(
    run: str, bus_name: str, client: Callable[[str], Any], leftovers: Leftovers
) -> Iterator[Events]:
    """Receive the events of a run by a rule and a queue of its name.

    ``leftovers`` gets what cannot be removed at the end. Raises MeasureFailed if the rule does not
    deliver.
    """
    bus, sqs = client("events"), client("sqs")
    target = {"Rule": run, "EventBusName": bus_name}
    pattern = {"source": [SOURCE, run], "detail": {"tag": [{"prefix": f"{run}/"}]}}

    def remove_rule() -> None:
        bus.remove_targets(**target, Ids=["measure"])
        bus.delete_rule(Name=run, EventBusName=bus_name)

    def remove_queue() -> None:
        sqs.delete_queue(QueueUrl=sqs.get_queue_url(QueueName=run)["QueueUrl"])

    with ExitStack() as stack:
        # Each removal comes before its creation: that may be interrupted.
        stack.callback(leftovers.remove, f"rule {run} of the bus {bus_name}", remove_rule)
        rule = {"EventPattern": json.dumps(pattern), "Description": "temporary: python -m measure"}
        rule_arn = bus.put_rule(Name=run, EventBusName=bus_name, **rule)["RuleArn"]
        _, partition, _, region, account, _ = str(rule_arn).split(":", 5)
        queue_arn = f"arn:{partition}:sqs:{region}:{account}:{run}"
        stack.callback(leftovers.remove, f"queue {run}", remove_queue)
        # The policy is there from the beginning: a later one may take a minute.
        attributes = {
            "Policy": _policy(queue_arn, rule_arn),
            "MessageRetentionPeriod": "86400",
            "VisibilityTimeout": "60",
        }
        url = sqs.create_queue(QueueName=run, Attributes=attributes)["QueueUrl"]
        answer = bus.put_targets(**target, Targets=[{"Id": "measure", "Arn": queue_arn}])
        if answer.get("FailedEntryCount"):
            reason = answer["FailedEntries"][0].get("ErrorMessage")
            raise MeasureFailed(f"the rule {run} rejects its queue as a target: {reason}")
        _probe(run, bus_name, bus, sqs, url)
        events, stop = Events(), threading.Event()
        pool = stack.enter_context(ThreadPoolExecutor(_RECEIVERS))
        stack.callback(stop.set)
        for _ in range(_RECEIVERS):
            pool.submit(_receive, events, stop, sqs, url)
        yield events


def _policy(queue_arn: str, rule_arn: str) -> str:
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": queue_arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": rule_arn}},
    }
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def _probe(run: str, bus_name: str, bus: Any, sqs: Any, url: str) -> None:
    """Publish events of another source until ten arrive together: a new rule takes a while."""
    entry = {"EventBusName": bus_name, "Source": run, "DetailType": "probe"}
    entry["Detail"] = json.dumps({"tag": f"{run}/probe"})
    deadline = time.monotonic() + _PROBE_SECONDS
    while time.monotonic() < deadline:
        bus.put_events(Entries=[entry] * 10)
        arrived = 0
        # A new queue may not be known everywhere either.
        with suppress(sqs.exceptions.QueueDoesNotExist):
            while messages := _poll(sqs, url):
                arrived += len(messages)
                if arrived >= 10:
                    return  # `_receive` deletes those that come again
    raise MeasureFailed(
        f"no event reached the queue {run} within {_PROBE_SECONDS} s: may this account's "
        f"events.amazonaws.com send to it, and is the bus {bus_name} in this account?"
    )


def _poll(sqs: Any, url: str) -> list[Any]:
    """Receive up to ten messages."""
    limits = {"MaxNumberOfMessages": 10, "WaitTimeSeconds": _WAIT_SECONDS}
    return list(sqs.receive_message(QueueUrl=url, **limits).get("Messages", []))


def _receive(events: Events, stop: threading.Event, sqs: Any, url: str) -> None:
    while not stop.is_set():
        try:
            messages, now = _poll(sqs, url), time.time()
            for message in messages:
                event = json.loads(message["Body"])
                if event["source"] == SOURCE:
                    events.add(event["detail-type"], event["detail"], now)
            receipts = (message["ReceiptHandle"] for message in messages)
            entries = [{"Id": str(n), "ReceiptHandle": one} for n, one in enumerate(receipts)]
            if entries:
                sqs.delete_message_batch(QueueUrl=url, Entries=entries)
        except (ClientError, BotoCoreError):
            stop.wait(1)  # the events stay in the queue


def take_dead_letters(run: str, queue_url: str, sqs: Any) -> list[tuple[str, str]]:
    """Remove the dead-lettered messages of a run; return the tag and the reason of each."""
    queue = Redrive(queue_url, "", sqs)
    survey = queue.survey(limit=_MAX_DEAD_LETTERS, keep=_MAX_DEAD_LETTERS)
    # Not by a prefix of tags: a body that is not JSON has none.
    taken = [message for message in survey.messages if f'"tag":"{run}/' in message.body]
    survey.ids = {message.id for message in taken}
    if taken:
        queue.delete(survey)
    return [
        (tag, message.error or message.reason)
        for message in taken
        for tag in dict.fromkeys(TAG.findall(message.body))
    ]
