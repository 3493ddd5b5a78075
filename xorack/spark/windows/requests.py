"""The requests of windows over a log. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from xorack.acker.partition_names import shortened
from xorack.core.checks import MAX_DETAIL_BYTES
from xorack.core.hashing import unit_id
from xorack.core.request import Request

_CELLS = 16


def create(tag: str, detail: Mapping[str, Any], keys: Iterable[str], **times: Any) -> Request:
    """Return the request that creates a window's chain, with a unit for each partition.

    The detail has ``ranges``, a digest of the window's positions, which all units depend on.
    """
    units = [unit_id(tag, detail["ranges"], key) for key in keys]
    named = {**detail, "partitions": shortened(keys)}
    if len(json.dumps(named)) <= MAX_DETAIL_BYTES:
        detail = named
    return Request.create(tag, "open", starts=units, cells=_CELLS, detail=detail, **times)


def finish(tag: str, ranges: str, key: str) -> Request:
    """Return the request that finishes a partition of a window: the same from every sender."""
    unit = unit_id(tag, ranges, key)
    return Request.stamp_(tag, f"pass/{unit:016x}", finishes=[unit], cells=_CELLS)
