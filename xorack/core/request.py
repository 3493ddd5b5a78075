"""Requests: what is asked of a chain."""

from __future__ import annotations

import base64
import binascii
import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from xorack.core.errors import InvalidRequest, shown
from xorack.core.stamp import check_bytes

__all__ = [
    "MAX_DETAIL_BYTES",
    "MAX_TAG_BYTES",
    "Op",
    "Request",
    "read_at_once",
    "validate_stamp",
    "validate_tag",
]

Op = Literal["create", "stamp", "fail", "extend"]

MAX_TAG_BYTES = 1024
MAX_ID_BYTES = 128
MAX_REASON_BYTES = 1024
MAX_DETAIL_BYTES = 4096
MAX_DETAIL_DEPTH = 64
MAX_STAMP_BYTES = 64 * 1024
MAX_COUNT = (1 << 63) - 1
MAX_TIMEOUT_SECONDS = 10 * 366 * 86400

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


def read_at_once(raw: object) -> Request | None:
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
