"""Checks of the fields of requests, for Python values and JSON. docs/protocol.md specifies them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

from xorack.core.chain import Parent
from xorack.core.errors import ArgumentError, names_token, shown
from xorack.core.stamp import TRACED_CELLS, check_bytes, check_cells, check_unit

MAX_TAG_BYTES = 1024
MAX_ID_BYTES = 128
MAX_REASON_BYTES = 1024
MAX_DETAIL_BYTES = 4096
MAX_DETAIL_DEPTH = 64
MIN_INTEGER, MAX_INTEGER = -(1 << 63), (1 << 64) - 1
MAX_STAMP_BYTES = 64 * 1024
MAX_COUNT = (1 << 63) - 1
MAX_MISSING = 100
MAX_STEP_UNITS = 10_000
"""The most units of one step: a batch of a Lambda function. An item holds at most 400 KB, and the
marks of these units take 160 KB."""
MAX_PARENTS = 100
"""The most chains in which one chain can be a unit."""
MAX_TIMEOUT_SECONDS = 10 * 366 * 86400
RESUME_KINDS = {
    "step_functions": (2048, r"[\0-\x7f]+", "ASCII characters"),
    "lambda": (1024, r"[A-Za-z0-9+/]+={0,2}", "characters of a callback id, base64"),
}
"""The kinds of callbacks. Each has the token's largest length, its pattern and a description."""

Check = Callable[[str, Any], Any]
"""Takes the name and the value of a field. Returns the value, or raises ArgumentError."""


def _text(least: int, most: int) -> Check:
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


