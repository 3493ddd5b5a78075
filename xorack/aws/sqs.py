"""SQS transport: requests to the queue, rejected ones to the dead-letter queue."""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError, InvalidRegionError, NoRegionError

from xorack.aws.client import NotAccepted, error_code, is_transient, make_client, send_entries
from xorack.aws.log import LOG
from xorack.aws.retry import RetryPolicy
from xorack.core.errors import ArgumentError, SendError
from xorack.core.message import MAX_BODY_BYTES, Rejected, pack
from xorack.core.ports import NO_TIME
from xorack.core.request import Request

__all__ = [
    "DeadLetterQueue",
    "SendReport",
    "group_id",
    "queue_client",
    "send",
    "send_bodies",
    "send_grouped",
    "send_packed",
    "send_with_attributes",
    "why_unreachable",
]

_REGION_OF_URL = re.compile(r"https://sqs(?:-fips)?\.([a-z0-9-]+)\.(?:amazonaws\.|api\.aws)")
_AWS_HOSTS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")
_ENTRIES = 10
"""Most entries of one SendMessageBatch; together they hold at most 1 MiB."""
_ERROR_BYTES = 1000
_CUT = " (the body is cut off)"
_GROUP_CHARACTERS = 128
"""Most characters of a message group's id; all are printable ASCII without blanks."""


def queue_client(queue_url: str, region: str | None = None, endpoint_url: str | None = None) -> Any:
    """Make a boto3 SQS client that reaches a queue, wherever its URL points.

    Args:
        queue_url: The queue.
        region: By default the one in the URL, or else that of the environment.
        endpoint_url: By default, for a queue outside AWS, the host in the URL.

    Raises:
        ArgumentError: The region is unknown or invalid, or the endpoint is invalid.
    """
    settings = {"region_name": region, "endpoint_url": endpoint_url}
    if match := _REGION_OF_URL.match(queue_url):
        settings["region_name"] = region or match[1]
    url = urlsplit(queue_url)
    known = os.environ.get("AWS_ENDPOINT_URL_SQS") or os.environ.get("AWS_ENDPOINT_URL")
    # boto3 takes the path of the URL alone.
    if not (endpoint_url or known or (url.hostname or "").endswith(_AWS_HOSTS)):
        settings["endpoint_url"] = f"{url.scheme}://{url.netloc}"
    try:
        return make_client("sqs", **{name: value for name, value in settings.items() if value})
    except NoRegionError:
        expected = "a region, as neither the queue's URL nor the environment names one"
        raise ArgumentError("region", None, expected) from None
    except InvalidRegionError:
        raise ArgumentError("region", region, "a region, such as eu-west-1") from None
    except ValueError:
        raise ArgumentError("endpoint_url", endpoint_url, "http(s)://HOST") from None


def why_unreachable(queue_url: str, client: Any) -> str | None:
    """Return why a queue cannot be reached; None if it can.

    A role that may send but not read attributes is trusted, and so is a queue that is too busy.
    """
    try:
        client.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["QueueArn"])
    except ClientError as error:
        code = error_code(error)
        if "NonExistentQueue" in code or "QueueDoesNotExist" in code:
            return f"there is no queue {queue_url}"
        return None if "Denied" in code or is_transient(error) else f"{queue_url}: {error}"
    except BotoCoreError as error:
        return f"{queue_url}: {error}"
    return None


@dataclass(frozen=True)
class SendReport:
    """The result of `send`.

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
    position: int
    body: str
    attributes: dict[str, Any]
    group: str | None = None

    @property
    def size(self) -> int:
        """Bytes as SQS counts them."""
        size = len(self.body.encode("utf-8", "surrogatepass"))
        for name, value in self.attributes.items():
            size += len(name) + len(value["DataType"]) + len(value["StringValue"].encode())
        return size


def group_id(name: str) -> str:
    """Return the ``MessageGroupId`` of a name: itself, or what SQS accepts of it with a hash.

    On a standard queue, groups make the queue fair: the backlog of one does not delay others.
    """
    if re.fullmatch(f"[!-~]{{1,{_GROUP_CHARACTERS}}}", name):
        return name
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return re.sub("[^!-~]", "_", name)[: _GROUP_CHARACTERS - 17] + "-" + digest


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
        requests: Any number, consumed lazily.
        client: A boto3 SQS client; by default one of the default credential chain.
        max_bytes: The limit of one message's body.
        policy: The limits of retries for messages that were not accepted.

    Raises:
        SendError: Some messages were not accepted. Send the same requests again under the same
            ids: those that arrived are not applied twice.
        ArgumentError: The queue URL is empty.
    """
    return send_grouped(queue_url, {None: requests}, client, max_bytes=max_bytes, policy=policy)


