"""The names of a window's partitions in the detail of its chain: shorten and expand them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import groupby, islice
from typing import Any

from xorack.core.hashing import unit_id

__all__ = ["partition_names", "shortened"]

_MAX_NAMED = 10_000
_NUMBERED = re.compile(r"(.*?)(0|[1-9][0-9]{0,8})", re.DOTALL)


def shortened(keys: Iterable[str]) -> list[str]:
    """Join names that end in consecutive numbers: ``orders/0-511``."""
    numbers: dict[str, list[int]] = {}
    for match in filter(None, map(_NUMBERED.fullmatch, keys)):
        numbers.setdefault(match[1], []).append(int(match[2]))
    texts = [key for key in keys if not _NUMBERED.fullmatch(key)]
    for head, sequence in numbers.items():
        # In a run of consecutive numbers, the difference between number and position is constant.
        for _, pairs in groupby(enumerate(sorted(sequence)), lambda pair: pair[1] - pair[0]):
            run = [number for _, number in pairs]
            texts.append(f"{head}{run[0]}-{run[-1]}")
    return texts


def partition_names(tag: str, detail: Mapping[str, Any]) -> dict[int, str]:
    """Return the names of a window's partitions by their units, read from its chain's detail.

    Any sender may have written the detail, so an unsuitable detail gives no names.
    """
    ranges, texts = detail.get("ranges"), detail.get("partitions")
    if not isinstance(ranges, str) or not isinstance(texts, list):
        return {}
    names = islice((name for text in texts for name in _expanded(str(text))), _MAX_NAMED)
    return {unit_id(tag, ranges, name): name for name in names}


def _expanded(text: str) -> Iterable[str]:
    first, _, last = text.rpartition("-")
    match = _NUMBERED.fullmatch(first)
    numbers = range(int(match[2]), int(last) + 1) if match and last.isdecimal() else ()
    return (f"{match[1]}{number}" for number in numbers) if match and numbers else [text]