def _count(field: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
        raise ArgumentError(field, value, f"a whole number from 0 to {MAX_COUNT}")
    return value


IDS = ("starts", "finishes")


def _ids(field: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, Iterable):
        raise ArgumentError(field, value, "a list of units' ids")
    ids = []
    for unit in value:
        try:
            ids.append(check_unit(unit))
        except ArgumentError as error:
            raise ArgumentError(field, unit, f"ids, each {error.expected}") from None
    if len(set(ids)) != len(ids):
        raise ArgumentError(field, ids, "each id once")
    return tuple(ids)


def _few_ids(field: str, value: Any, most: int = MAX_MISSING) -> tuple[int, ...]:
    ids = _ids(field, value)
    if not 1 <= len(ids) <= most:
        raise ArgumentError(field, f"{len(ids)} ids", f"1 to {most} ids")
    return ids


def _cells(field: str, value: Any) -> int:
    if value == 0 and type(value) is int:
        return 0
    try:
        return check_cells(value)
    except ArgumentError as error:
        raise ArgumentError(field, value, f"0, {error.expected}") from None


def _seconds(field: str, value: Any) -> Any:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 < value <= MAX_TIMEOUT_SECONDS:
        raise ArgumentError(field, value, f"seconds, above 0 and up to {MAX_TIMEOUT_SECONDS}")
    return value


def _unreadable(value: object) -> bool:
    """Return whether JSON is too deep, or has too large integers or keys that are no strings."""
    level: list[object] = [value]
    for _ in range(MAX_DETAIL_DEPTH + 1):
        if any(isinstance(item, int) and not MIN_INTEGER <= item <= MAX_INTEGER for item in level):
            return True
        objects = [item for item in level if isinstance(item, dict)]
        arrays = [item for item in level if isinstance(item, (list, tuple))]
        if not all(isinstance(key, str) for item in objects for key in item):
            return True
        if not objects and not arrays:
            return False
        containers = (*map(dict.values, objects), *arrays)
        level = [child for container in containers for child in container]
    return True


def _detail(field: str, value: Any) -> dict[str, Any]:
    expected = (
        f"a JSON object of at most {MAX_DETAIL_BYTES} bytes, {MAX_DETAIL_DEPTH} deep, "
        "with keys that are strings and integers of at most 64 bits"
    )
    if not isinstance(value, Mapping) or _unreadable(value):
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
        shape = isinstance(value, (list, dict))
        kind = shown(value) if shape else f"a {type(value).__name__}"
        raise ArgumentError(field, problem=f"{kind}, expected {expected}")
    ((kind, token),) = value.items()
    most, pattern, expected = RESUME_KINDS[kind]
    valid = isinstance(token, str) and len(token) <= most and re.fullmatch(pattern, token)
    if not valid:
        # A token is a secret, so the error shows only its length.
        length = f"{len(token):,} characters" if isinstance(token, str) else type(token).__name__
        problem = f"{length}, expected 1 to {most:,} {expected}"
        raise ArgumentError(f"{field}.{kind}", problem=problem)
    return dict(value)


def unknown_field(name: str, value: object, known: str) -> ArgumentError:
    """Return the error for a field that does not exist.

    If the name may be a misspelt ``resume``, the value may be a token, so the error hides it.
    """
    shape = isinstance(value, (list, dict))
    visible = "a token" if names_token(name) and not shape else value
    return ArgumentError(shown(name)[1:-1], visible, f"no such field: {known}")


def _parents(field: str, value: Any) -> tuple[Parent, ...]:
    """Check the units that a chain stands for. These units have no order, so they are sorted."""
    expected = "an array of units, each with unit, tags, and kind or cells, as a token has them"
    if not isinstance(value, (list, tuple)) or not value:
        raise ArgumentError(field, value, expected)
    parents = tuple(sorted(_parent(field, parent, expected) for parent in value))
    tags = [tag for parent in parents for tag in parent.tags]
    if len({*tags}) < len(tags) or len(tags) > MAX_PARENTS:
        raise ArgumentError(field, f"{len(tags)} tags", f"at most {MAX_PARENTS} different chains")
    if (size := sum(len(tag.encode()) for tag in tags)) > MAX_DETAIL_BYTES:
        raise ArgumentError(field, f"tags of {size} bytes", f"at most {MAX_DETAIL_BYTES} in all")
    return parents


def _parent(field: str, value: Any, expected: str) -> Parent:
    if isinstance(value, Parent):
        value = value.to_json()
    if not isinstance(value, Mapping) or not value.keys() <= {"unit", "tags", "kind", "cells"}:
        raise ArgumentError(field, value, expected)
    (unit,) = _units_of(f"{field}.unit", [value.get("unit")])
    tags, kind = value.get("tags"), value.get("kind", "traced")
    if not isinstance(tags, (list, tuple)) or not tags:
        raise ArgumentError(f"{field}.tags", tags, "an array of tags")
    if kind not in ("traced", "plain"):
        raise ArgumentError(f"{field}.kind", kind, "traced or plain")
    cells = _cells(f"{field}.cells", value.get("cells", TRACED_CELLS if kind == "traced" else 0))
    if (cells == 0) != (kind == "plain"):
        raise ArgumentError(f"{field}.cells", cells, f"a size of {kind} stamps")
    try:
        check_unit(unit, cells)
    except ArgumentError as error:
        raise ArgumentError(f"{field}.unit", f"{unit:016x}", error.expected) from None
    return Parent(unit, tuple(sorted(CHECKS["tag"](f"{field}.tags", tag) for tag in tags)), cells)


def _flag(field: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ArgumentError(field, value, "true or false")
    return value


CHECKS: dict[str, Check] = {
    "tag": _text(1, MAX_TAG_BYTES),
    "id": _text(1, MAX_ID_BYTES),
    "stamp": _stamp,
    "started": _count,
    "finished": _count,
    "starts": _ids,
    "finishes": _ids,
    # finishes_once and missing are sets of ids. Sorted ids make equal sets the same content.
    "finishes_once": lambda field, value: tuple(sorted(_few_ids(field, value, MAX_STEP_UNITS))),
    "cells": _cells,
    "timeout": _seconds,
    "idle_timeout": _seconds,
    "tolerated_units": _count,
    "detail": _detail,
    "resume": _resume,
    "parents": _parents,
    "fail_parent": _flag,
    "reason": _text(0, MAX_REASON_BYTES),
    "text": _text(1, MAX_REASON_BYTES),
    "missing": lambda field, value: tuple(sorted(_few_ids(field, value))),
    "missing_count": _count,
}


def _bytes_of(field: str, value: Any) -> bytes:
    if not isinstance(value, str):
        raise ArgumentError(field, value, "a string of standard base64")
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise ArgumentError(field, value, "standard base64 (RFC 4648, section 4)") from None


_HEX_ID = re.compile("(?!0{16})[0-9a-f]{16}")


def _units_of(field: str, value: Any) -> list[int]:
    expected = "16 lower-case hex digits, not all zero"
    if not isinstance(value, list):
        raise ArgumentError(field, value, f"a list of ids, each {expected}")
    for id in value:
        if not isinstance(id, str) or not _HEX_ID.fullmatch(id):
            raise ArgumentError(field, id, expected)
    return [int(id, 16) for id in value]


_OF_UNITS = (*IDS, "finishes_once", "missing")
_FROM_JSON: dict[str, Check] = {"stamp": _bytes_of, **dict.fromkeys(_OF_UNITS, _units_of)}


def check_json(field: str, value: Any) -> Any:
    """Check the value of a field in JSON, and return it. Raise the errors of `CHECKS`."""
    if field in _FROM_JSON:
        value = _FROM_JSON[field](field, value)
    return CHECKS[field](field, value)
