"""A small table with a bar, which notebooks show instead of an object's text.

Only this module and `xorack.web` make HTML. `table` escapes every value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

_COLORS = {"done": "#2e9e5b", "missing": "#d1453b", "surplus": "#8e5bd0", "other": "#e0a526"}
_SEGMENT = '<span style="background:{color};width:{share:.2f}%" title="{text}"></span>'
_LEGEND = (
    '<span style="display:inline-block;width:.7em;height:.7em;background:{color}"></span> '
    "{text}&ensp;"
)
_BAR = (
    '<div style="display:flex;width:24em;height:.8em;border-radius:.3em;overflow:hidden;'
    'margin:.4em 0 .2em">{segments}</div><div style="font-size:90%">{legend}</div>'
)
_ROW = (
    '<tr><th style="text-align:left;font-weight:600">{name}</th>'
    '<td style="text-align:left">{value}</td></tr>'
)
# Some notebooks show HTML in a frame without a doctype, where tables have a colour of their own.
_WHOLE = (
    '<div class="xorack"><strong>{title}</strong>{bar}'
    '<table style="color:inherit">{rows}</table></div>'
)
MAX_SHOWN = 20
"""Values of a list that a table shows."""

Part = tuple[str, str, int]
"""A part of a bar: a kind of `_COLORS`, a word for it, and its number."""


def table(title: str, facts: Mapping[str, object], parts: Iterable[Part] = ()) -> str:
    """Return the HTML of a table of facts below a bar, without the facts that are None or empty."""
    rows = "".join(
        _ROW.format(name=escape(name), value=_value(value))
        for name, value in facts.items()
        if value is not None and value not in ("", (), [])
    )
    return _WHOLE.format(title=escape(title), bar=_bar([*parts]), rows=rows)


def _value(value: object) -> str:
    if isinstance(value, (list, tuple)):
        more = [f"and {len(value) - MAX_SHOWN:,} more"] if len(value) > MAX_SHOWN else []
        return "<br>".join(escape(str(item)) for item in (*value[:MAX_SHOWN], *more))
    return escape(f"{value:,}" if type(value) is int else str(value))


def _bar(parts: list[Part]) -> str:
    parts = [part for part in parts if part[2] > 0]
    total = sum(number for _, _, number in parts)
    shown = [
        {
            "color": _COLORS[kind],
            "text": escape(f"{number:,} {word}"),
            "share": 100 * number / total,
        }
        for kind, word, number in parts
    ]
    if not shown:
        return ""
    segments, legend = (
        "".join(text.format(**part) for part in shown) for text in (_SEGMENT, _LEGEND)
    )
    return _BAR.format(segments=segments, legend=legend)
