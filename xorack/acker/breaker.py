"""A circuit breaker: calls to a service that fails are held back for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class CircuitBreaker:
    """A circuit breaker. Threads may share one.

    It is closed at first. A number of failures in a row opens it. While it is open, one call at a
    time may probe the service, the first after a pause; a success closes it.
    """

    def __init__(
        self,
        *,
        failures: int = 3,
        pause_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = failures
        self._pause_seconds = pause_seconds
        self._clock = clock
        self._failures = 0
        self._next_probe = 0.0
        self._lock = threading.Lock()

    def allows(self) -> bool:
        """Return True if a call may be made now."""
        with self._lock:
            if self._failures < self._limit:
                return True
            now = self._clock()
            if now < self._next_probe:
                return False
            self._next_probe = now + self._pause_seconds
            return True

    def record(self, *, success: bool) -> None:
        """Record the result of a call."""
        with self._lock:
            self._failures = 0 if success else self._failures + 1
            self._next_probe = self._clock() + self._pause_seconds