def send_grouped(
    queue_url: str,
    groups: Mapping[str | None, Iterable[Request]],
    client: Any = None,
    *,
    max_bytes: int = 250_000,
    policy: RetryPolicy | None = None,
) -> SendReport:
    """Send requests as `send` does, each in a message of its group.

    Args:
        queue_url: The queue.
        groups: The name of each group to its requests; None for requests of no group.
        client: A boto3 SQS client; by default one of the default credential chain.
        max_bytes: The limit of one message's body.
        policy: The limits of retries for messages that were not accepted.
    """
    count = 0

    def counted(requests: Iterable[Request]) -> Iterator[Request]:
        nonlocal count
        for request in requests:
            count += 1
            yield request

    bodies = (
        (body, group)
        for group, requests in groups.items()
        for body in pack(counted(requests), max_bytes)
    )
    messages, size = _send(queue_url, _in_groups(bodies), client, policy)
    return SendReport(messages, count, size)


def send_packed(
    queue_url: str, bodies: Iterable[str], client: Any = None, *, group: str | None = None
) -> tuple[int, int]:
    """Send bodies that `xorack.core.message.pack` made, all of one group; see `send`.

    Returns:
        The number of messages, and of the bytes of their bodies.
    """
    return _send(queue_url, _in_groups((body, group) for body in bodies), client, None)


def send_with_attributes(
    queue_url: str,
    messages: Iterable[tuple[str, Mapping[str, str]]],
    client: Any = None,
    *,
    group: str | None = None,
    policy: RetryPolicy | None = None,
) -> int:
    """Send bodies of any content to any standard queue, each with message attributes.

    Args:
        queue_url: The queue.
        messages: Bodies, each with the values of its attributes of type String; consumed lazily.
        client: A boto3 SQS client; by default one of the default credential chain.
        group: The group of all messages; by default none.
        policy: The limits of retries for messages that were not accepted.

    Returns:
        The number of messages.

    Raises:
        SendError: Some messages were not accepted. Others may have arrived.
    """
    id = None if group is None else group_id(group)
    entries = (_Message(n, body, _strings(**v), id) for n, (body, v) in enumerate(messages))
    return _send(queue_url, entries, client, policy)[0]


def _in_groups(bodies: Iterable[tuple[str, str | None]]) -> Iterator[_Message]:
    for position, (body, group) in enumerate(bodies):
        yield _Message(position, body, {}, None if group is None else group_id(group))


def _send(
    queue_url: str, messages: Iterable[_Message], client: Any, policy: RetryPolicy | None
) -> tuple[int, int]:
    """Send messages; return the number of them and of their bytes."""
    if not isinstance(queue_url, str) or not queue_url:
        raise ArgumentError("queue_url", queue_url, "the URL of an SQS queue")
    client = make_client("sqs") if client is None else client
    policy = policy or RetryPolicy(attempts=8)
    sent = size = 0
    for batch in _batches(messages):
        if failures := _send_batch(client, queue_url, batch, policy):
            unsent = [message.body for message in batch if message.position in failures]
            raise SendError(next(iter(failures.values())), queue_url, unsent)
        sent += len(batch)
        size += sum(message.size for message in batch)
    return sent, size


