"""The requests of windows over a log, and the names of their units: `xorack.spark` has the rest."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from itertools import groupby, islice
from typing import Any

from xorack.core.checks import MAX_DETAIL_BYTES
from xorack.core.hashing import unit_id
from xorack.core.request import Request

_CELLS = 16
_MOST_NAMED = 10_000
_NUMBERED = re.compile(r"(.*?)(0|[1-9][0-9]{0,8})", re.DOTALL)


def create(tag: str, detail: Mapping[str, Any], keys: Iterable[str], **times: Any) -> Request:
    """Return the request that creates a window's chain, with a unit for each partition.

    The detail has ``ranges``, a digest of the window's positions, which all units depend on.
    """
    units = [unit_id(tag, detail["ranges"], key) for key in keys]
    named = {**detail, "partitions": _shortened(keys)}
    if len(json.dumps(named)) <= MAX_DETAIL_BYTES:
        detail = named
    return Request.create(tag, "open", starts=units, cells=_CELLS, detail=detail, **times)


def finish(tag: str, ranges: str, key: str) -> Request:
    """Return the request that finishes a partition of a window: the same from every sender."""
    unit = unit_id(tag, ranges, key)
    return Request.stamp_(tag, f"pass/{unit:016x}", finishes=[unit], cells=_CELLS)


def _shortened(keys: Iterable[str]) -> list[str]:
    """Join names that end in consecutive numbers: ``orders/0-511``."""
    numbers: dict[str, list[int]] = {}
    for match in filter(None, map(_NUMBERED.fullmatch, keys)):
        numbers.setdefault(match[1], []).append(int(match[2]))
    texts = [key for key in keys if not _NUMBERED.fullmatch(key)]
    for head, found in numbers.items():
        # Consecutive numbers are the same distance away from their places.
        for _, pairs in groupby(enumerate(sorted(found)), lambda pair: pair[1] - pair[0]):
            run = [number for _, number in pairs]
            texts.append(f"{head}{run[0]}-{run[-1]}")
    return texts


def partition_names(tag: str, detail: Mapping[str, Any]) -> dict[int, str]:
    """Return a window's partitions by their units, as the detail of its chain tells them.

    Any sender may have written the detail.
    """
    ranges, texts = detail.get("ranges"), detail.get("partitions")
    if not isinstance(ranges, str) or not isinstance(texts, list):
        return {}
    names = islice((name for text in texts for name in _expanded(str(text))), _MOST_NAMED)
    return {unit_id(tag, ranges, name): name for name in names}


def _expanded(text: str) -> Iterable[str]:
    first, _, last = text.rpartition("-")
    match = _NUMBERED.fullmatch(first)
    numbers = range(int(match[2]), int(last) + 1) if match and last.isdecimal() else ()
    return (f"{match[1]}{number}" for number in numbers) if match and numbers else [text]
