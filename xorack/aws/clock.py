"""The clock, in milliseconds since the epoch."""

from __future__ import annotations

import time


def milliseconds() -> int:
    """Return the current time in whole milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