def send_bodies(
    queue_url: str,
    bodies: Sequence[tuple[str, int, str | None]],
    client: Any,
    *,
    policy: RetryPolicy,
) -> dict[int, str]:
    """Send bodies again, each with the time when it was first sent as the attribute ``sent_at``.

    Args:
        queue_url: The queue.
        bodies: Each body, when it was first sent, milliseconds since the epoch, and the
            ``MessageGroupId`` of its message, if any.
        client: A boto3 SQS client.
        policy: The limits of retries for messages that were not accepted.

    Returns:
        The bodies that were not accepted: position to reason.
    """
    failures: dict[int, str] = {}
    for batch in _batches(_sent_again(n, *entry) for n, entry in enumerate(bodies)):
        failures.update(_send_batch(client, queue_url, batch, policy))
    return failures


def _sent_again(position: int, body: str, sent_at: int, group: str | None) -> _Message:
    message = _Message(position, body, _sent_at(sent_at), group)
    # A malformed body at SQS's limit cannot be split: it goes without its time.
    return message if message.size <= MAX_BODY_BYTES else _Message(position, body, {}, group)


def _sent_at(time: int | None) -> dict[str, Any]:
    """Return the message attribute that keeps the time when a message was first sent."""
    return {} if time is None else {"sent_at": {"DataType": "Number", "StringValue": str(time)}}


def _strings(**values: str | None) -> dict[str, Any]:
    """Return message attributes of type String, without those that are None."""
    return {
        name: {"DataType": "String", "StringValue": value}
        for name, value in values.items()
        if value
    }


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
    """Send one batch; return the messages that were not accepted: position to reason."""

    def call(messages: Mapping[int, _Message]) -> dict[int, NotAccepted]:
        entries = [
            {
                "Id": str(position),
                "MessageBody": message.body,
                "MessageAttributes": message.attributes,
                **({} if message.group is None else {"MessageGroupId": message.group}),
            }
            for position, message in messages.items()
        ]
        response = client.send_message_batch(QueueUrl=queue_url, Entries=entries)
        return {
            int(entry["Id"]): NotAccepted(
                f"{entry.get('Code')}: {entry.get('Message')}", bool(entry.get("SenderFault"))
            )
            for entry in response.get("Failed", [])
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
            client: A boto3 SQS client; by default one of the default credential chain.
            policy: The limits of retries for messages that were not accepted.
        """
        self.queue_url = queue_url
        self.client = make_client("sqs") if client is None else client
        self.policy = policy or RetryPolicy(attempts=5)

    def send(self, rejected: Sequence[Rejected]) -> list[int]:
        """See `xorack.core.ports.DeadLetters.send`.

        Batches for which the policy leaves no time are not sent, and returned: this is better
        than an invocation that is cut off.
        """
        unsent: dict[int, str] = {}
        for batch in _batches(_dead_letter(*entry) for entry in enumerate(rejected)):
            if self.policy.time_left() <= 0:
                unsent.update({message.position: NO_TIME for message in batch})
            else:
                unsent.update(_send_batch(self.client, self.queue_url, batch, self.policy))
        if unsent:
            extra = {"failures": len(unsent), "why": next(iter(unsent.values()))}
            LOG.error("rejected requests not sent", extra=extra)
        return sorted(unsent)


def _dead_letter(position: int, rejected: Rejected) -> _Message:
    """Make the message of a rejected request, with its reason and origin as attributes."""
    reason = rejected.reason.encode("ascii", "backslashreplace")[:_ERROR_BYTES].decode()
    origin = _strings(error=reason, sender=rejected.sender, message_id=rejected.message_id)
    attributes = {**origin, **_sent_at(rejected.sent_at)}
    message = _Message(position, rejected.body, attributes)
    if message.size <= MAX_BODY_BYTES:
        return message
    # A body at SQS's limit leaves no room for the reason.
    data = rejected.body.encode("utf-8", "surrogatepass")
    text = base64.b64encode(gzip.compress(data, mtime=0)).decode()
    packed = _Message(position, text, attributes | _strings(encoding="gzip+base64"))
    if packed.size <= MAX_BODY_BYTES:
        return packed
    # SQS would keep it without a reason, after all of its attempts.
    attributes |= _strings(error=f"{reason[: _ERROR_BYTES - len(_CUT)]}{_CUT}")
    room = MAX_BODY_BYTES - _Message(position, "…", attributes).size
    return _Message(position, data[:room].decode(errors="ignore") + "…", attributes)
