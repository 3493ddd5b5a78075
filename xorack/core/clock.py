"""The clock, in the unit that chains are kept in."""

from __future__ import annotations

import time

__all__ = ["milliseconds"]


def milliseconds() -> int:
    """Now, whole milliseconds since 1970."""
    return time.time_ns() // 1_000_000
