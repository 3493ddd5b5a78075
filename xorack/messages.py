"""Requests, and the messages that carry them over the queue.

The format is a contract (docs/protocol.md): JSON in UTF-8, stamps in standard base64, one message
carries one or more requests for any chains. Pure: no I/O.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from xorack.errors import InvalidRequest, shown
from xorack.stamps import check_bytes

__all__ = [
    "MAX_BODY_BYTES",
    "MAX_DETAIL_BYTES",
    "MAX_TAG_BYTES",
    "VERSION",
    "Op",
    "Parsed",
    "Refused",
    "Request",
    "pack",
    "parse",
    "refused_body",
    "validate_stamp",
    "validate_tag",
]

Op = Literal["create", "stamp", "fail", "extend"]

VERSION = 1
"""Version of the message format."""
MAX_BODY_BYTES = 1024 * 1024
"""Most bytes of one SQS message."""
MAX_TAG_BYTES = 1024
MAX_ID_BYTES = 128
MAX_REASON_BYTES = 1024
MAX_DETAIL_BYTES = 4096
MAX_DETAIL_DEPTH = 64
MAX_STAMP_BYTES = 64 * 1024
MAX_COUNT = (1 << 63) - 1
MAX_TIMEOUT_SECONDS = 10 * 366 * 86400
MAX_REQUESTS = 20_000
"""No message within 1 MiB holds more valid requests than this."""

_FIELDS: dict[str, frozenset[str]] = {
    "create": frozenset({"stamp", "started", "finished", "timeout", "idle_timeout", "detail"}),
    "stamp": frozenset({"stamp", "started", "finished"}),
    "fail": frozenset({"reason"}),
    "extend": frozenset({"timeout"}),
}
_COMMON = frozenset({"op", "tag", "id"})


def _utf8(field: str, value: object, most: int, *, empty: bool = False) -> str:
    """A string of at most ``most`` UTF-8 bytes without NUL, or InvalidRequest."""
    least = 0 if empty else 1
    expected = f"a string of {least} to {most} UTF-8 bytes without NUL"
    if not isinstance(value, str):
        raise InvalidRequest(field, value, expected)
    try:
        length = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        raise InvalidRequest(field, value, f"{expected} or lone surrogates") from None
    if not least <= length <= most or "\0" in value:
        raise InvalidRequest(field, value, expected)
    return value


def validate_tag(tag: object) -> str:
    """Check a chain's tag.

    Args:
        tag: What was given.

    Returns:
        The tag: a non-empty string of at most 1,024 UTF-8 bytes, without NUL.

    Raises:
        InvalidRequest: It is not.
    """
    return _utf8("tag", tag, MAX_TAG_BYTES)


def validate_stamp(stamp: object) -> bytes:
    """Check a stamp.

    Args:
        stamp: What was given.

    Returns:
        The stamp, 1 to 65,536 bytes, not all zero.

    Raises:
        InvalidRequest: It is not.
    """
    stamp = bytes(check_bytes("stamp", stamp))
    if not 1 <= len(stamp) <= MAX_STAMP_BYTES:
        raise InvalidRequest("stamp", f"{len(stamp)} bytes", f"1 to {MAX_STAMP_BYTES} bytes")
    if not any(stamp):
        raise InvalidRequest("stamp", f"{len(stamp)} zero bytes", "at least one non-zero byte")
    return stamp


def _count(field: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
        raise InvalidRequest(field, value, f"a whole number from 0 to {MAX_COUNT}")
    return value


def _seconds(field: str, value: object) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not math.isfinite(value)
        or not 0 < value <= MAX_TIMEOUT_SECONDS
    ):
        raise InvalidRequest(field, value, f"seconds, above 0 and up to {MAX_TIMEOUT_SECONDS}")
    return value


def _deeper_than(value: object, depth: int) -> bool:
    """Whether JSON is nested deeper: what is read here must be readable wherever it goes."""
    level: list[object] = [value]
    for _ in range(depth):
        level = [
            child
            for parent in level
            if isinstance(parent, (dict, list))
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
        if not level:
            return False
    return any(isinstance(left, (dict, list)) for left in level)


def _detail(value: object) -> dict[str, Any]:
    expected = f"a JSON object of at most {MAX_DETAIL_BYTES} bytes, {MAX_DETAIL_DEPTH} deep"
    if not isinstance(value, Mapping) or _deeper_than(value, MAX_DETAIL_DEPTH):
        raise InvalidRequest("detail", value, expected)
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        length = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidRequest("detail", value, f"{expected}, without lone surrogates") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest("detail", value, f"{expected} ({shown(str(error))})") from None
    if length > MAX_DETAIL_BYTES:
        raise InvalidRequest("detail", f"{length} bytes", expected)
    return dict(value)


class _Fields:
    """A request while it is filled in.

    What is known to be right becomes a `Request` by a change of its class: to set ten fields of a
    frozen object takes three times as long.
    """

    __slots__ = (
        "detail",
        "finished",
        "id",
        "idle_timeout",
        "op",
        "reason",
        "stamp",
        "started",
        "tag",
        "timeout",
    )
    op: Op
    tag: str
    id: str
    stamp: bytes | None
    started: int
    finished: int
    timeout: float | None
    idle_timeout: float | None
    detail: dict[str, Any] | None
    reason: str | None


@dataclass(frozen=True, init=False)
class Request(_Fields):
    """One thing asked of a chain. Checked when it is made.

    Attributes:
        op: ``create``, ``stamp``, ``fail`` or ``extend``.
        tag: The chain: a non-empty string of at most 1,024 UTF-8 bytes, without NUL.
        id: The request's id, a string of 1 to 128 bytes, unique within its chain: a request
            takes effect once, however often it arrives.
        stamp: create and stamp: the bytes to XOR in, not all zero.
        started: create and stamp: how many units this starts.
        finished: create and stamp: how many units this finishes.
        timeout: create and extend: seconds from now until the chain fails if it is not acked.
        idle_timeout: create: seconds without any stamp until the chain fails.
        detail: create: a JSON object of at most 4 KiB, given back in the chain's events.
        reason: fail: why, at most 1,024 bytes.

    Raises:
        InvalidRequest: A field is wrong; the error names it, its value and what was expected.
    """

    __slots__ = ()
    op: Op
    tag: str
    id: str
    stamp: bytes | None
    started: int
    finished: int
    timeout: float | None
    idle_timeout: float | None
    detail: dict[str, Any] | None
    reason: str | None

    def __init__(
        self,
        op: Op,
        tag: str,
        id: str,
        stamp: bytes | None = None,
        started: int = 0,
        finished: int = 0,
        timeout: float | None = None,
        idle_timeout: float | None = None,
        detail: Mapping[str, Any] | None = None,
        reason: str | None = None,
    ) -> None:
        put = object.__setattr__
        if not isinstance(op, str) or op not in _FIELDS:
            raise InvalidRequest("op", op, "create, stamp, fail or extend")
        allowed = _FIELDS[op]
        put(self, "op", op)
        put(self, "tag", validate_tag(tag))
        put(self, "id", _utf8("id", id, MAX_ID_BYTES))
        if "stamp" in allowed:
            put(self, "stamp", validate_stamp(stamp))
            put(self, "started", _count("started", started))
            put(self, "finished", _count("finished", finished))
        else:
            given: object
            for field, given in (("stamp", stamp), ("started", started), ("finished", finished)):
                if given:
                    raise InvalidRequest(field, given, f"nothing: {op} has no such field")
            put(self, "stamp", None)
            put(self, "started", 0)
            put(self, "finished", 0)
        for field, given in (
            ("timeout", timeout),
            ("idle_timeout", idle_timeout),
            ("detail", detail),
            ("reason", reason),
        ):
            if given is not None and field not in allowed:
                raise InvalidRequest(field, given, f"nothing: {op} has no such field")
        put(self, "timeout", None if timeout is None else _seconds("timeout", timeout))
        put(
            self,
            "idle_timeout",
            None if idle_timeout is None else _seconds("idle_timeout", idle_timeout),
        )
        put(self, "detail", None if detail is None else _detail(detail))
        put(
            self,
            "reason",
            None if reason is None else _utf8("reason", reason, MAX_REASON_BYTES, empty=True),
        )

    @classmethod
    def create(
        cls,
        tag: str,
        id: str,
        stamp: bytes,
        *,
        started: int = 1,
        finished: int = 0,
        timeout: float | None = None,
        idle_timeout: float | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> Request:
        """A request that sets a chain up, with its root unit's stamp."""
        return cls("create", tag, id, stamp, started, finished, timeout, idle_timeout, detail, None)

    @classmethod
    def stamp_(
        cls, tag: str, id: str, stamp: bytes, *, started: int = 0, finished: int = 0
    ) -> Request:
        """A request that XORs a stamp in; with an underscore, as ``stamp`` is the field."""
        return cls("stamp", tag, id, stamp, started, finished)

    @classmethod
    def fail(cls, tag: str, id: str, reason: str | None = None) -> Request:
        """A request that fails a chain."""
        return cls("fail", tag, id, reason=reason)

    @classmethod
    def extend(cls, tag: str, id: str, timeout: float) -> Request:
        """A request that moves a chain's deadline to ``timeout`` seconds from its application."""
        return cls("extend", tag, id, timeout=timeout)

    def to_json(self) -> dict[str, Any]:
        """The request as it stands in a message: fields at their defaults are left out."""
        out: dict[str, Any] = {"op": self.op, "tag": self.tag, "id": self.id}
        if self.stamp is not None:
            out["stamp"] = base64.b64encode(self.stamp).decode("ascii")
        for field in ("started", "finished"):
            if value := getattr(self, field):
                out[field] = value
        for field in ("timeout", "idle_timeout", "detail", "reason"):
            value = getattr(self, field)
            if value is not None:
                out[field] = value
        return out

    @classmethod
    def from_json(cls, raw: object) -> Request:
        """Read a request out of a message.

        Args:
            raw: One element of a message's ``requests``.

        Returns:
            The request.

        Raises:
            InvalidRequest: It is not one; the error names the field.
        """
        if not isinstance(raw, dict):
            raise InvalidRequest("request", raw, "a JSON object")
        op = raw.get("op")
        if not isinstance(op, str) or op not in _FIELDS:
            raise InvalidRequest("op", op, "create, stamp, fail or extend")
        allowed = _FIELDS[op]
        for field, value in raw.items():
            if field not in allowed and field not in _COMMON:
                raise InvalidRequest(
                    shown(field)[1:-1],
                    value,
                    f"no such field: {op} has {', '.join(sorted(_COMMON | allowed))}",
                )
            if value is None:
                raise InvalidRequest(field, value, "a value, or no such field")
        for field in ("tag", "id", *(("stamp",) if "stamp" in allowed else ())):
            if field not in raw:
                raise InvalidRequest(field, "missing", f"a string: {op} needs it")
        fields = dict(raw)
        if "stamp" in raw:
            text = raw["stamp"]
            if not isinstance(text, str):
                raise InvalidRequest("stamp", text, "a string of standard base64")
            try:
                fields["stamp"] = base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError):
                raise InvalidRequest("stamp", text, "standard base64 (RFC 4648, section 4)") from (
                    None
                )
        return cls(**fields)


