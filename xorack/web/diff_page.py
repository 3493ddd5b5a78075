"""The report of `xorack diff` as one page of HTML: no script, nothing from elsewhere.

It escapes all text from others: names, values, errors.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from xorack.compare.report import KINDS, LABELS, Result
from xorack.compare.values import MAX_CELL, as_text, excerpts
from xorack.core.explaining import Explanation
from xorack.ops.text import plural
from xorack.web.widget import escaped, table, variables

__all__ = ["Outcome", "render_results"]

Outcome = Result | str
"""The result of a comparison, or the error that prevented it."""
_COLUMNS = 40
"""Columns of a table of rows: more are unreadable."""
_FINDINGS = 5
_STYLE = variables() + Path(__file__).with_suffix(".css").read_text(encoding="utf-8")


def render_results(results: Mapping[str, Outcome]) -> str:
    """Render comparisons by name; one of an empty name is the page's only one."""
    states = [state_of(one) for one in results.values()]
    worst = next((state for state in ("error", "different") if state in states), "equal")
    parts = [f"<h1>xorack diff {_badge(worst)}</h1>"]
    if "" not in results:
        parts.append(_index(results))
    for number, (name, one) in enumerate(results.items()):
        head = f'<h2 id="t{number}">{escaped(name)} {_badge(state_of(one))}</h2>' if name else ""
        parts.append(f"<section>{head}{''.join(_section(one))}</section>")
    digest = b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{worst} · xorack diff</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def state_of(one: Outcome) -> str:
    """Return what a comparison found, in a word."""
    return "error" if isinstance(one, str) else "equal" if one.report.equal else "different"


def _badge(state: str) -> str:
    return f'<span class="badge {state}">{state}</span>'


def _index(results: Mapping[str, Outcome]) -> str:
    """Render a line for each comparison."""
    rows = []
    for number, (name, one) in enumerate(results.items()):
        counts = [""] * 6
        if not isinstance(one, str):
            counts = [f"{count:,}" for count in [*asdict(one.report.counts).values()][:6]]
        link = f'<a href="#t{number}">{escaped(name)}</a>'
        rows.append([link, _badge(state_of(one)), *counts])
    return _table(
        ["Table", "Result", "Left", "Right", "Equal", "Missing", "Extra", "Changed"], rows
    )


def _section(one: Outcome) -> Iterator[str]:
    if isinstance(one, str):
        yield f'<p class="error">{escaped(one)}</p>'
        return
    report = one.report
    sides = zip(("left", "right"), one.names, strict=True)
    yield f"<p>{', '.join(f'{side} <b>{escaped(name)}</b>' for side, name in sides)}</p>"
    counts = asdict(report.counts)
    yield _bar([(kind, counts[kind]) for kind in ("equal", "changed", "missing", "extra")])
    facts = (
        f"<div><dt>{LABELS[name]}</dt><dd>{n:,}</dd></div>"
        for name, n in counts.items()
        if n or not name.startswith("duplicate")
    )
    yield f"<dl>{''.join(facts)}</dl>"
    sentences = [f"Only on the {side}: {', '.join(names)}" for side, names in
                 (("left", report.left_only), ("right", report.right_only)) if names]  # fmt: skip
    sentences += [f"{n}: {a} and {b}" for n, (a, b) in report.changed_types.items()]
    yield _list("Columns that are not alike", sentences)
    yield _list("Remarks", one.remarks)
    if one.why:
        yield "<h3>Why</h3>" + "".join(map(_why, one.why.values()))
    if report.changed_columns:
        shares = report.equal_share
        yield "<h3>Changed columns</h3>" + _table(
            ["Column", "Rows", "Equal", "Greatest difference", "Null, left", "Null, right"],
            [
                [
                    escaped(name), f"{change.rows:,}", f"{shares[name]:.2%}",
                    change.distance,
                    f"{change.null_left:,}", f"{change.null_right:,}",
                ]
                for name, change in one.changes.items()
            ],
        )  # fmt: skip
    for kind in reversed(KINDS):
        if rows := one.rows.get(kind):
            shown = f"{len(rows):,} of {plural(counts[kind], 'row')}"
            yield f"<h3>{kind.capitalize()} <small>{shown}</small></h3>"
            yield _changed(one, rows) if kind == "changed" else _rows(rows)


def _list(title: str, sentences: Iterable[str]) -> str:
    items = "".join(f"<li>{escaped(one)}</li>" for one in sentences)
    return f"<h3>{title}</h3><ul>{items}</ul>" if items else ""


def _bar(counts: Sequence[tuple[str, int]]) -> str:
    """Render numbers of rows as parts of a bar; what is there is seen."""
    total = sum(count for _, count in counts) or 1
    widths = [(kind, max(100 * count / total, 0.4)) for kind, count in counts if count]
    full, at, rects = sum(width for _, width in widths) or 1, 0.0, ""
    for kind, width in widths:
        part = 100 * width / full
        rects += f'<rect class="{kind}" x="{at:.2f}%" width="{part:.2f}%" height="100%"/>'
        at += part
    return f'<svg aria-hidden="true">{rects}</svg>'


def _why(why: Explanation) -> str:
    rows = [[f"{f.missing:.1%}", f"{f.all:.1%}", escaped(f.what)] for f in why.findings[:_FINDINGS]]
    heads = ["Of these", "Of all", "Condition"]
    return f"<p>{escaped(why.sentence)}</p>" + (_table(heads, rows) if len(rows) > 1 else "")


def _rows(rows: Sequence[Mapping[str, Any]]) -> str:
    names = [*rows[0]]
    cells = [[_cell(row[name]) for name in names[:_COLUMNS]] for row in rows]
    return _table(map(escaped, names[:_COLUMNS]), cells) + _more(names)


def _changed(one: Result, rows: Sequence[Mapping[str, Any]]) -> str:
    """Render changed rows: the key, and the columns that differ in one of them."""
    keys = [*rows[0]["key"]]
    names = dict.fromkeys(name for row in rows for name in row["columns"])
    names |= dict.fromkeys(name for row in rows for name in row.get("left", ()) if name not in keys)
    shown = list(islice(names, _COLUMNS))
    cells = []
    for row in rows:
        whole = row.get("left", {})
        own = [_cell(row["key"][name]) for name in keys]
        own += [
            _pair(*row["columns"][name])
            if name in row["columns"]
            else _cell(whole[name]) if name in whole else ""
            for name in shown
        ]  # fmt: skip
        cells.append(own)
    return _table(map(escaped, [*keys, *shown]), cells) + _more(names)


def _more(names: Collection[str]) -> str:
    hidden = len(names) - _COLUMNS
    return f'<p class="faint">and {plural(hidden, "more column")}</p>' if hidden > 0 else ""


def _cell(value: Any) -> str:
    if value is None:
        return '<span class="faint">NULL</span>'
    return escaped(as_text(value), MAX_CELL)


def _pair(left: Any, right: Any) -> str:
    old, new = (escaped(text, MAX_CELL) for text in excerpts(left, right))
    return f"<del>{old}</del> <ins>{new}</ins>"


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll" tabindex="0">{table("rows", heads, body)}</div>'
