"""Tags of chains that start from an event: equal for every delivery of the event."""

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
"""S3's notification by SNS in an SQS message has six."""


def event_tag(event: Mapping[str, Any]) -> str | None:
    """Return the tag of the chain that an event starts, for `Tracker.start`.

    Every delivery of the event has the same tag, so a second start has no effect.

    Args:
        event: An event or a record of S3, SNS, SQS or EventBridge, also one in the body of an SQS
            message. The tag names the innermost: ``bucket/key/sequencer`` of S3, also by
            EventBridge; ``sns/message id``; ``sqs/message id``; ``source/event id``. Of a tag above
            1,024 bytes, the end is a hash.

    Returns:
        The tag. None of ``s3:TestEvent``, which S3 sends when its notifications are set up: there
        is nothing to process, so start no chain.

    Raises:
        ArgumentError: The event is of none of these kinds, or has several records.
    """
    for layer in reversed(list(layers(event))):
        if layer.get("Event") == "s3:TestEvent" and "Bucket" in layer:
            return None
        # What only looks like an event names nothing: its sender may put anything into a body.
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
        return "/".join((layer["source"], layer["id"]))  # texts, or it names nothing
    if _is_sqs(layer) and (message_id := layer.get("messageId") or layer.get("MessageId")):
        return f"sqs/{message_id}"
    return f"sns/{layer['MessageId']}" if _is_sns(layer) else None


def _object(of: Any, decode: Any) -> str | None:
    """Return the name of one version of an object; None if there is none, or no sequencer."""
    with suppress(KeyError, TypeError, AttributeError):
        entry = of["object"]
        if sequencer := entry.get("sequencer"):
            return f"{of['bucket']['name']}/{decode(entry['key'])}/{sequencer}"
    return None


def _shortened(tag: str) -> str:
    data = tag.encode()
    if len(data) <= MAX_TAG_BYTES:
        return tag
    digest = hashlib.sha256(data).hexdigest()[:32]  # Node has no BLAKE2b of this size
    return data[: MAX_TAG_BYTES - len(digest) - 1].decode(errors="ignore") + "/" + digest


def layers(event: Mapping[str, Any], *, bodies: bool = True) -> Iterator[Mapping[str, Any]]:
    """Yield an event and what it wraps, outermost first, up to several records or no JSON object.

    With ``bodies``, also what the event's sender wrote: the body of a message of SQS or SNS, the
    data of a record of Kinesis or Kafka, the ``detail`` of an event.
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
    """Return what the sender of an event wrote: text or an object; None for anything else."""
    if _is_sqs(layer):
        return layer.get("body", layer.get("Body"))
    if _is_sns(layer):
        return layer["Message"]
    if isinstance(kinesis := layer.get("kinesis"), Mapping):
        return _decoded(kinesis.get("data"))
    if {"topic", "offset", "value"} <= layer.keys():  # of Kafka
        return _decoded(layer["value"])
    return layer.get("detail") if {"detail-type", "source", "id"} <= layer.keys() else None


def _decoded(data: Any) -> str | None:
    with suppress(TypeError, ValueError):  # it is not the base64 of a text
        return base64.b64decode(data, validate=True).decode()
    return None


def _is_sqs(layer: Mapping[str, Any]) -> bool:
    by_lambda = layer.get("eventSource") == "aws:sqs"  # test events often have no receipt handle
    return by_lambda or "receiptHandle" in layer or "ReceiptHandle" in layer


def _is_sns(layer: Mapping[str, Any]) -> bool:
    return layer.get("Type") == "Notification" and {"MessageId", "Message"} <= layer.keys()
