"""Work on several chains at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_AHEAD = 1000
"""Items that are worked on, or done, while the result of an earlier one is awaited."""


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

        ``work`` must not call a method of the same object.
        """
        return list(self.results(work, items))

    def results(
        self, work: Callable[[_Item], _Result], items: Sequence[_Item]
    ) -> Iterator[_Result]:
        """Do as `map`, but yield the results: of many, few have to stay in memory."""
        if self.count <= 1 or len(items) <= 1:
            yield from map(work, items)
            return
        running: deque[Future[_Result]] = deque()
        for item in items:
            running.append(self._pool.submit(work, item))
            if len(running) > _AHEAD:
                yield running.popleft().result()
        for one in running:
            yield one.result()
