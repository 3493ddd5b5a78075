"""Work on several chains at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["map_parallel"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def map_parallel(
    work: Callable[[_Item], _Result], items: Sequence[_Item], workers: int
) -> list[_Result]:
    """Call ``work`` for all items with up to ``workers`` threads; return the results in order."""
    if workers <= 1 or len(items) <= 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(workers, len(items))) as pool:
        return list(pool.map(work, items))
