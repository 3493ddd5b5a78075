"""Sends requests to the queue, and rejected requests to the dead-letter queue."""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from botocore.exceptions import ClientError, InvalidRegionError, NoRegionError

from xorack.aws.client import (
    NotAccepted,
    batches,
    budget_of,
    error_code,
    is_transient_code,
    make_client,
    send_entries,
)
from xorack.aws.log import LOG
from xorack.aws.retry import RetryPolicy
from xorack.core.errors import ArgumentError, SendError
from xorack.core.message import MAX_BODY_BYTES, Rejected, SendReport, pack
from xorack.core.request import Request

Entry: TypeAlias = dict[str, Any]
"""An entry of SendMessageBatch without its id."""

CallAll: TypeAlias = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]

_REGION_OF_URL = re.compile(r"https://sqs(?:-fips)?\.([a-z0-9-]+)\.(?:amazonaws\.|api\.aws)")
_AWS_HOSTS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")
_ENTRIES = 10
"""The most entries of one SendMessageBatch. Together they have at most 1 MiB."""
_ERROR_BYTES = 1000
_CUT = " (the body is cut off)"
_TYPES = {str: "String", int: "Number"}
_GROUP_CHARACTERS = 128
"""The most characters of a message group's id. Each is printable ASCII and not a blank."""


def queue_client(queue_url: str, region: str | None = None, endpoint_url: str | None = None) -> Any:
    """Make a boto3 SQS client that reaches the queue of a URL, in AWS or elsewhere.

    The default region is the region in the URL, or else the region of the environment. For a queue
    outside AWS, the default endpoint is the host of the URL.

    Raises:
        ArgumentError: The region is unknown or invalid, or the endpoint is invalid.
    """
    settings = {"region_name": region, "endpoint_url": endpoint_url}
    if match := _REGION_OF_URL.match(queue_url):
        settings["region_name"] = region or match[1]
    url = urlsplit(queue_url)
    known = os.environ.get("AWS_ENDPOINT_URL_SQS") or os.environ.get("AWS_ENDPOINT_URL")
    # boto3 uses only the path of the URL, so another host has to be its endpoint.
    if not (endpoint_url or known or (url.hostname or "").endswith(_AWS_HOSTS)):
        settings["endpoint_url"] = f"{url.scheme}://{url.netloc}"
    try:
        return make_client("sqs", **{name: value for name, value in settings.items() if value})
    except NoRegionError:
        expected = "a region, as neither the queue's URL nor the environment names one"
        raise ArgumentError("region", None, expected) from None
    except InvalidRegionError as error:  # an invalid region may also come from the environment
        problem = f"expected a region such as eu-west-1: {error}"
        raise ArgumentError("region", problem=problem) from None
    except ValueError:
        raise ArgumentError("endpoint_url", endpoint_url, "http(s)://HOST") from None


def message_group_id(name: str) -> str:
    """Return the ``MessageGroupId`` for a name: the name, or its valid characters with a hash."""
    if re.fullmatch(f"[!-~]{{1,{_GROUP_CHARACTERS}}}", name):
        return name
    # Clients in all languages compute the same SHA-256.
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return re.sub("[^!-~]", "_", name)[: _GROUP_CHARACTERS - 17] + "-" + digest


def make_message(
    body: str,
    group: str | None = None,
    attributes: Mapping[str, str | int | None] | None = None,
    deduplication_id: str | None = None,
) -> Entry:
    """Make a message: an entry of SendMessageBatch without an id.

    Attributes that are None or an empty text are left out.
    """
    typed = {
        name: {"DataType": _TYPES[type(value)], "StringValue": str(value)}
        for name, value in (attributes or {}).items()
        if value not in (None, "")
    }
    grouped = {} if group is None else {"MessageGroupId": message_group_id(group)}
    if deduplication_id is not None:
        grouped["MessageDeduplicationId"] = deduplication_id
    return {"MessageBody": body, "MessageAttributes": typed, **grouped}


def size_of(message: Entry) -> int:
    size = len(message["MessageBody"].encode("utf-8", "surrogatepass"))
    for name, value in message["MessageAttributes"].items():
        size += len(name) + len(value["DataType"]) + len(value["StringValue"].encode())
    return size


def send(
    queue_url: str,
    requests: Iterable[Request | str],
    client: Any = None,
    *,
    group: Callable[[Any], str | None] | str | None = None,
    max_bytes: int = 250_000,
    policy: RetryPolicy | None = None,
) -> SendReport:
    """Send requests to the acker's queue, packed into as few messages as possible.

    Args:
        queue_url: The queue (the stack's output ``QueueUrl``).
        requests: Any number of requests or their JSON texts. They are consumed lazily, unless
            ``group`` is a function.
        client: A boto3 SQS client. By default, one with the default credentials is made.
        group: The name of the messages' group, or a function that returns the group of a request.
            A message has requests of one group. The backlog of one group does not delay others.
        max_bytes: The limit of one message's body.
        policy: The limits of retries for messages that were not accepted.

    Raises:
        SendError: Some messages were not accepted. Send the same requests again with the same ids.
            A request that arrives twice is applied once.
        ArgumentError: The queue URL is empty, or an element is not a request.
    """
    if isinstance(requests, (str, Mapping)) or not isinstance(requests, Iterable):
        raise ArgumentError("requests", requests, "an iterable of requests")
    counter = count()  # `number` counts the requests while they are consumed
    groups: dict[str | None, Iterable[Request | str]] = {}
    if callable(group):
        by_group: dict[str | None, list[Request | str]] = defaultdict(list)
        for request in requests:
            by_group[group(request)].append(request)
        groups.update(by_group)
    else:
        groups[group] = requests
    messages = (
        make_message(body, name)
        for name, part in groups.items()
        for body in pack((request for request, _ in zip(part, counter, strict=False)), max_bytes)
    )
    report = send_messages(queue_url, messages, client, policy)
    return report._replace(requests=next(counter))


