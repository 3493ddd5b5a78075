"""Limits the time that an invocation uses to name outstanding units for events and callbacks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any

from xorack.core.budget import Budget
from xorack.core.chain import Chain

CONSUMERS_SHARE = 0.25
"""The share of the consumer's time. Senders can choose ids that take long to name; a sweep
then names the units of the chains that are left."""
SWEEPERS_SHARE = 0.75
"""The share of the time that a sweep has left when it publishes events. The last quarter is
for events that name no units."""


class NamingTime:
    """Builds reports of ended chains. Naming the units of failed chains uses a share of the time.

    Publishers and threads may share an object.
    """

    def __init__(self, budget: Budget, share: float = CONSUMERS_SHARE) -> None:
        self._budget, self._share = budget, share
        self._lock = threading.Lock()

    @cached_property
    def _seconds_left(self) -> float:
        return self._share * self._budget.left()

    def in_time(self, chain: Chain, make: Callable[[Chain], Any]) -> Any:
        """Make a chain's report; return None if there is not enough time."""
        if chain.status != "failed":
            return make(chain) if self._budget.left() > 0 else None
        # Only one thread computes at a time, because threads do not speed up computation, and each
        # thread measures its own time.
        with self._lock:
            left = self._budget.left()
            if left <= 0 or self._seconds_left <= 0:
                return None
            report = make(chain)
            self._seconds_left -= left - self._budget.left()
            return report
