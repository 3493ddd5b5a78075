"""Records of SQS, Kinesis, DynamoDB Streams and Kafka: their tokens and their order.

After a failure, Lambda sends a stream's records again, beginning with the failed record. So later
records of the same shard, partition or FIFO group must not be handled before the failed record.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextlib import suppress
from typing import Any, Final

from xorack.core.errors import ArgumentError

NAME: Final = "xorack"
"""The name of the attribute, the header or the field that contains the token."""

_KINDS: Final = {
    "aws:sqs": "SQS",
    "aws:kinesis": "KinesisDataStreams",
    "aws:dynamodb": "DynamoDBStreams",
    "aws:kafka": "Kafka",
    "SelfManagedKafka": "Kafka",
}
"""The names of the sources of events in Powertools."""


def records_of(event: Any) -> tuple[str, list[dict[str, Any]]]:
    """Return the source of an event, by its name in Powertools, and its records in their order.

    Raises:
        ArgumentError: The event is not from a source for which Lambda reads batch item failures.
    """
    records: Any = None
    sources: set[Any] = set()
    with suppress(AttributeError, KeyError, TypeError):  # the event has another form
        if isinstance(event, list):  # EventBridge Pipes pass only the records
            records, sources = event, {record.get("eventSource") for record in event}
            sources -= {"aws:kinesis"}  # EventBridge Pipes pass Kinesis records in another form
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
        "DynamoDB Streams; use step_of for other events"
    )
    raise ArgumentError("event", event, expected)


def ordering_key(record: Mapping[str, Any]) -> Hashable | None:
    """Return the key of the records that must stay in order; None if a record has no order."""
    if "topic" in record:
        return record["topic"], record.get("partition")
    if record.get("eventSource") != "aws:sqs":
        # A batch has records of one shard. Only Kinesis names the shard.
        return str(record["eventID"]).partition(":")[0] if "kinesis" in record else "shard"
    if str(record.get("eventSourceARN")).endswith(".fifo"):
        return str(record["attributes"]["MessageGroupId"])
    return None


def attribute_of(layer: Mapping[str, Any]) -> Any:
    """Return the token's value in message attributes, attributes of an item, or Kafka headers."""
    change = layer.get("dynamodb")
    item = change.get("NewImage") if isinstance(change, Mapping) else None
    # These are the forms of messages in Lambda, in SQS's API, and in items of DynamoDB.
    for attributes in (layer.get("messageAttributes"), layer.get("MessageAttributes"), item):
        attribute = attributes.get(NAME) if isinstance(attributes, Mapping) else None
        if isinstance(attribute, Mapping):
            texts = (attribute.get(key) for key in ("stringValue", "StringValue", "Value", "S"))
            return next(filter(None, texts), attribute)
    return _header(layer.get("headers")) if "topic" in layer else None


def _header(headers: Any) -> Any:
    """Return the header of a Kafka record. As in Kafka's clients, the last one of a name counts."""
    value = None
    for header in headers if isinstance(headers, list) else ():
        if isinstance(header, Mapping):
            value = header.get(NAME, value)
    # The bytes are signed if they come from Java. A value that is not a list of bytes stays.
    with suppress(TypeError):
        return value and bytes(number & 0xFF for number in value)
    return value
