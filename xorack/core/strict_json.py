"""JSON text that each version of Python reads as every other language does. Pure.

Python's decoder takes ``NaN`` and ``Infinity``, which are not JSON. How deeply a text may be nested
depends on the version of Python. Here it is a number of the protocol.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, NoReturn

MAX_DEPTH = 128
"""Most objects and arrays that contain each other. A request needs 67, for its detail."""

_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_NOT_A_BRACKET = re.compile(r"[^\[\]{}]+")


def is_too_deep(text: str) -> bool:
    """Return whether JSON text is nested more deeply than the protocol permits."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    depth = 0
    for bracket in _NOT_A_BRACKET.sub("", _STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_DEPTH:
            return True
    return False


def integer_of(digits: str) -> int | Decimal:
    """Read an integer; one beyond Python's limit of digits as a type that no field accepts."""
    try:
        return int(digits)
    except ValueError:
        return Decimal(digits)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_int=integer_of, parse_constant=_refuse)


def read_json(text: str) -> Any:
    """Decode JSON text; raise ValueError if it is no JSON or nested too deeply."""
    if is_too_deep(text):
        raise ValueError(f"the text is nested more than {MAX_DEPTH} levels deep")
    return _DECODER.decode(text)
