"""A subscriber to a stack's events as any other system: a rule and a queue."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import uuid4

from xorack.errors import LocalError
from xorack.local.deploy import Stack
from xorack.local.embedded import Client
from xorack.local.isolation import REGION


def arn_of(queue_url: str) -> str:
    """Return the ARN of an emulator's queue."""
    account, name = queue_url.split("/")[-2:]
    return f"arn:aws:sqs:{REGION}:{account}:{name}"


def subscribe(stack: Stack, detail_types: Sequence[str] = ("acked", "failed")) -> str:
    """Subscribe to the stack's events as any other system would: with a rule and a queue.

    Returns:
        URL of the queue that gets the events from now on.
    """
    sqs, events = stack.client("sqs"), stack.client("events")
    name = f"subscriber-{uuid4().hex[:8]}"
    url = sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "60"})["QueueUrl"]
    events.put_rule(
        Name=name,
        EventBusName=stack.bus_name,
        EventPattern=json.dumps({"source": ["xorack"], "detail-type": list(detail_types)}),
    )
    target = {"Id": "queue", "Arn": arn_of(url)}
    answer = events.put_targets(Rule=name, EventBusName=stack.bus_name, Targets=[target])
    if answer.get("FailedEntryCount"):
        raise LocalError(f"cannot subscribe: {answer['FailedEntries'][0]['ErrorMessage']}")
    return str(url)


def drain(queue_url: str, client: Client, **until: Any) -> Iterator[dict[str, Any]]:
    """Yield the events of a subscriber's queue, as EventBridge delivers them; see `messages`."""
    return (json.loads(message["Body"]) for message in messages(queue_url, client, **until))


def messages(
    queue_url: str,
    client: Client,
    *,
    wait_seconds: float = 0.0,
    until: Callable[[], bool] = lambda: False,
) -> Iterator[dict[str, Any]]:
    """Receive the messages of a queue, and delete each batch after its last message.

    Ends after `wait_seconds` without a message, or once `until` returns True. `until` is called
    before each poll, about once a second.
    """
    deadline = time.monotonic() + wait_seconds
    while not until():
        answer = client.receive_message(
            QueueUrl=queue_url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=1 if wait_seconds else 0,
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=["All"],
        )
        received = answer.get("Messages", [])
        yield from received
        if received:
            entries = [
                {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
                for number, message in enumerate(received)
            ]
            client.delete_message_batch(QueueUrl=queue_url, Entries=entries)
            deadline = time.monotonic() + wait_seconds
        elif time.monotonic() >= deadline:
            return
