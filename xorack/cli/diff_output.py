"""Output of `xorack diff`: the counts and the first rows that differ, as a table or JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from xorack.cli import screen
from xorack.compare.report import Result, describe
from xorack.compare.values import MAX_CELL, as_json, as_text, excerpts
from xorack.core.errors import ArgumentError
from xorack.ops.text import printable
from xorack.web.diff_page import Outcome, render_results, state_of

__all__ = ["Outcome", "check_page", "print_found", "write_page"]

_COUNTS = ("LEFT", "RIGHT", "EQUAL", "MISSING", "EXTRA", "CHANGED")
_HEADS = ("CHANGE", "COLUMN", "LEFT", "RIGHT")


def json_of(result: Result) -> dict[str, Any]:
    """Return a result as an object of JSON."""
    return {
        **dict(zip(("left", "right"), result.names, strict=True)),
        **result.report.summary(),
        "changes": {name: change._asdict() for name, change in result.changes.items()},
        "why": {
            kind: {"sentence": why.sentence, "findings": [one.to_json() for one in why.findings]}
            for kind, why in result.why.items()
        },
        "rows": as_json(result.rows),
        "remarks": result.remarks,
        "out": result.out,
    }


def check_page(file: str) -> None:
    """Check that a page can be written, before something is compared.

    Raises:
        ArgumentError: It cannot, or its name is none of HTML: it would replace other data.
    """
    path = Path(file)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ArgumentError("html", file, "a file whose name ends in .html")
    if path.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
        raise ArgumentError("html", problem=f"{file}: cannot write to it")


def write_page(file: str, found: Mapping[str, Outcome]) -> None:
    """Write the page, whole or not at all."""
    page = render_results(found).encode("utf-8", "replace")
    with NamedTemporaryFile(dir=Path(file).parent, suffix=".html", delete=False) as part:
        part.write(page)
    os.chmod(part.name, 0o644)
    os.replace(part.name, file)


def print_found(found: Mapping[str, Outcome], *, as_json: bool) -> None:
    """Print comparisons by name; of one without a name, nothing but what it found."""
    for name, one in found.items():
        table = f"{name}: " if name else ""
        for remark in [] if isinstance(one, str) else one.remarks:
            screen.say(f"note: {printable(table + remark)}", error=True)
        if isinstance(one, str):
            screen.say(f"error: {printable(table + one)}", error=True)
    if as_json:
        objects = {
            name: {"error": one} if isinstance(one, str) else json_of(one)
            for name, one in found.items()
        }
        is_equal = all(state_of(one) == "equal" for one in found.values())
        tables = [{"name": name, **of} for name, of in objects.items()]
        screen.print_json(objects.get("") or {"equal": is_equal, "tables": tables})
        return
    if "" not in found:
        screen.print_rows([_line(*item) for item in found.items()], right={*_COUNTS}, fold=set())
    for name, one in found.items():
        if isinstance(one, str) or (name and one.report.equal):
            continue
        if name:
            screen.say(f"\n{printable(name)}:")
        _print_result(one)
    results = [one for one in found.values() if not isinstance(one, str)]
    if any(
        getattr(one.report.counts, kind) > len(rows)
        for one in results
        for kind, rows in one.rows.items()
    ):
        screen.say("there are more: --limit prints more, --out writes all", error=True)


def _line(name: str, one: Outcome) -> dict[str, str]:
    counts = {} if isinstance(one, str) else asdict(one.report.counts)
    numbers = {head: f"{counts[head.lower()]:,}" if counts else "" for head in _COUNTS}
    return {"TABLE": printable(name), "RESULT": state_of(one), **numbers}


def _print_result(result: Result) -> None:
    """Print the counts, why rows differ, and a line for each value that differs."""
    lines = describe(result.report, result.changes)
    for line in [*lines, *(f"  why: {why.sentence}" for why in result.why.values())]:
        screen.say(printable(line))
    if cells := list(_cells(result.rows, result.report.key)):
        screen.say("")
        screen.print_rows(cells, right=set(), fold={*cells[0]} - {"CHANGE"})


def _cells(
    rows: Mapping[str, Sequence[Mapping[str, Any]]], key: Sequence[tuple[str, str]]
) -> Iterator[dict[str, str]]:
    heads = [f"{name}." if name in _HEADS else printable(name) for name, _ in key]
    for kind in ("missing", "extra", "changed"):
        for row in rows.get(kind, ()):
            found = {name.lower(): value for name, value in row.get("key", row).items()}
            own = [pair[kind == "extra"].lower() for pair in key]
            values = [_cell(as_text(found[name])) for name in own]
            first = {"CHANGE": kind, **dict(zip(heads, values, strict=True))}
            if kind != "changed":
                yield {**first, "COLUMN": "", "LEFT": "", "RIGHT": ""}
                continue
            for name, pair in row["columns"].items():
                left, right = map(_cell, excerpts(*pair))
                yield {**first, "COLUMN": printable(name), "LEFT": left, "RIGHT": right}
                first = dict.fromkeys(first, "")


def _cell(text: str) -> str:
    return printable(text if len(text) <= MAX_CELL else f"{text[: MAX_CELL - 1]}…")
