"""Work on several chains at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Workers:
    """Threads. They start at the first use and stay until the object is gone."""

    def __init__(self, count: int = 1) -> None:
        """Use at most ``count`` threads; with 1, the caller's thread does all work."""
        self.count = count

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.count)

    def map(self, work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
        """Call ``work`` for all items, the first ones first; return the results in order.

        ``work`` must not call `map` of the same object.
        """
        if self.count <= 1 or len(items) <= 1:
            return [work(item) for item in items]
        return list(self._pool.map(work, items))
