"""Requests: what senders ask of a chain. One class from the parser to the chain.

`_OPERATIONS` lists the fields of each operation, `_CHECKS` the check of each field.
docs/protocol.md is the contract.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from xorack.core.errors import ArgumentError, shown
from xorack.core.stamp import check_bytes

__all__ = [
    "MAX_DETAIL_BYTES",
    "MAX_TAG_BYTES",
    "MAX_TIMEOUT_SECONDS",
    "RESUME_KINDS",
    "Op",
    "Request",
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
RESUME_KINDS = {"step_functions": 2048, "lambda": 1024}
"""Who may wait for a chain's end, and the most characters of its token."""

_Check = Callable[[str, Any], Any]
"""Takes a field's name and value; returns the value, or raises ArgumentError."""


def _text(least: int, most: int) -> _Check:
    expected = f"a string of {least} to {most} UTF-8 bytes without NUL"

    def check(field: str, value: Any) -> str:
        if not isinstance(value, str):
            raise ArgumentError(field, value, expected)
        try:
            length = len(value) if value.isascii() else len(value.encode())
        except UnicodeEncodeError:
            raise ArgumentError(field, value, f"{expected} or lone surrogates") from None
        if not least <= length <= most or "\0" in value:
            raise ArgumentError(field, value, expected)
        return value

    return check


def _stamp(field: str, value: Any) -> bytes:
    stamp = bytes(check_bytes(field, value))
    if not 1 <= len(stamp) <= MAX_STAMP_BYTES:
        raise ArgumentError(field, f"{len(stamp)} bytes", f"1 to {MAX_STAMP_BYTES} bytes")
    if not any(stamp):
        raise ArgumentError(field, f"{len(stamp)} zero bytes", "at least one non-zero byte")
    return stamp


def _base64_stamp(field: str, value: Any) -> bytes:
    if not isinstance(value, str):
        raise ArgumentError(field, value, "a string of standard base64")
    try:
        stamp = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise ArgumentError(field, value, "standard base64 (RFC 4648, section 4)") from None
    return _stamp(field, stamp)


def _count(field: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
        raise ArgumentError(field, value, f"a whole number from 0 to {MAX_COUNT}")
    return value


def _seconds(field: str, value: Any) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not 0 < value <= MAX_TIMEOUT_SECONDS
    ):
        raise ArgumentError(field, value, f"seconds, above 0 and up to {MAX_TIMEOUT_SECONDS}")
    return value


