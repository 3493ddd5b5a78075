"""The page of windows over logs: a table of stage by window."""

from __future__ import annotations

from collections import Counter

from xorack.ops.windows import StageTable, StageWindow
from xorack.web.page.pages import Frame
from xorack.web.widget import bar, chain_address, escaped, table

_COLOURS = {"whole": "done", "open": "ok", "late": "late", "missing": "late", "failed": "late"}


def windows_page(frame: Frame, found: StageTable, prefix: str, searched: int | None) -> bytes:
    """Render windows by stage; `searched` items were read, if these are not the whole table."""
    states = Counter[str](one.state for _, _, cells in found.rows for one in cells if one)
    news = ", ".join(f"{states[state]} {state}" for state in _COLOURS if states[state])
    heads = ["Window", *(escaped(log, 60) for log in found.logs)]
    rows = "".join(
        f'<tr data-key="{escaped(head)}"><th scope="row" class="tag">{escaped(head, 120)}</th>'
        + "".join(f"<td>{_cell(one)}</td>" for one in cells)
        + "</tr>"
        for head, (_, _, cells) in zip(found.heads, found.rows, strict=True)
    )
    part = ""
    if searched is not None:
        part = f"Found among {searched:,} items of the table: xorack windows reads all of it."
    parts = [
        '<h1 class="unseen">Windows</h1><div class="bar-of-tools">'
        f'<p class="findings">{" ".join(filter(None, [news and f"{news}.", part]))}</p>'
        '<form role="search" action="windows"><label for="prefix">Tag begins with</label>'
        f'<input id="prefix" type="search" name="prefix" value="{escaped(prefix)}"></form></div>',
        table("stages", heads, rows) if rows else '<p class="nothing">No windows.</p>',
    ]
    return frame.page("Windows", "".join(parts), "windows", news=news)


def _cell(window: StageWindow | None) -> str:
    if window is None:
        return '<span class="faint">not open</span>'
    state, percent = window.state, window.status.percent
    link = chain_address(window.status.chain.tag)
    label = f'<a href="{link}" class="badge {_COLOURS[state]}">{state}</a>'
    if state == "whole":
        return label
    share = "" if percent is None else f' <span class="num">{percent:g} %</span>'
    colour = "failed" if state == "failed" else _COLOURS[state]
    why = f'<div class="faint">{escaped(window.why, 120)}</div>'
    return f"{label}{share}{bar(percent or 0, colour)}{why}"