_from_base64: Callable[[str], bytes]
if sys.version_info >= (3, 11):
    # What `b64decode` does in the end, without a copy of the text before.
    _from_base64 = partial(binascii.a2b_base64, strict_mode=True)
else:
    _from_base64 = partial(base64.b64decode, validate=True)


def _read_at_once(raw: object) -> Request | None:
    """A request of the common kind, where nothing is wrong with it; None: look closer.

    Hardly any request is not a stamp, or a create without options, with tag and id in ASCII. To
    read it takes half the time this way; what is said of the others, `Request.from_json` says.
    """
    if type(raw) is not dict:
        return None
    op: Op
    if (asked := raw.get("op")) == "stamp":
        op = "stamp"
    elif asked == "create":
        op = "create"
    else:
        return None
    tag, id, text = raw.get("tag"), raw.get("id"), raw.get("stamp")
    if not (
        type(tag) is str
        and 0 < len(tag) <= MAX_TAG_BYTES
        and tag.isascii()
        and "\0" not in tag
        and type(id) is str
        and 0 < len(id) <= MAX_ID_BYTES
        and id.isascii()
        and "\0" not in id
        and type(text) is str
    ):
        return None
    started = finished = 0
    fields = 4
    if "started" in raw:
        started = raw["started"]
        fields += 1
    if "finished" in raw:
        finished = raw["finished"]
        fields += 1
    if (
        len(raw) != fields
        or type(started) is not int
        or type(finished) is not int
        or not 0 <= started <= MAX_COUNT
        or not 0 <= finished <= MAX_COUNT
    ):
        return None
    try:
        stamp = _from_base64(text)
    except ValueError:
        return None
    if len(stamp) > MAX_STAMP_BYTES or not any(stamp):
        return None
    new = _Fields()
    new.op, new.tag, new.id = op, tag, id
    new.stamp, new.started, new.finished = stamp, started, finished
    new.timeout = new.idle_timeout = new.detail = new.reason = None
    new.__class__ = Request
    return new  # type: ignore[return-value]


class Refused(NamedTuple):
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
    refused: list[Refused]


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


def refused_body(request: Request) -> str:
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
    refused: list[Refused] = []
    try:
        raws = _raw_requests(body)
        for raw in raws:
            if (read := _read_at_once(raw)) is None:
                break
            requests.append(read)
        else:
            return Parsed(requests, refused)
        _check_depth(body, raws)
    except InvalidRequest as error:
        return Parsed([], [Refused(body if isinstance(body, str) else str(body), str(error))])
    others: list[object] = []
    why = ""
    for index, raw in enumerate(raws[len(requests) :], len(requests)):
        try:
            requests.append(_read_at_once(raw) or Request.from_json(raw))
        except InvalidRequest as error:
            if len(refused) < _APART:
                refused.append(Refused(_body(raw), f"requests[{index}].{error}"))
                continue
            why = why or f"requests[{index}].{error}"
            others.append(raw)
    if others:
        if len(others) > 1:
            why += f" (and {len(others) - 1} more of this message)"
        refused.append(Refused(_body(*others), why, len(others)))
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
