"""Dead-lettered messages: why the consumer gave up on them, and what to send back.

A message is dead-lettered for one of three reasons. It *failed*: the consumer could not process it
at any attempt; once the cause is fixed, it can. It was *rejected*: its chain was in the wrong state
for the request, and mostly still is. Or it is *malformed*: this version cannot parse it.
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

Kind = Literal["failed", "rejected", "malformed"]
KINDS: tuple[Kind, ...] = ("failed", "rejected", "malformed")
"""The kinds of dead-lettered messages, the one most worth another attempt first."""

_FAILED = "failed at every attempt: the consumer's log says why"
_MAX_UNPACKED = 8 * MAX_BODY_BYTES
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'(?:\.\.\.)?|"(?:[^"\\]|\\.)*"(?:\.\.\.)?""")
_CUT = re.compile(r"""(?<=: )b?(?:'[^']{70,}|"[^"]{70,})\.\.\.(?=,)""")
"""A long value in an error message: it is cut, and so has no quote at its end."""
_INDEX = re.compile(r"^requests\[\d+\]")


@dataclass(frozen=True)
class DeadMessage:
    """A message of the dead-letter queue.

    Attributes:
        sent_at: Arrival in the dead-letter queue, milliseconds since 1970.
        reason: The reason, without the values that differ between messages.
        tag: The tag of its first request; None if it has no valid request.
        packed: True if the body is compressed.
        bodies: The bodies to send back; several if the unpacked one is too large for a message.
    """

    id: str
    handle: str
    sent_at: int
    kind: Kind
    reason: str
    tag: str | None
    packed: bool
    bodies: tuple[str, ...]

    @classmethod
    def read(cls, message: dict[str, Any]) -> DeadMessage:
        """Read a message of SQS's ReceiveMessage, received with all its attributes."""
        attributes = message.get("MessageAttributes", {})
        reason = attributes.get("error", {}).get("StringValue")
        packed = attributes.get("encoding", {}).get("StringValue") == "gzip+base64"
        body = _unpack(message["Body"]) if packed else message["Body"]
        requests, invalid = ([], []) if body is None else parse(body)
        # Like the consumer: one valid request makes a message valid.
        kind: Kind = "malformed" if not requests else "failed" if reason is None else "rejected"
        if reason is None:
            reason = invalid[0].reason if invalid and not requests else _FAILED
        bodies = [message["Body"] if body is None else body]
        if packed and len(bodies[0].encode("utf-8", "surrogatepass")) > MAX_BODY_BYTES:
            bodies = list(pack(requests)) or [message["Body"]]
        return cls(
            message["MessageId"],
            message["ReceiptHandle"],
            int(message.get("Attributes", {}).get("SentTimestamp", 0)),
            kind,
            _QUOTED.sub("'…'", _CUT.sub("'…'", _INDEX.sub("requests[…]", reason))),
            requests[0].tag if requests else None,
            packed,
            tuple(bodies),
        )


def _unpack(body: str) -> str | None:
    """Decompress a body; None if it is invalid or far larger than any message."""
    try:
        unpacker = zlib.decompressobj(wbits=31)
        text = unpacker.decompress(base64.b64decode(body, validate=True), _MAX_UNPACKED)
        return text.decode() if unpacker.eof else None
    except (binascii.Error, ValueError, zlib.error):
        return None
