"""The message codec: JSON bodies that carry requests over the queue.

docs/protocol.md is the contract: UTF-8, stamps in standard base64, one or more requests a message,
for any chains.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from xorack.core.errors import InvalidRequest, shown
from xorack.core.request import Request

__all__ = ["MAX_BODY_BYTES", "VERSION", "Parsed", "Rejected", "pack", "parse", "rejected_body"]

VERSION = 1
"""Version of the message format."""
MAX_BODY_BYTES = 1024 * 1024
"""Limit of one SQS message."""
MAX_REQUESTS = 20_000
"""No message within 1 MiB holds more valid requests."""
_MESSAGE_FIELDS = {"version", "requests"}
_MAX_SEPARATE = 100
"""Invalid requests of a message that get a dead-lettered message each; the rest share one.
Otherwise 40 KB of invalid requests would become 20,000 messages and delay everything else."""


class Rejected(NamedTuple):
    """Requests that were rejected, as they go to the dead-letter queue.

    Attributes:
        body: A message body that holds just these requests.
        reason: The reason in one line, which names the field; the first request's if several.
        request_count: 1 for a message that is rejected whole.
        sent_at: Time when the message was first sent, milliseconds since the epoch, if known.
    """

    body: str
    reason: str
    request_count: int = 1
    sent_at: int | None = None


class Parsed(NamedTuple):
    """The valid requests of a message, in order, and the rejected ones."""

    requests: list[Request]
    rejected: list[Rejected]


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def _body(*raw_requests: object) -> str:
    return json.dumps({"version": VERSION, "requests": raw_requests}, separators=(",", ":"))


def rejected_body(request: Request) -> str:
    """Return the message body that carries one rejected request to the dead-letter queue."""
    return _body(request.to_json())


def parse(body: str) -> Parsed:
    """Parse a message. Never raises: the result holds what is invalid as rejected.

    An invalid request is rejected alone; beyond a hundred, together with the other invalid ones. A
    message that is invalid as such (not JSON, nested too deep, another version, no list of
    requests, too many of them) is rejected whole.

    Args:
        body: The body of an SQS message.
    """
    try:
        raw_requests = _read_body(body)
    except InvalidRequest as error:
        return Parsed([], [Rejected(body if isinstance(body, str) else str(body), str(error))])
    requests: list[Request] = []
    invalid: list[tuple[object, str]] = []
    for index, raw in enumerate(raw_requests):
        try:
            requests.append(Request.from_json(raw))
        except InvalidRequest as error:
            invalid.append((raw, f"requests[{index}].{error}"))
    if not invalid:
        return Parsed(requests, [])
    try:
        return Parsed(requests, _rejected(invalid))
    except RecursionError:
        # JSON may be shallow enough to be decoded and too deep to be encoded again.
        too_deep = InvalidRequest("body", body, "JSON nested less deep")
        return Parsed([], [Rejected(body, str(too_deep))])


def _rejected(invalid: list[tuple[object, str]]) -> list[Rejected]:
    rejected = [Rejected(_body(raw), reason) for raw, reason in invalid[:_MAX_SEPARATE]]
    if rest := invalid[_MAX_SEPARATE:]:
        reason = rest[0][1]
        if len(rest) > 1:
            reason += f" (and {len(rest) - 1} more of this message)"
        rejected.append(Rejected(_body(*(raw for raw, _ in rest)), reason, len(rest)))
    return rejected


def _read_body(body: object) -> list[object]:
    """Decode a body and return the elements of its ``requests``."""
    if not isinstance(body, str):
        raise InvalidRequest("body", body, "a string of JSON")
    try:
        message: Any = _DECODER.decode(body)
    except RecursionError:
        raise InvalidRequest("body", body, "JSON nested less deep") from None
    except ValueError as error:
        raise InvalidRequest("body", body, f"JSON ({shown(str(error))[1:-1]})") from None
    if not isinstance(message, dict):
        raise InvalidRequest("body", message, 'an object {"version": 1, "requests": [...]}')
    version = message.get("version")
    if isinstance(version, bool) or version != VERSION:
        raise InvalidRequest("version", version, str(VERSION))
    for field in message.keys() - _MESSAGE_FIELDS:
        name = shown(field)[1:-1]
        raise InvalidRequest(name, message[field], "no such field: version, requests")
    raw_requests: Any = message.get("requests")
    if not isinstance(raw_requests, list) or not 1 <= len(raw_requests) <= MAX_REQUESTS:
        raise InvalidRequest("requests", raw_requests, f"a list of 1 to {MAX_REQUESTS} requests")
    return raw_requests


_HEAD = '{"version":1,"requests":['
_TAIL = "]}"


def pack(requests: Iterable[Request], max_bytes: int = 250_000) -> Iterator[str]:
    """Pack requests into as few messages as their order allows.

    Args:
        requests: Any number, consumed lazily.
        max_bytes: The limit of one body, 1,024 to 1,048,576. A single request may exceed it; no
            valid request exceeds the 1 MiB of SQS.

    Yields:
        Message bodies: JSON in ASCII, one byte a character. Nothing for no requests.

    Raises:
        InvalidRequest: ``max_bytes`` is out of range.
    """
    if not 1024 <= max_bytes <= MAX_BODY_BYTES:
        raise InvalidRequest("max_bytes", max_bytes, f"1024 to {MAX_BODY_BYTES}")
    parts: list[str] = []
    size = len(_HEAD) + len(_TAIL)
    for request in requests:
        part = json.dumps(request.to_json(), separators=(",", ":"))
        if parts and (size + len(part) > max_bytes or len(parts) >= MAX_REQUESTS):
            yield _HEAD + ",".join(parts) + _TAIL
            parts, size = [], len(_HEAD) + len(_TAIL)
        parts.append(part)
        size += len(part) + 1
    if parts:
        yield _HEAD + ",".join(parts) + _TAIL
