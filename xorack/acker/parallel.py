"""Threads that work on several chains at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_AHEAD = 1000
"""The most items that are begun while the caller waits for the result of an earlier item."""


class Workers:
    """A pool of threads. They start at the first use and end with the object."""

    def __init__(self, count: int = 1) -> None:
        """Use at most ``count`` threads; with 1, the caller's thread does all work."""
        self.count = count

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.count)

    def map(self, work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
        """Call ``work`` for all items in their order; return the results in the same order.

        ``work`` must not call a method of this object.
        """
        return list(self.results(work, items))

    def results(
        self, work: Callable[[_Item], _Result], items: Sequence[_Item]
    ) -> Iterator[_Result]:
        """Yield the results of `map` one by one, so that memory never holds all of them."""
        if self.count <= 1 or len(items) <= 1:
            yield from map(work, items)
            return
        running: deque[Future[_Result]] = deque()
        for item in items:
            running.append(self._pool.submit(work, item))
            if len(running) > _AHEAD:
                yield running.popleft().result()
        for future in running:
            yield future.result()
