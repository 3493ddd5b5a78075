"""Words that travel by SQS: stamp requests to the queue, refused ones to the dead-letter queue."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xorack.aws.client import NotTaken, make_client, send_entries
from xorack.core.errors import InvalidRequest, SendFailed
from xorack.core.message import MAX_BODY_BYTES, Rejected, pack
from xorack.core.request import Request
from xorack.core.retry import RetryPolicy

__all__ = ["DeadLetterQueue", "SendReport", "send", "send_bodies"]

_ENTRIES = 10
"""Most entries of one SendMessageBatch; together they hold at most 1 MiB."""
_ERROR_BYTES = 1000


@dataclass(frozen=True)
class SendReport:
    """What was sent.

    Attributes:
        messages: SQS messages.
        requests: Requests in them.
        bytes: Bytes of their bodies.
    """

    messages: int
    requests: int
    bytes: int


@dataclass(frozen=True)
class _Message:
    """A message to send."""

    position: int
    body: str
    attributes: dict[str, Any]

    @property
    def size(self) -> int:
        """Bytes that SQS counts."""
        size = len(self.body.encode("utf-8", "surrogatepass"))
        for name, value in self.attributes.items():
            size += len(name) + len(value["DataType"]) + len(value["StringValue"].encode())
        return size


def send(
    queue_url: str,
    requests: Iterable[Request],
    client: Any = None,
    *,
    max_bytes: int = 250_000,
    policy: RetryPolicy | None = None,
) -> SendReport:
    """Send requests to the acker's queue, packed into as few messages as possible.

    Args:
        queue_url: The queue (the stack's output ``QueueUrl``).
        requests: Any number, read as they are sent.
        client: A boto3 SQS client; one of the default chain if None.
        max_bytes: The most bytes of one message's body.
        policy: When to try again what was not accepted.

    Returns:
        What was sent.

    Raises:
        SendFailed: Some messages were not accepted. Send the same requests again, under the same
            ids: those that arrived are not applied twice.
    """
    if not isinstance(queue_url, str) or not queue_url:
        raise InvalidRequest("queue_url", queue_url, "the URL of an SQS queue")
    client = make_client("sqs") if client is None else client
    messages = requests_sent = size = 0
    counted = _Counter(requests)
    bodies = (
        _Message(position, body, {})
        for position, body in enumerate(pack(counted, max_bytes=max_bytes))
    )
    for batch in _batches(bodies):
        failures = _send_batch(client, queue_url, batch, policy or RetryPolicy(attempts=8))
        if failures:
            unsent = [message.body for message in batch if message.position in failures]
            raise SendFailed(queue_url, next(iter(failures.values())), unsent)
        messages += len(batch)
        size += sum(message.size for message in batch)
    requests_sent = counted.count
    return SendReport(messages, requests_sent, size)


def send_bodies(
    queue_url: str, bodies: Sequence[str], client: Any, *, policy: RetryPolicy
) -> dict[int, str]:
    """Send message bodies as they are.

    Args:
        queue_url: The queue.
        bodies: The bodies, each within the limits of SQS.
        client: A boto3 SQS client.
        policy: When to try again what was not accepted.

    Returns:
        What was not accepted: position -> why.
    """
    messages = (_Message(position, body, {}) for position, body in enumerate(bodies))
    problems: dict[int, str] = {}
    for batch in _batches(messages):
        problems.update(_send_batch(client, queue_url, batch, policy))
    return problems


class _Counter:
    """Counts what passes through."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self.requests = requests
        self.count = 0

    def __iter__(self) -> Iterator[Request]:
        for request in self.requests:
            self.count += 1
            yield request


def _batches(messages: Iterable[_Message]) -> Iterator[list[_Message]]:
    """Group messages by the limits of SendMessageBatch."""
    batch: list[_Message] = []
    size = 0
    for message in messages:
        if batch and (len(batch) == _ENTRIES or size + message.size > MAX_BODY_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += message.size
    if batch:
        yield batch


def _send_batch(
    client: Any, queue_url: str, batch: Sequence[_Message], policy: RetryPolicy
) -> dict[int, str]:
    """Send one batch, again what was not accepted.

    Returns:
        What is left: position -> why.
    """

    def call(left: Mapping[int, _Message]) -> dict[int, NotTaken]:
        answer = client.send_message_batch(
            QueueUrl=queue_url,
            Entries=[
                {
                    "Id": str(position),
                    "MessageBody": message.body,
                    "MessageAttributes": message.attributes,
                }
                for position, message in left.items()
            ],
        )
        return {
            int(entry["Id"]): NotTaken(
                f"{entry.get('Code')}: {entry.get('Message')}", bool(entry.get("SenderFault"))
            )
            for entry in answer.get("Failed", [])
        }

    return send_entries({message.position: message for message in batch}, call, policy)


class DeadLetterQueue:
    """A `xorack.core.ports.DeadLetters` over an SQS queue."""

    def __init__(
        self, queue_url: str, client: Any = None, *, policy: RetryPolicy | None = None
    ) -> None:
        """Use a queue.

        Args:
            queue_url: The dead-letter queue.
            client: A boto3 SQS client; one of the default chain if None.
            policy: When to try again what was not accepted.
        """
        self.queue_url = queue_url
        self.client = make_client("sqs") if client is None else client
        self.policy = policy or RetryPolicy(attempts=5)

    def send(self, refused: Sequence[Rejected]) -> list[int]:
        """See `xorack.core.ports.DeadLetters.send`.

        What the policy leaves no time for is not sent, and told: better than to be cut off, with
        whatever else came along.
        """
        messages = [_dead_letter(position, letter) for position, letter in enumerate(refused)]
        unsent = [m.position for m in messages if m.size > MAX_BODY_BYTES]
        fitting = (message for message in messages if message.size <= MAX_BODY_BYTES)
        for batch in _batches(fitting):
            if self.policy.time_left() <= 0:
                unsent.extend(message.position for message in batch)
            else:
                unsent.extend(_send_batch(self.client, self.queue_url, batch, self.policy))
        return sorted(unsent)


def _dead_letter(position: int, letter: Rejected) -> _Message:
    """The message that carries a refused request, with the reason in its attribute ``error``."""
    reason = letter.reason.encode("ascii", "backslashreplace")[:_ERROR_BYTES].decode()
    attributes = {"error": {"DataType": "String", "StringValue": reason}}
    message = _Message(position, letter.body, attributes)
    if message.size <= MAX_BODY_BYTES:
        return message
    # A body that fills SQS's limit has no room for the reason beside it.
    packed = gzip.compress(letter.body.encode("utf-8", "surrogatepass"), mtime=0)
    attributes["encoding"] = {"DataType": "String", "StringValue": "gzip+base64"}
    return _Message(position, base64.b64encode(packed).decode(), attributes)
