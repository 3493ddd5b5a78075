"""Output of `xorack diff`: the counts and the first rows that differ, as a table or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from itertools import takewhile
from typing import Any, NamedTuple

from xorack.cli import screen
from xorack.ops.text import printable

__all__ = ["Result", "print_json_result", "print_result"]

_HEADS = ("CHANGE", "COLUMN", "LEFT", "RIGHT")
_MAX_CELL = 80
_BEFORE = 20
"""Characters that a cut value shows before the first that differs."""


class Result(NamedTuple):
    """The result of a comparison.

    Attributes:
        summary: The counts and the columns, as JSON.
        text: The same for people.
        rows: The first rows of each kind, as `xorack.spark.Difference.first` returns them.
        remarks: Remarks on columns, a line each.
        out: The folder that all rows were written to.
        key: The columns of the key.
    """

    summary: dict[str, Any]
    text: str
    rows: dict[str, list[dict[str, Any]]]
    remarks: list[str]
    out: str | None
    key: Sequence[tuple[str, str]] = ()


def print_json_result(left: str, right: str, result: Result) -> None:
    """Print the result as an object of JSON."""
    rows = {kind: _json(rows) for kind, rows in result.rows.items()}
    sides = {"left": left, "right": right}
    rest = {"rows": rows, "remarks": result.remarks, "out": result.out}
    screen.print_json({**sides, **result.summary, **rest})


def print_result(result: Result) -> None:
    """Print the counts, and a line for each value that differs."""
    for line in result.text.splitlines():
        screen.say(printable(line))
    if cells := list(_cells(result.rows, result.key)):
        screen.say("")
        screen.print_rows(cells, right=set(), fold={*cells[0]} - {"CHANGE"})
    counts = result.summary["counts"]
    if any(counts[kind] > len(rows) for kind, rows in result.rows.items()):
        screen.say("there are more: --limit prints more, --out writes all", error=True)


def _cells(
    rows: Mapping[str, Sequence[Mapping[str, Any]]], key: Sequence[tuple[str, str]]
) -> Iterator[dict[str, str]]:
    heads = [f"{name}." if name in _HEADS else printable(name) for name, _ in key]
    for kind in ("missing", "extra", "changed"):
        for row in rows.get(kind, ()):
            found = {name.lower(): value for name, value in row.get("key", row).items()}
            own = [pair[kind == "extra"].lower() for pair in key]
            values = [_cell(_text(found[name])) for name in own]
            first = {"CHANGE": kind, **dict(zip(heads, values, strict=True))}
            if kind != "changed":
                yield {**first, "COLUMN": "", "LEFT": "", "RIGHT": ""}
                continue
            for name, pair in row["columns"].items():
                left, right = _excerpts(*map(_text, pair))
                yield {**first, "COLUMN": printable(name), "LEFT": left, "RIGHT": right}
                first = dict.fromkeys(first, "")


def _excerpts(left: str, right: str) -> tuple[str, str]:
    """Cut two long values to where they begin to differ."""
    if max(len(left), len(right)) <= _MAX_CELL:
        return _cell(left), _cell(right)
    same = sum(1 for _ in takewhile(lambda two: two[0] == two[1], zip(left, right, strict=False)))
    begin = max(0, same - _BEFORE)
    dots = "…" if begin else ""
    return _cell(dots + left[begin:]), _cell(dots + right[begin:])


def _cell(text: str) -> str:
    return printable(text if len(text) <= _MAX_CELL else f"{text[: _MAX_CELL - 1]}…")


def _text(value: Any) -> str:
    """Return a value as a cell; text that is empty, NULL or has outer blanks is in quotes."""
    if value is None:
        return "NULL"
    plain = _json(value)
    if not isinstance(plain, str):
        return json.dumps(plain, ensure_ascii=False)
    is_clear = plain == plain.strip(" ") and plain not in ("", "NULL")
    return plain if is_clear else f'"{plain}"'


def _json(value: Any) -> Any:
    """Return a value of Spark as JSON; numbers that JSON lacks, times and binary are text."""
    if isinstance(value, dict):
        return {
            name if isinstance(name, str) else _text(name): _json(v) for name, v in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_json(one) for one in value]
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
