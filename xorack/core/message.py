"""Messages that carry requests over the queue.

The format is a contract (docs/protocol.md): JSON in UTF-8, stamps in standard base64, one message
carries one or more requests for any chains. Pure: no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from xorack.core.errors import InvalidRequest, shown
from xorack.core.request import Request, read_at_once

__all__ = ["MAX_BODY_BYTES", "VERSION", "Parsed", "Rejected", "pack", "parse", "rejected_body"]

VERSION = 1
"""Version of the message format."""
MAX_BODY_BYTES = 1024 * 1024
"""Most bytes of one SQS message."""
MAX_REQUESTS = 20_000
"""No message within 1 MiB holds more valid requests than this."""


class Rejected(NamedTuple):
    """Something that was asked and is not done.

    Attributes:
        body: A message body that holds just this: for the dead-letter queue.
        reason: Why, one line that names the field; of several requests, the first's.
        held: How many requests it holds; 1 for a message that is refused whole.
    """

    body: str
    reason: str
    held: int = 1


class Parsed(NamedTuple):
    """What a message holds: the requests, and what of it was refused."""

    requests: list[Request]
    refused: list[Rejected]


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
"""Made once: `json.loads` with an option makes one each time."""
_scan: Callable[[str, int], tuple[Any, int]] = vars(_DECODER)["scan_once"]
_SHALLOW = 100
_APART = 100
"""Wrong requests of a message that get a letter each. The rest gets one together: 40 KB of rubbish
would be 20,000 letters otherwise, and keep an invocation from the others' messages."""


def _body(*raws: object) -> str:
    """A message of raw requests."""
    return json.dumps({"version": VERSION, "requests": raws}, separators=(",", ":"))


def rejected_body(request: Request) -> str:
    """The body that carries one refused request to the dead-letter queue.

    Args:
        request: The request as it was read.

    Returns:
        A message body, JSON in ASCII.
    """
    return _body(request.to_json())


def parse(body: str) -> Parsed:
    """Read a message. Never raises: whatever is wrong comes back as refused.

    A request that is wrong is refused alone, beyond a hundred together with the others that are
    wrong; a message that is wrong as such (not JSON, nested too deep, another version, no list of
    requests, too many of them) is refused whole.

    Args:
        body: The SQS message's body.

    Returns:
        The requests in their order, and what was refused with the reasons.
    """
    requests: list[Request] = []
    refused: list[Rejected] = []
    try:
        raws = _raw_requests(body)
        for raw in raws:
            if (read := read_at_once(raw)) is None:
                break
            requests.append(read)
        else:
            return Parsed(requests, refused)
        _check_depth(body, raws)
    except InvalidRequest as error:
        return Parsed([], [Rejected(body if isinstance(body, str) else str(body), str(error))])
    others: list[object] = []
    why = ""
    for index, raw in enumerate(raws[len(requests) :], len(requests)):
        try:
            requests.append(read_at_once(raw) or Request.from_json(raw))
        except InvalidRequest as error:
            if len(refused) < _APART:
                refused.append(Rejected(_body(raw), f"requests[{index}].{error}"))
                continue
            why = why or f"requests[{index}].{error}"
            others.append(raw)
    if others:
        if len(others) > 1:
            why += f" (and {len(others) - 1} more of this message)"
        refused.append(Rejected(_body(*others), why, len(others)))
    return Parsed(requests, refused)


def _decoded(body: str) -> Any:
    """What a body holds: by the scanner itself, if there is nothing around it to be looked at."""
    try:
        message, end = _scan(body, 0)
    except StopIteration:
        end = -1
    return message if end == len(body) else _DECODER.decode(body)


def _raw_requests(body: object) -> list[object]:
    """The elements of a message's ``requests``."""
    if not isinstance(body, str):
        raise InvalidRequest("body", body, "a string of JSON")
    try:
        message = _decoded(body)
    except RecursionError:
        raise InvalidRequest("body", body, "JSON nested less deep") from None
    except ValueError as error:
        raise InvalidRequest("body", body, f"JSON ({shown(str(error))[1:-1]})") from None
    if not isinstance(message, dict):
        raise InvalidRequest("body", message, 'an object {"version": 1, "requests": [...]}')
    version = message.get("version")
    if isinstance(version, bool) or version != VERSION:
        raise InvalidRequest("version", version, str(VERSION))
    raws: Any = message.get("requests")
    if len(message) != 2 or raws is None:
        for field, value in message.items():
            if field not in ("version", "requests"):
                raise InvalidRequest(shown(field)[1:-1], value, "no such field: version, requests")
    if not isinstance(raws, list) or not 1 <= len(raws) <= MAX_REQUESTS:
        raise InvalidRequest("requests", raws, f"a list of 1 to {MAX_REQUESTS} requests")
    return raws


def _check_depth(body: str, raws: list[object]) -> None:
    """Refuse what is deep enough to be read and too deep to be written again.

    What has few brackets is not deep, and to write it again takes a fifth of the time of reading.
    """
    if body.count("{") + body.count("[") > _SHALLOW:
        try:
            json.dumps(raws)
        except RecursionError:
            raise InvalidRequest("body", body, "JSON nested less deep") from None


_HEAD = '{"version":1,"requests":['
_TAIL = "]}"


def pack(requests: Iterable[Request], max_bytes: int = 250_000) -> Iterator[str]:
    """Pack requests into as few messages as their order allows.

    Args:
        requests: Any number, read as they come.
        max_bytes: The most bytes of one body. A single request may exceed it, up to the 1 MiB of
            SQS; no valid request is larger than that.

    Yields:
        Message bodies, JSON in ASCII, so one byte a character. Nothing for no requests.

    Raises:
        InvalidRequest: ``max_bytes`` is not within 1,024 and 1,048,576.
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
