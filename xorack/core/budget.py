"""The time budget of an invocation: how long a call may take and how much is reserved. Pure."""

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
        """Return the time-outs for an invocation of `seconds`.

        One call gets a small part of this time.
        """
        seconds = max(1.2, seconds)  # with shorter time-outs, every call would fail
        return cls(min(1.0, seconds / 12), min(5.0, seconds / 12))

    @property
    def longest_call(self) -> float:
        """The longest time in seconds that a call of one attempt can take."""
        return self.connect + self.read


_NONE = TimeOuts(0, 0)


@dataclass(frozen=True)
class Budget:
    """The time of one step of an invocation.

    A call starts only if this call and one call of each later step can end in time. Each of them is
    assumed to take the longest possible time.
    """

    seconds_left: Callable[[], float] = lambda: inf
    time_outs: TimeOuts = _NONE
    later_steps: int = 0

    def before(self, later_steps: int) -> Budget:
        """Return the budget of a step after which `later_steps` more steps follow."""
        return replace(self, later_steps=later_steps)

    def left(self) -> float:
        """Return the seconds during which calls of this step may still start."""
        longest = self.time_outs.longest_call
        # After the last call, writing metrics and returning the response also takes time.
        reserve = (self.later_steps + 1) * longest + min(1.0, longest / 2)
        return self.seconds_left() - reserve


UNLIMITED = Budget()
