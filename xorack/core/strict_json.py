"""Strict JSON: all versions of Python and all other languages read it alike.

Python's decoder also accepts ``NaN`` and ``Infinity``, which are not JSON. Its limit of nested
levels depends on the version of Python, so the protocol defines a limit.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, NoReturn

MAX_DEPTH = 128
"""The most levels of nested objects and arrays. A request with a detail can need 67."""

_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_NOT_A_BRACKET = re.compile(r"[^\[\]{}]+")


def is_too_deep(text: str) -> bool:
    """Return whether JSON text has more nested levels than the protocol permits."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    depth = 0
    for bracket in _NOT_A_BRACKET.sub("", _STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_DEPTH:
            return True
    return False


def integer_of(digits: str) -> int | Decimal:
    """Read an integer.

    An integer that is too long for Python becomes a Decimal, which no field takes.
    """
    try:
        return int(digits)
    except ValueError:
        return Decimal(digits)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_int=integer_of, parse_constant=_refuse)


def read_json(text: str) -> Any:
    """Decode JSON text; raise ValueError if it is not strict JSON or nested too deeply."""
    if is_too_deep(text):
        raise ValueError(f"the text is nested more than {MAX_DEPTH} levels deep")
    return _DECODER.decode(text)
