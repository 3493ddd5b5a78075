"""Texts of one cause: they differ in a time, a number, an id or a quoted value alone. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

__all__ = ["cause_of", "count_causes", "shared_text"]

_HOLE = "…"
_VALUE = re.compile(
    # A long value in an error message is cut, and so has no quote at its end.
    r"""(?<=: )b?(?:'[^']{70,}|"[^"]{70,})\.\.\.(?=,)"""
    # A quote after two letters is an apostrophe: "the chain's".
    r"""|(?<![a-z][a-z])'(?:[^'\\]|\\.)*'(?:\.\.\.)?|"(?:[^"\\]|\\.)*"(?:\.\.\.)?"""
    r"""|\b[0-9a-f]{8,}(?:-[0-9a-f]{4,})*\b"""  # ids, UUIDs
    r"""|\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)?"""
    r"""|\d+(?:[.,:]\d+)*"""
    rf"|'?{_HOLE}'?"
)


def cause_of(text: str) -> str:
    """Return a text with `…` in place of each value: equal for texts of one cause."""
    return _VALUE.sub(_HOLE, text)


def shared_text(texts: Iterable[str]) -> str:
    """Return what texts of one cause share: a value that they all have stays."""
    shared: list[str] = []
    values: list[str] = []
    for text in texts:
        found = _VALUE.findall(text)
        if not shared:
            shared, values = _VALUE.split(text), found
        elif len(found) == len(values):
            values = [
                old if old == new else _hole(old) for old, new in zip(values, found, strict=True)
            ]
    return "".join(part for pair in zip(shared, [*values, ""], strict=True) for part in pair)


def _hole(value: str) -> str:
    return f"'{_HOLE}'" if value[0] in "'\"" else _HOLE


def count_causes(texts: Iterable[str]) -> Counter[str]:
    """Count texts by their cause, the commonest first; the key is the text that they share."""
    groups: dict[str, Counter[str]] = {}
    for text in texts:
        groups.setdefault(cause_of(text), Counter())[text] += 1
    found = {shared_text(texts): texts.total() for texts in groups.values()}
    return Counter(dict(Counter(found).most_common()))
