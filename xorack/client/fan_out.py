"""Fan-out: sends messages with the tokens of a step's children to SQS, Kinesis or Kafka."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from xorack.aws.kinesis import put_records
from xorack.aws.sqs import make_message, send_messages
from xorack.client.names import Part
from xorack.client.records import NAME
from xorack.client.token import Token
from xorack.client.tracker import Step
from xorack.core.errors import ArgumentError, SendError

_FLUSH_SECONDS = 60
_Made: TypeAlias = Iterable[tuple[Any, "Token | None"]]


def fan_out(
    step: Step | None,
    messages: Mapping[Any, Any] | Iterable[tuple[Part | tuple[Part, ...], Any]],
    queue_url: str | None = None,
    client: Any = None,
    *,
    stream: str | None = None,
    topic: str | None = None,
    group: str | None = None,
) -> int:
    """Start a child of a step for each message, and send the messages with their tokens.

    Call this function within the step. It sends the messages at once. The step's stamp is sent at
    the step's end.

    Args:
        step: The step. None sends the messages without tokens.
        messages: Bodies by the names of the children, as a mapping or as pairs. A name is a part,
            or a tuple of parts, as in `Step.child`. A body that is not a string is sent as JSON.
            For Kinesis, each body is a mapping, and the token becomes one of its fields.
        queue_url: A queue of SQS, unless you pass a stream or a topic. A FIFO queue needs
            ``group``. A FIFO queue then recognises a repeated message by its unit, not by its body.
        client: A boto3 client of SQS or Kinesis; by default one with the default credentials. For
            Kafka, a ``Producer`` of confluent-kafka.
        stream: The name or the ARN of a Kinesis stream.
        topic: A Kafka topic.
        group: The message group of SQS; the partition key of Kinesis, by default the message's
            number; or the key of Kafka, by default none.

    Returns:
        The number of messages.

    Raises:
        SendError: Some messages were not accepted. Let the step raise, and run it again.
        ArgumentError: Two messages have the same name, an element is not a pair, or a body is not
            JSON. The group is invalid. There is not exactly one queue, stream or topic, or no
            client for the topic.
    """
    places = {"queue_url": queue_url, "stream": stream, "topic": topic}
    if sum(place is not None for place in places.values()) != 1:
        raise ArgumentError("queue_url", places, "one of queue_url, stream and topic")
    made = _messages(step, messages)
    if stream is not None:
        return put_records(stream, _fields(step, made, group), client)
    if topic is not None:
        return _produce(topic, _texts(step, made), client, group)
    is_fifo = str(queue_url).endswith(".fifo")
    if group is None and is_fifo:
        raise ArgumentError("group", group, "the message group, because a FIFO queue needs it")
    if not (group is None or isinstance(group, str)):
        raise ArgumentError("group", group, "the message group, a string")
    entries = (
        make_message(
            body,
            group,
            {NAME: None if token is None else str(token)},
            _deduplication_id(token) if is_fifo else None,
        )
        for body, token in _texts(step, made)
    )
    return send_messages(queue_url or "", entries, client).messages


def _deduplication_id(token: Token | None) -> str:
    """Return the id by which a FIFO queue recognises a repeated message.

    By default the queue hashes only the body, so it would drop one of two children with equal
    bodies. The same unit in the same chains is the same message. Messages without a token all
    differ.
    """
    if token is None:
        return uuid.uuid4().hex
    return hashlib.sha256(token.canonical).hexdigest()[:32]


def _messages(step: Step | None, messages: Any) -> _Made:
    """Yield the body of each message with its token."""
    expected = "a mapping of names to bodies, or pairs of a name and a body"
    for pair in messages.items() if isinstance(messages, Mapping) else messages:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ArgumentError("messages", step.name_for_errors(pair) if step else pair, expected)
        child, body = pair
        parts = child if isinstance(child, tuple) else (child,)
        yield body, None if step is None else step.child(*parts)


def _texts(step: Step | None, made: _Made) -> Iterator[tuple[str, Token | None]]:
    """Yield the text of each message with its token."""
    for body, token in made:
        yield body if isinstance(body, str) else _json(step, body), token


def _json(step: Step | None, body: Any) -> str:
    """Return a body as JSON. ``NaN`` is refused too, because other languages cannot read it."""
    try:
        return json.dumps(body, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        visible = step.name_for_errors(body) if step else body
        expected = "a body that is a string or a JSON value"
        raise ArgumentError("messages", visible, expected) from None


def _fields(step: Step | None, made: _Made, group: str | None) -> Iterator[dict[str, Any]]:
    """Yield entries of PutRecords. The token is a field of the JSON data."""
    for number, (body, token) in enumerate(made):
        if not isinstance(body, Mapping):
            visible = step.name_for_errors(body) if step else body
            raise ArgumentError("messages", visible, "a mapping, to which a token is added")
        data = _json(step, {**body, **({} if token is None else {NAME: token.to_json()})})
        yield {"Data": data.encode(), "PartitionKey": group or str(number)}


def _produce(topic: str, made: _Made, producer: Any, key: str | None) -> int:
    """Send messages with a producer of confluent-kafka, and wait until the broker has them."""
    if not hasattr(producer, "produce"):
        raise ArgumentError("client", producer, "a Producer of confluent-kafka, for a topic")
    failures: list[str] = []
    arrived = sent = 0

    def delivered(error: Any, message: Any) -> None:
        nonlocal arrived
        arrived += error is None
        failures.extend([str(error)] if error else [])

    for body, token in made:
        sent += 1
        headers = None if token is None else {NAME: str(token).encode()}
        value = body.encode()
        while True:
            try:
                producer.produce(topic, value, key=key, headers=headers, on_delivery=delivered)
                break
            except BufferError:  # the producer's buffer is full, so wait for deliveries
                producer.poll(1)
    unanswered = producer.flush(_FLUSH_SECONDS)
    # With delivery.report.only.error, the producer reports no successful deliveries.
    if arrived < sent and (unanswered or failures):
        why = failures[0] if failures else f"no answer in {_FLUSH_SECONDS} seconds"
        count = min(sent - arrived, unanswered + len(failures))
        raise SendError(f"topic {topic}: {count} of {sent} messages not sent: {why}")
    return sent
