"""Tags of chains that an event starts. All deliveries of the event have the same tag."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import unquote_plus

from xorack.core.checks import MAX_TAG_BYTES
from xorack.core.errors import ArgumentError
from xorack.core.strict_json import read_json

_MAX_LAYERS: Final = 8
"""The most layers that are read. S3's notification through SNS in an SQS message has six."""


def event_tag(event: Mapping[str, Any]) -> str | None:
    """Return the tag of the chain that an event starts, for `Tracker.start`.

    All deliveries of the event have the same tag, so a second start has no effect.

    Args:
        event: An event or a record of S3, SNS, SQS or EventBridge. If the body of an SQS message
            contains such an event, the innermost event counts. The tag is ``bucket/key/sequencer``
            for S3, even through EventBridge; ``sns/message id``; ``sqs/message id``; or
            ``source/event id``. If it has more than 1,024 bytes, a hash replaces its end.

    Returns:
        The tag. None for ``s3:TestEvent``, which S3 sends when its notifications are set up. This
        message has no object, so start no chain.

    Raises:
        ArgumentError: The event is of another kind, or has several records.
    """
    for layer in reversed(list(layers(event))):
        if layer.get("Event") == "s3:TestEvent" and "Bucket" in layer:
            return None
        # A sender may put anything into a body, so an incomplete layer is not an event, and is
        # skipped.
        with suppress(KeyError, TypeError, AttributeError, UnicodeEncodeError):
            if tag := _tag(layer):
                return _shortened(tag)
    raise ArgumentError("event", event, "one event or record of S3, SNS, SQS or EventBridge")


def _tag(layer: Mapping[str, Any]) -> str | None:
    if isinstance(s3 := layer.get("s3"), Mapping):
        return _object(s3, unquote_plus)
    if "detail-type" in layer:
        if layer.get("source") == "aws.s3" and (tag := _object(layer.get("detail"), str)):
            return tag
        # Raises TypeError unless both values are texts.
        return "/".join((layer["source"], layer["id"]))
    if _is_sqs(layer) and (message_id := layer.get("messageId") or layer.get("MessageId")):
        return f"sqs/{message_id}"
    return f"sns/{layer['MessageId']}" if _is_sns(layer) else None


def _object(event: Any, decode: Any) -> str | None:
    """Return the name of one version of an object; None without an object or a sequencer."""
    with suppress(KeyError, TypeError, AttributeError):
        entry = event["object"]
        if sequencer := entry.get("sequencer"):
            return f"{event['bucket']['name']}/{decode(entry['key'])}/{sequencer}"
    return None


def _shortened(tag: str) -> str:
    data = tag.encode()
    if len(data) <= MAX_TAG_BYTES:
        return tag
    digest = hashlib.sha256(data).hexdigest()[:32]  # Node has no BLAKE2b of this size
    return data[: MAX_TAG_BYTES - len(digest) - 1].decode(errors="ignore") + "/" + digest


def layers(event: Mapping[str, Any], *, bodies: bool = True) -> Iterator[Mapping[str, Any]]:
    """Yield an event and the events inside it, outermost first.

    The iteration ends at several records, or at a value that is not a JSON object. With ``bodies``,
    it also yields content that the event's sender wrote. This is the body of a message of SQS or
    SNS, the data of a record of Kinesis or Kafka, or the ``detail`` of an event.
    """
    layer: Any = event
    for _ in range(_MAX_LAYERS):
        if isinstance(layer, str):
            try:
                layer = read_json(layer)
            except ValueError:
                return
        if not isinstance(layer, Mapping):
            return
        yield layer
        records = layer.get("Records")
        if isinstance(records, list) and len(records) == 1:
            layer = records[0]
        elif "Sns" in layer and not _is_sqs(layer):
            layer = layer["Sns"]
        else:
            layer = _body(layer) if bodies else None


def _body(layer: Mapping[str, Any]) -> Any:
    """Return the content that the sender of an event wrote, a text or an object; else None."""
    if _is_sqs(layer):
        return layer.get("body", layer.get("Body"))
    if _is_sns(layer):
        return layer["Message"]
    if isinstance(kinesis := layer.get("kinesis"), Mapping):
        return _decoded(kinesis.get("data"))
    if {"topic", "offset", "value"} <= layer.keys():  # a record of Kafka
        return _decoded(layer["value"])
    return layer.get("detail") if {"detail-type", "source", "id"} <= layer.keys() else None


def _decoded(data: Any) -> str | None:
    with suppress(TypeError, ValueError):  # the data is not text in base64
        return base64.b64decode(data, validate=True).decode()
    return None


def _is_sqs(layer: Mapping[str, Any]) -> bool:
    # Test events often lack a receipt handle.
    by_lambda = layer.get("eventSource") == "aws:sqs"
    return by_lambda or "receiptHandle" in layer or "ReceiptHandle" in layer


def _is_sns(layer: Mapping[str, Any]) -> bool:
    return layer.get("Type") == "Notification" and {"MessageId", "Message"} <= layer.keys()