def _is_nested_deeper(value: object, depth: int) -> bool:
    """Tell whether JSON is nested deeper: consumers of the event must be able to read it."""
    level: list[object] = [value]
    for _ in range(depth):
        containers = [item for item in level if isinstance(item, (dict, list))]
        level = [
            child
            for item in containers
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return any(isinstance(item, (dict, list)) for item in level)


def _detail(field: str, value: Any) -> dict[str, Any]:
    expected = f"a JSON object of at most {MAX_DETAIL_BYTES} bytes, {MAX_DETAIL_DEPTH} deep"
    if not isinstance(value, Mapping) or _is_nested_deeper(value, MAX_DETAIL_DEPTH):
        raise ArgumentError(field, value, expected)
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        length = len(text.encode())
    except UnicodeEncodeError:
        raise ArgumentError(field, value, f"{expected}, without lone surrogates") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(field, value, f"{expected} ({shown(str(error))})") from None
    if length > MAX_DETAIL_BYTES:
        raise ArgumentError(field, f"{length} bytes", expected)
    return dict(value)


def _resume(field: str, value: Any) -> dict[str, str]:
    expected = 'an object with one of "step_functions" (a task token) and "lambda" (a callback id)'
    if not isinstance(value, Mapping) or len(value) != 1 or not value.keys() <= RESUME_KINDS.keys():
        raise ArgumentError(field, value, expected)
    ((kind, token),) = value.items()
    most = RESUME_KINDS[kind]
    if not isinstance(token, str) or not 1 <= len(token) <= most or not token.isascii():
        raise ArgumentError(f"{field}.{kind}", token, f"1 to {most} ASCII characters")
    return dict(value)


_CHECKS: dict[str, _Check] = {
    "tag": _text(1, MAX_TAG_BYTES),
    "id": _text(1, MAX_ID_BYTES),
    "stamp": _stamp,
    "started": _count,
    "finished": _count,
    "timeout": _seconds,
    "idle_timeout": _seconds,
    "detail": _detail,
    "resume": _resume,
    "reason": _text(0, MAX_REASON_BYTES),
}


class _Operation(NamedTuple):
    """The fields that requests of one operation must and may have, each with its check."""

    required: tuple[str, ...]
    checks: dict[str, _Check]


def _operations(**fields: str) -> dict[str, _Operation]:
    operations = {}
    for op, names in fields.items():
        allowed = ["tag", "id", *names.split()]
        required = tuple(name for name in ("tag", "id", "stamp") if name in allowed)
        operations[op] = _Operation(required, {name: _CHECKS[name] for name in allowed})
    return operations


_OPERATIONS = _operations(
    create="stamp started finished timeout idle_timeout detail resume",
    stamp="stamp started finished",
    fail="reason",
    extend="timeout",
)
_JSON_OPERATIONS = {
    op: operation._replace(
        checks={
            name: _base64_stamp if name == "stamp" else check
            for name, check in operation.checks.items()
        }
    )
    for op, operation in _OPERATIONS.items()
}


def _validated(op: object, fields: Mapping[str, Any], json_: bool = False) -> dict[str, Any]:
    """Check the fields of a request.

    Returns:
        The fields, with stamps as bytes.

    Raises:
        ArgumentError: The operation is unknown, or a field is invalid, unknown or missing.
    """
    operations = _JSON_OPERATIONS if json_ else _OPERATIONS
    if not isinstance(op, str) or op not in operations:
        raise ArgumentError("op", op, "create, stamp, fail or extend")
    required, checks = operations[op]
    values: dict[str, Any] = {"op": op}
    for name, value in fields.items():
        check = checks.get(name)
        if check is not None:
            values[name] = check(name, value)
        elif name != "op":
            expected = f"no such field: {op} has {', '.join(sorted(('op', *checks)))}"
            raise ArgumentError(shown(name)[1:-1], value, expected)
    for name in required:
        if name not in values:
            raise ArgumentError(name, "missing", f"a value: {op} needs it")
    return values


def validate_tag(tag: object) -> str:
    """Return the tag if it is valid: a non-empty string of at most 1,024 UTF-8 bytes, without NUL.

    Raises:
        ArgumentError: The tag is invalid.
    """
    checked: str = _CHECKS["tag"]("tag", tag)
    return checked


@dataclass(frozen=True, init=False)
class Request:
    """A request to a chain. Validated on creation.

    Attributes:
        op: ``create``, ``stamp``, ``fail`` or ``extend``.
        tag: The chain: a non-empty string of at most 1,024 UTF-8 bytes, without NUL.
        id: The request's id, a string of 1 to 128 bytes, unique within its chain. A request takes
            effect once, however often it arrives.
        stamp: create and stamp: the bytes to XOR in, not all zero.
        started: create and stamp: the number of units that this starts.
        finished: create and stamp: the number of units that this finishes.
        timeout: create and extend: seconds from the request's application to the deadline.
        idle_timeout: create: seconds without any stamp until the chain fails.
        detail: create: a JSON object of at most 4 KiB, returned in the chain's events.
        resume: create: who waits for the chain's end: ``{"step_functions": task token}`` or
            ``{"lambda": callback id}``.
        reason: fail: the reason, at most 1,024 bytes.
    """

    op: Op
    tag: str
    id: str
    stamp: bytes | None = None
    started: int = 0
    finished: int = 0
    timeout: float | None = None
    idle_timeout: float | None = None
    detail: dict[str, Any] | None = None
    resume: dict[str, str] | None = None
    reason: str | None = None

    def __init__(
        self,
        op: Op,
        tag: str,
        id: str,
        stamp: bytes | None = None,
        started: int = 0,
        finished: int = 0,
        **optional: Any,
    ) -> None:
        """Check the fields and make the request. None stands for an optional field's default.

        Raises:
            ArgumentError: A field is invalid. The error names it, its value and what was expected.
        """
        given = {"stamp": stamp, "started": started, "finished": finished, **optional}
        fields = {n: value for n, value in given.items() if value != getattr(Request, n, None)}
        vars(self).update(_validated(op, {"tag": tag, "id": id, **fields}))

    @classmethod
    def create(cls, tag: str, id: str, stamp: bytes, **optional: Any) -> Request:
        """Make a request that creates a chain with its root unit's stamp; ``started`` is 1."""
        return cls("create", tag, id, stamp, **{"started": 1, **optional})

    @classmethod
    def stamp_(cls, tag: str, id: str, stamp: bytes, **counts: int) -> Request:
        """Make a request that XORs a stamp in. The underscore keeps the field's name free."""
        return cls("stamp", tag, id, stamp, **counts)

    @classmethod
    def fail(cls, tag: str, id: str, reason: str | None = None) -> Request:
        """Make a request that fails a chain."""
        return cls("fail", tag, id, reason=reason)

    @classmethod
    def extend(cls, tag: str, id: str, timeout: float) -> Request:
        """Make a request that moves the deadline to ``timeout`` seconds from its application."""
        return cls("extend", tag, id, timeout=timeout)

    @classmethod
    def from_json(cls, raw: object) -> Request:
        """Read a request out of one element of a message's ``requests``.

        Raises:
            ArgumentError: The element is not a valid request. The error names the field.
        """
        if not isinstance(raw, dict):
            raise ArgumentError("request", raw, "a JSON object")
        request = cls.__new__(cls)
        vars(request).update(_validated(raw.get("op"), raw, json_=True))
        return request

    def to_json(self) -> dict[str, Any]:
        """Return the request as it stands in a message, without fields at their defaults."""
        raw = {
            name: value
            for name, value in vars(self).items()
            if value != getattr(Request, name, None)
        }
        if self.stamp is not None:
            raw["stamp"] = base64.b64encode(self.stamp).decode("ascii")
        return raw
