"""The time that an invocation takes to name outstanding units for events and callbacks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any

from xorack.core.budget import Budget
from xorack.core.chain import Chain

_SHARE = 0.25
"""Share of an invocation's time. Senders may choose ids whose names take long to read out of a
stamp; the next sweep goes on with them."""


class NamingTime:
    """Builds reports of ended chains; naming the units of failed ones takes a share of the time.

    Channels and threads may share an object.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._lock = threading.Lock()

    @cached_property
    def _seconds_left(self) -> float:
        return _SHARE * self._budget.left()

    def in_time(self, chain: Chain, make: Callable[[Chain], Any]) -> Any:
        """Make a chain's report; return None if there is no time to make it."""
        if chain.status != "failed":
            return make(chain) if self._budget.left() > 0 else None
        # One at a time: threads that compute do not speed each other up, and the time adds up.
        with self._lock:
            left = self._budget.left()
            if left <= 0 or self._seconds_left <= 0:
                return None
            report = make(chain)
            self._seconds_left -= left - self._budget.left()
            return report
