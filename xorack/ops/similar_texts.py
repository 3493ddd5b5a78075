"""Texts with the same cause: they differ only in times, numbers, ids or quoted values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

__all__ = ["cause_of", "count_causes", "shared_text"]

_HOLE = "…"
_VALUE = re.compile(
    # A long value in an error message is cut off, so it has no closing quote.
    r"""(?<=: )b?(?:'[^']{70,}|"[^"]{70,})\.\.\.(?=,)"""
    # A quote after two letters is an apostrophe, as in "the chain's".
    r"""|(?<![a-z][a-z])'(?:[^'\\]|\\.)*'(?:\.\.\.)?|"(?:[^"\\]|\\.)*"(?:\.\.\.)?"""
    r"""|\b[0-9a-f]{8,}(?:-[0-9a-f]{4,})*\b"""  # ids, UUIDs
    r"""|\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)?"""
    r"""|\d+(?:[.,:]\d+)*"""
    rf"|'?{_HOLE}'?"
)


def cause_of(text: str) -> str:
    """Replace each value in a text by `…`. Texts with the same cause become equal."""
    return _VALUE.sub(_HOLE, text)


def shared_text(texts: Iterable[str]) -> str:
    """Return the text that texts of one cause share, with the values that all of them have."""
    shared: list[str] = []
    values: list[str] = []
    for text in texts:
        values_found = _VALUE.findall(text)
        if not shared:
            shared, values = _VALUE.split(text), values_found
        elif len(values_found) == len(values):
            values = [
                old if old == new else _hole(old)
                for old, new in zip(values, values_found, strict=True)
            ]
    return "".join(part for pair in zip(shared, [*values, ""], strict=True) for part in pair)


def _hole(value: str) -> str:
    return f"'{_HOLE}'" if value[0] in "'\"" else _HOLE


def count_causes(texts: Iterable[str]) -> Counter[str]:
    """Count texts by cause, the most common cause first. The key is the text that they share."""
    groups: dict[str, Counter[str]] = {}
    for text in texts:
        groups.setdefault(cause_of(text), Counter())[text] += 1
    counts = {shared_text(texts): texts.total() for texts in groups.values()}
    return Counter(dict(Counter(counts).most_common()))