def send_messages(
    queue_url: str,
    messages: Iterable[Entry],
    client: Any = None,
    policy: RetryPolicy | None = None,
) -> SendReport:
    """Send messages of `make_message` to any queue. Raises the errors of `send`."""
    if not isinstance(queue_url, str) or not queue_url:
        raise ArgumentError("queue_url", queue_url, "the URL of an SQS queue")
    client = make_client("sqs") if client is None else client
    policy = policy or RetryPolicy(attempts=8)
    sent = size = 0
    for batch in batches(messages, size_of, _ENTRIES, MAX_BODY_BYTES):
        if failures := _send_batch(client, queue_url, batch, policy):
            unsent = [batch[number]["MessageBody"] for number in failures]
            raise SendError(next(iter(failures.values())), queue_url, unsent)
        sent += len(batch)
        size += sum(map(size_of, batch))
    return SendReport(messages=sent, bytes=size)


def _send_batch(
    client: Any, queue_url: str, batch: Sequence[Entry], policy: RetryPolicy
) -> dict[int, str]:
    """Send one batch; return the messages that were not accepted: number to reason."""

    def call(messages: Mapping[int, Entry]) -> dict[int, NotAccepted]:
        entries = [{"Id": str(number), **entry} for number, entry in messages.items()]
        try:
            response = client.send_message_batch(QueueUrl=queue_url, Entries=entries)
        except ClientError as error:
            if len(entries) == 1 or not error_code(error).endswith("BatchRequestTooLong"):
                raise
            # Emulators, and AWS before August 2025, accept 256 KiB a call, so halve the call.
            numbers, half = [*messages], len(entries) // 2
            parts = [{n: messages[n] for n in part} for part in (numbers[:half], numbers[half:])]
            return {**call(parts[0]), **call(parts[1])}
        return {int(entry["Id"]): _not_accepted(entry) for entry in response.get("Failed", [])}

    failures = send_entries(dict(enumerate(batch)), call, policy, budget_of(client))
    return {number: failure.reason for number, failure in failures.items()}


def _not_accepted(entry: Mapping[str, Any]) -> NotAccepted:
    """Return why SQS did not accept an entry.

    Throttling is temporary, even if AWS calls it the sender's fault.
    """
    code = str(entry.get("Code"))
    permanent = bool(entry.get("SenderFault")) and not is_transient_code(code)
    return NotAccepted(f"{code}: {entry.get('Message')}", permanent)


def send_rejected(
    queue_url: str,
    client: Any,
    rejected: Sequence[Rejected],
    policy: RetryPolicy | None = None,
    call_all: CallAll = map,
) -> list[int]:
    """Send rejected requests to the dead-letter queue; return the positions of unsent requests.

    A failed call raises no error. ``call_all`` makes the calls, like ``map`` or in threads.
    """
    policy = policy or RetryPolicy(attempts=5)
    unsent: dict[int, str] = {}
    begin = 0
    calls = [*batches(map(_dead_letter, rejected), size_of, _ENTRIES, MAX_BODY_BYTES)]
    send = partial(_send_batch, client, queue_url, policy=policy)
    for batch, failures in zip(calls, call_all(send, calls), strict=True):
        unsent |= {begin + number: reason for number, reason in failures.items()}
        begin += len(batch)
    if unsent:
        extra = {"failures": len(unsent), "why": next(iter(unsent.values()))}
        LOG.error("rejected requests not sent", extra=extra)
    return sorted(unsent)


def _dead_letter(rejected: Rejected) -> Entry:
    """Make the message of a rejected request, with its reason and origin as attributes."""
    reason = rejected.reason.encode("ascii", "backslashreplace")[:_ERROR_BYTES].decode()
    attributes = {
        "error": reason,
        "sender": rejected.sender,
        "message_id": rejected.message_id,
        "sent_at": rejected.sent_at,
    }
    letter = make_message(rejected.body, None, attributes)
    if size_of(letter) <= MAX_BODY_BYTES:
        return letter
    # The body is almost as large as SQS permits, which leaves no room for the reason.
    data = rejected.body.encode("utf-8", "surrogatepass")
    packed = base64.b64encode(gzip.compress(data, mtime=0)).decode()
    letter = make_message(packed, None, {**attributes, "encoding": "gzip+base64"})
    if size_of(letter) <= MAX_BODY_BYTES:
        return letter
    # Otherwise SQS would dead-letter the message after all attempts, and without a reason.
    attributes["error"] = f"{reason[: _ERROR_BYTES - len(_CUT)]}{_CUT}"
    room = MAX_BODY_BYTES - size_of(make_message("…", None, attributes))
    return make_message(data[:room].decode(errors="ignore") + "…", None, attributes)
