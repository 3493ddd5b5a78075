"""The message format: JSON bodies that carry requests through the queue.

docs/protocol.md specifies it. A body is UTF-8 and has one or more requests for any chains. Stamps
are in standard base64.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from xorack.core.checks import unknown_field
from xorack.core.errors import ArgumentError, shown
from xorack.core.request import Request
from xorack.core.strict_json import MAX_DEPTH, integer_of, is_too_deep

VERSION = 1
"""Version of the message format."""
MAX_BODY_BYTES = 1024 * 1024
"""Limit of one SQS message."""
_HEAD = '{"version":1,"requests":['
_TAIL = "]}"
_SMALLEST = '{"op":"fail","tag":"t","id":"i"}'
MAX_REQUESTS = (MAX_BODY_BYTES - len(_HEAD + _TAIL) + 1) // len(_SMALLEST + ",")
"""31,774, because no message within 1 MiB holds more valid requests."""
_MESSAGE_FIELDS = {"version", "requests"}
_MAX_SEPARATE = 100
"""The most rejected requests of a message that become separate dead letters. The rest share one.
Otherwise 60 KB of invalid requests would become 30,000 dead letters and delay other messages."""

_ATTRIBUTE_BYTES = 4096
"""Bytes reserved for the reason and the origin of requests that share a dead letter."""


class Rejected(NamedTuple):
    """Rejected requests, as the dead-letter queue receives them.

    Attributes:
        body: A message body that holds exactly these requests.
        reason: One line that names the invalid field. For several requests, the field of the first
            request.
        request_count: The number of requests; 1 if the message was rejected entirely.
        sent_at, message_id, sender: Properties of the original message, if they are known.
    """

    body: str
    reason: str
    request_count: int = 1
    sent_at: int | None = None
    message_id: str | None = None
    sender: str | None = None


class SendReport(NamedTuple):
    """The numbers of messages and requests that were sent, and the bytes of the bodies."""

    messages: int = 0
    requests: int = 0
    bytes: int = 0


class Parsed(NamedTuple):
    """The valid requests of a message in their order, and the rejected requests."""

    requests: list[Request]
    rejected: list[Rejected]


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a dictionary of pairs, and reject repeated keys, which Python's decoder would accept."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        ((repeated, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ArgumentError(shown(repeated)[1:-1], "repeated", "each key once in an object")
    return fields


_STRICT = json.JSONDecoder(object_pairs_hook=_distinct, parse_int=integer_of)
_LENIENT = json.JSONDecoder(parse_int=integer_of)
"""Decodes any JSON. It finds the places where the requests of a message begin and end."""


def _body(texts: Iterable[str]) -> str:
    return _HEAD + ",".join(texts) + _TAIL


def _json(request: Request) -> str:
    if not isinstance(request, Request):
        raise ArgumentError("requests", request, "requests, or their JSON texts")
    return json.dumps(request.to_json(), separators=(",", ":"))


def reject(requests: Iterable[tuple[Request, str]]) -> list[Rejected]:
    """Return dead letters for requests of one message that chains rejected for these reasons."""
    return _rejected([(_json(request), reason) for request, reason in requests])


def parse(body: str, *, hide_values: bool = False) -> Parsed:
    """Parse a message. The result contains the rejected requests; the function never raises.

    A message is rejected entirely if it is not JSON of the right form. Otherwise each invalid
    request is rejected separately. After the first hundred, the other invalid requests share one
    dead letter. Rejected requests keep their text, including repeated keys and all digits.

    With ``hide_values``, the reasons do not quote values.
    """
    try:
        return Parsed([Request.from_json(raw) for raw in _raw_requests(_STRICT, body)], [])
    except ArgumentError:
        return _parse_each(body, hide_values)


def _parse_each(body: object, hide_values: bool) -> Parsed:
    """Parse a message request by request, because parsing it at once found an error."""

    def reason(error: ArgumentError) -> str:
        return error.without_value if hide_values else str(error)

    try:
        if isinstance(body, str) and is_too_deep(body):
            raise _too_deep(body)
        _raw_requests(_LENIENT, body)
        texts = _request_texts(str(body))
    except ArgumentError as error:
        return Parsed([], [Rejected(_encodable(str(body)), reason(error))])
    requests: list[Request] = []
    invalid: list[tuple[str, str]] = []
    for index, text in enumerate(texts):
        try:
            requests.append(Request.from_json(_decode(_STRICT.decode, text)))
        except ArgumentError as error:
            invalid.append((_encodable(text), f"requests[{index}].{reason(error)}"))
    return Parsed(requests, _rejected(invalid))


def _encodable(text: str) -> str:
    """Escape lone surrogates as JSON does, because UTF-8 cannot encode them."""
    return text.encode("utf-8", "backslashreplace").decode()


def _rejected(invalid: list[tuple[str, str]]) -> list[Rejected]:
    texts = [text for text, _ in invalid]
    rejected: list[Rejected] = []
    at = 0
    for group in (
        *([text] for text in texts[:_MAX_SEPARATE]),
        *_grouped(texts[_MAX_SEPARATE:], MAX_BODY_BYTES - _ATTRIBUTE_BYTES),
    ):
        reason = invalid[at][1]
        if len(group) > 1:
            reason += f" (and {len(group) - 1} more of this message)"
        rejected.append(Rejected(_body(group), reason, len(group)))
        at += len(group)
    assert at == len(invalid), "each rejected request is in one body"
    return rejected


def _decode(decode: Callable[..., Any], text: str, *position: int) -> Any:
    try:
        return decode(text, *position)
    except ArgumentError:
        raise
    except RecursionError:
        raise _too_deep(text) from None
    except ValueError as error:
        raise ArgumentError("body", text, f"JSON ({shown(str(error))[1:-1]})") from None


def _too_deep(text: str) -> ArgumentError:
    return ArgumentError("body", text, f"JSON that is nested at most {MAX_DEPTH} levels deep")


def _raw_requests(decoder: json.JSONDecoder, body: object) -> list[object]:
    """Decode a body and return the elements of its ``requests``."""
    if not isinstance(body, str):
        raise ArgumentError("body", body, "a string of JSON")
    message = _decode(decoder.decode, body)
    if not isinstance(message, dict):
        raise ArgumentError("body", message, 'an object {"version": 1, "requests": [...]}')
    version = message.get("version")
    if isinstance(version, bool) or version != VERSION:
        raise ArgumentError("version", version, str(VERSION))
    for field in message.keys() - _MESSAGE_FIELDS:
        raise unknown_field(field, message[field], "version, requests")
    raw_requests: Any = message.get("requests")
    if not isinstance(raw_requests, list) or not 1 <= len(raw_requests) <= MAX_REQUESTS:
        raise ArgumentError("requests", raw_requests, f"a list of 1 to {MAX_REQUESTS} requests")
    return raw_requests


def _request_texts(body: str) -> list[str]:
    """Return the text of each request in a body that `_raw_requests` accepted."""
    parts = list(_parts(body))
    names = [json.loads(name) for name in parts[::2]]
    fields = _distinct(list(zip(names, parts[1::2], strict=True)))
    return list(_parts(fields["requests"]))


def _parts(text: str) -> Iterator[str]:
    """Yield the text of each element of a JSON list, or of each key and value of an object."""
    at = _skip_space(text, 0)
    while text[at] not in "]}":
        start = _skip_space(text, at + 1)
        _, end = _decode(_LENIENT.raw_decode, text, start)
        yield text[start:end]
        at = _skip_space(text, end)


def _skip_space(text: str, at: int) -> int:
    while text[at] in " \t\n\r":
        at += 1
    return at


def pack(requests: Iterable[Request | str], max_bytes: int = 250_000) -> Iterator[str]:
    """Pack requests, or their JSON texts, into as few messages as their order permits.

    ``max_bytes`` limits a body: 1,024 to 1,048,576 bytes. A single request may exceed it, but no
    valid request exceeds the 1 MiB that SQS permits.
    """
    if not 1024 <= max_bytes <= MAX_BODY_BYTES:
        raise ArgumentError("max_bytes", max_bytes, f"1024 to {MAX_BODY_BYTES}")
    texts = (request if isinstance(request, str) else _json(request) for request in requests)
    yield from map(_body, _grouped(texts, max_bytes))


def _grouped(texts: Iterable[str], max_bytes: int) -> Iterator[list[str]]:
    """Group the texts of requests into bodies of limited size. A single text may exceed it."""
    group: list[str] = []
    size = len(_HEAD) + len(_TAIL)
    for text in texts:
        length = len(text) if text.isascii() else len(text.encode())
        if group and size + length > max_bytes:
            yield group
            group, size = [], len(_HEAD) + len(_TAIL)
        group.append(text)
        size += length + 1
    if group:
        yield group
