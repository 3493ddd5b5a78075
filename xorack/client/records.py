"""Records of SQS, Kinesis, DynamoDB Streams and Kafka: where a token is, and what keeps its order.

Lambda sends a stream's records again from the first that failed, so what is behind it in its lane
must not be handled before.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextlib import suppress
from typing import Any, Final

from xorack.core.errors import ArgumentError

NAME: Final = "xorack"
"""The name of the attribute, the header or the field that holds the token."""

_KINDS: Final = {
    "aws:sqs": "SQS",
    "aws:kinesis": "KinesisDataStreams",
    "aws:dynamodb": "DynamoDBStreams",
    "aws:kafka": "Kafka",
    "SelfManagedKafka": "Kafka",
}
"""The names that Powertools has for the sources of events."""


def records_of(event: Any) -> tuple[str, list[dict[str, Any]]]:
    """Return the kind of an event's source, as Powertools names it, and its records in order.

    Raises:
        ArgumentError: The event is none of a source whose failures Lambda reads.
    """
    records: Any = None
    sources: set[Any] = set()
    with suppress(AttributeError, KeyError, TypeError):  # it has another shape
        if isinstance(event, list):  # EventBridge Pipes give the records alone
            records, sources = event, {record.get("eventSource") for record in event}
            sources -= {"aws:kinesis"}  # a pipe gives them in another shape
        elif isinstance(partitions := event.get("records"), Mapping):
            records = [record for partition in partitions.values() for record in partition]
            sources = {event.get("eventSource")}
        else:
            records = event["Records"]
            sources = {record.get("eventSource") for record in records}
    if len(sources) == 1 and (kind := _KINDS.get(next(iter(sources)))):
        return kind, records
    expected = (
        "an event of SQS, Kinesis, DynamoDB Streams or Kafka, or a pipe's records of SQS or "
        "DynamoDB Streams; use step_of for others"
    )
    raise ArgumentError("event", event, expected)


def ordering_key(record: Mapping[str, Any]) -> Hashable | None:
    """Return the lane whose order a record keeps; None if there is none, as in standard queues."""
    if "topic" in record:
        return record["topic"], record.get("partition")
    if record.get("eventSource") != "aws:sqs":
        # A batch is of one shard. Kinesis names it, DynamoDB does not.
        return str(record["eventID"]).partition(":")[0] if "kinesis" in record else "shard"
    if str(record.get("eventSourceARN")).endswith(".fifo"):
        return str(record["attributes"]["MessageGroupId"])
    return None


def attribute_of(layer: Mapping[str, Any]) -> Any:
    """Return the token's message attribute, an attribute of an item, or a header of Kafka."""
    change = layer.get("dynamodb")
    item = change.get("NewImage") if isinstance(change, Mapping) else None
    # As Lambda gives messages, as the API does, as SNS does.
    for attributes in (layer.get("messageAttributes"), layer.get("MessageAttributes"), item):
        attribute = attributes.get(NAME) if isinstance(attributes, Mapping) else None
        if isinstance(attribute, Mapping):
            texts = (attribute.get(key) for key in ("stringValue", "StringValue", "Value", "S"))
            return next(filter(None, texts), attribute)
    return _header(layer.get("headers")) if "topic" in layer else None


def _header(headers: Any) -> Any:
    """Return the header of Kafka: as in its clients, the last of its name counts."""
    found = None
    for header in headers if isinstance(headers, list) else ():
        if isinstance(header, Mapping):
            found = header.get(NAME, found)
    with suppress(TypeError):  # not the numbers of bytes, of which Java's have a sign
        return found and bytes(number & 0xFF for number in found)
    return found
