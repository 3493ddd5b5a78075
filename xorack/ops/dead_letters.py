"""Dead-lettered messages: why the consumer gave up on them, and what to send back.

A message is dead-lettered for one of three reasons. It *failed*: the consumer could not process it
at any attempt; once the cause is fixed, it can. It was *rejected*: its chain was in the wrong state
for the request, and mostly still is. Or it is *malformed*: this version cannot parse it.

It is *expired* if it was first sent longer ago than finished chains are kept. Then its requests may
have been applied to a chain that is gone, and would start it again.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from dataclasses import dataclass
from typing import Any, Literal

from xorack.core.message import MAX_BODY_BYTES, pack, parse

__all__ = ["KINDS", "DeadMessage", "Kind"]

Kind = Literal["failed", "rejected", "malformed", "expired"]
KINDS: tuple[Kind, ...] = ("failed", "rejected", "malformed", "expired")
"""The kinds of dead-lettered messages, the one most worth another attempt first."""

_FAILED = "failed at every attempt: the consumer's log says why"
_MAX_AGAIN = MAX_BODY_BYTES - 64
"""Limit of a body that is sent again: the attribute ``sent_at`` counts, too."""
_MAX_UNPACKED = 8 * MAX_BODY_BYTES
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'(?:\.\.\.)?|"(?:[^"\\]|\\.)*"(?:\.\.\.)?""")
_CUT = re.compile(r"""(?<=: )b?(?:'[^']{70,}|"[^"]{70,})\.\.\.(?=,)""")
"""A long value in an error message: it is cut, and so has no quote at its end."""
_INDEX = re.compile(r"^requests\[\d+\]")


@dataclass(frozen=True)
class DeadMessage:
    """A message of the dead-letter queue.

    Attributes:
        queued_at: SQS's time of sending, milliseconds since the epoch. It is that of the first send
            if SQS moved the message to the dead-letter queue.
        sent_at: Time when it was first sent to the acker, milliseconds since the epoch.
        reason: The reason, without the values that differ between messages.
        tag: The tag of its first request; None if it has no valid request.
        bodies: The bodies to send back; several if the unpacked one is too large for a message.
        group: Its `MessageGroupId`, which the bodies keep.
    """

    id: str
    handle: str
    queued_at: int
    sent_at: int
    kind: Kind
    reason: str
    tag: str | None
    bodies: tuple[str, ...]
    group: str | None

    @classmethod
    def read(cls, message: dict[str, Any], oldest: int = 0) -> DeadMessage:
        """Read a message of SQS's ReceiveMessage, received with all its attributes.

        Args:
            message: The message.
            oldest: Messages that were first sent before this time are expired.
        """
        attributes = message.get("MessageAttributes", {})
        queued_at = int(message.get("Attributes", {}).get("SentTimestamp", 0))
        first_sent = attributes.get("sent_at", {}).get("StringValue", "")
        # Senders may err, but not even the first send was later than SQS says.
        valid = re.fullmatch("[0-9]{1,15}", first_sent)
        sent_at = min(int(first_sent), queued_at) if valid else queued_at
        reason = attributes.get("error", {}).get("StringValue")
        packed = attributes.get("encoding", {}).get("StringValue") == "gzip+base64"
        body = _unpack(message["Body"]) if packed else message["Body"]
        requests, invalid = ([], []) if body is None else parse(body)
        # Like the consumer: one valid request makes a message valid.
        kind: Kind = "malformed" if not requests else "failed" if reason is None else "rejected"
        if reason is None:
            reason = invalid[0].reason if invalid and not requests else _FAILED
        if sent_at < oldest:
            kind = "expired"
        bodies = [message["Body"] if body is None else body]
        if requests and len(bodies[0].encode("utf-8", "surrogatepass")) > _MAX_AGAIN:
            bodies = [*pack(requests), *(entry.body for entry in invalid)]
        return cls(
            message["MessageId"],
            message["ReceiptHandle"],
            queued_at,
            sent_at,
            kind,
            _QUOTED.sub("'…'", _CUT.sub("'…'", _INDEX.sub("requests[…]", reason))),
            requests[0].tag if requests else None,
            tuple(bodies),
            message.get("Attributes", {}).get("MessageGroupId"),
        )


def _unpack(body: str) -> str | None:
    """Decompress a body; None if it is invalid or far larger than any message."""
    try:
        unpacker = zlib.decompressobj(wbits=31)
        text = unpacker.decompress(base64.b64decode(body, validate=True), _MAX_UNPACKED)
        return text.decode() if unpacker.eof else None
    except (binascii.Error, ValueError, zlib.error):
        return None
