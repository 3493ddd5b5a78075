"""Values of both engines as JSON and as text."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from itertools import takewhile
from typing import Any

__all__ = ["MAX_CELL", "as_json", "as_text", "excerpts"]

MAX_CELL = 80
"""Characters of a value that are shown."""
_BEFORE = 20
"""Characters that a cut value shows before the first that differs."""


def excerpts(left: Any, right: Any) -> tuple[str, str]:
    """Return two values as text, long ones from where they begin to differ."""
    texts = as_text(left), as_text(right)
    if max(map(len, texts)) <= MAX_CELL:
        return texts
    same = sum(1 for _ in takewhile(lambda two: two[0] == two[1], zip(*texts, strict=False)))
    begin = max(0, same - _BEFORE)
    dots = "…" if begin else ""
    return dots + texts[0][begin:], dots + texts[1][begin:]


def as_text(value: Any) -> str:
    """Return a value as a cell; text that is empty, NULL or has outer blanks is in quotes."""
    if value is None:
        return "NULL"
    plain = as_json(value)
    if not isinstance(plain, str):
        return json.dumps(plain, ensure_ascii=False)
    is_clear = plain == plain.strip(" ") and plain not in ("", "NULL")
    return plain if is_clear else f'"{plain}"'


def as_json(value: Any) -> Any:
    """Return a value of Spark as JSON; numbers that JSON lacks, times and binary are text."""
    if isinstance(value, dict):
        return {
            name if isinstance(name, str) else as_text(name): as_json(v)
            for name, v in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [as_json(one) for one in value]
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Decimal):
        return f"{value:f}"  # str gives 0E-7
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    return (
        value.isoformat(*[" "] * hasattr(value, "hour")) if isinstance(value, date) else str(value)
    )
