"""A circuit breaker: it stops calls to a failing service for some time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_FAILURES = 3
_PAUSE_SECONDS = 30.0


class CircuitBreaker:
    """A circuit breaker. Threads may share it.

    Three failures in a row open the circuit. While it is open, one call after each pause may test
    the service. If such a call succeeds, the circuit closes.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock  # seconds
        self._failures = 0
        self._next_probe = 0.0
        self._lock = threading.Lock()

    def allows(self) -> bool:
        with self._lock:
            if self._failures < _FAILURES:
                return True
            now = self._clock()
            if now < self._next_probe:
                return False
            self._next_probe = now + _PAUSE_SECONDS
            return True

    def record(self, *, success: bool) -> None:
        with self._lock:
            self._failures = 0 if success else self._failures + 1
            self._next_probe = self._clock() + _PAUSE_SECONDS
