"""The time of an invocation: what a call may take, what is kept for later steps. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple


class TimeOuts(NamedTuple):
    """The time-outs of one attempt of a call, in seconds."""

    connect: float
    read: float

    @classmethod
    def within(cls, seconds: float) -> TimeOuts:
        """Return the time-outs of an invocation of `seconds`: a call may take a part of them."""
        seconds = max(1.2, seconds)  # shorter ones would fail each call
        return cls(min(1.0, seconds / 12), min(5.0, seconds / 12))

    @property
    def longest_call(self) -> float:
        """Seconds that a call of one attempt takes at most."""
        return self.connect + self.read


_NONE = TimeOuts(0, 0)


@dataclass(frozen=True)
class Budget:
    """The time of one step of an invocation.

    A call starts only if the longest call, and one of each later step, can end in time.
    """

    seconds_left: Callable[[], float] = lambda: inf
    time_outs: TimeOuts = _NONE
    later_steps: int = 0

    def before(self, later_steps: int) -> Budget:
        """Return the budget of a step that this number of steps follows."""
        return replace(self, later_steps=later_steps)

    def left(self) -> float:
        """Return the seconds left in which calls of this step may start."""
        longest = self.time_outs.longest_call
        # Metrics and the response take time after the last call.
        reserve = (self.later_steps + 1) * longest + min(1.0, longest / 2)
        return self.seconds_left() - reserve


UNLIMITED = Budget()
