"""When to try again, and how long to wait: exponential back-off with full jitter.

Source: Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015. The policy is
apart from its state, and sleep and randomness are given, so that tests need no time.

Who comes again and again to something that many want need not find out each time: `Crowd` keeps
how far apart the tries had to be. It grows with each that failed and shrinks with each operation
that needed one only, so that most tries succeed, however many there are (as the back-off of
Bharghavan et al., "MACAW", 1994).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Crowd", "Retry", "RetryPolicy"]

_MOST_DOUBLINGS = 32


def _forever() -> float:
    return float("inf")


@dataclass(eq=False)
class Crowd:
    """How many others seem to want the same thing.

    Attributes:
        level: The next wait is drawn from 0 to ``2**level`` times the policy's base, or times
            what a try took, if that is longer.
        took: Seconds that the last try took that others were faster than. A try that takes long
            gives others more time, and where all wait for a busy server it takes long.
    """

    level: int = 0
    took: float = 0.0


@dataclass(frozen=True)
class RetryPolicy:
    """How often and for how long to try.

    Attributes:
        attempts: Most tries, the first included.
        base: Seconds; the n-th wait is drawn from 0 to ``base * 2**n``.
        cap: Seconds; the most of one wait. Enough for some hundred writers of one item to leave
            each other room.
        sleep: Waits so many seconds.
        draw: Draws from 0 to 1.
        clock: Seconds since whenever.
        time_left: Seconds left for all; no wait goes beyond.
    """

    attempts: int = 50
    base: float = 0.01
    cap: float = 5.0
    sleep: Callable[[float], None] = time.sleep
    draw: Callable[[], float] = field(default=random.random)
    clock: Callable[[], float] = time.monotonic
    time_left: Callable[[], float] = _forever

    def start(self, crowd: Crowd | None = None) -> Retry:
        """A new count of tries.

        Args:
            crowd: What is known of others from earlier; kept up to date. None: nothing.
        """
        return Retry(self, crowd)


class Retry:
    """The state of one operation's tries.

    Attributes:
        attempt: The number of the try under way, from 1.
        waited: Seconds waited before it.
    """

    def __init__(self, policy: RetryPolicy, crowd: Crowd | None = None) -> None:
        self.policy = policy
        self.crowd = Crowd() if crowd is None else crowd
        self.attempt = 1
        self.waited = 0.0
        self.began = policy.clock()

    def _most(self) -> float:
        unit = max(self.policy.base, self.crowd.took)
        return min(self.policy.cap, unit * 2.0**self.crowd.level)

    def _drawn(self) -> float:
        return self.policy.draw() * self._most()

    def queue_up(self) -> None:
        """Wait before the first try, if there was a crowd the last time."""
        if self.crowd.level and (wait := self._drawn()) < self.policy.time_left():
            self.policy.sleep(wait)
            self.began = self.policy.clock()

    def succeeded(self) -> None:
        """The try under way did it: if it was the first, there are fewer others than thought."""
        if self.attempt == 1 and self.crowd.level:
            self.crowd.level -= 1
            self.crowd.took = self.policy.clock() - self.began

    def again(self, others: int = 0) -> bool:
        """Wait before the next try.

        Args:
            others: How often others were faster since the try began; 0 if it failed for another
                reason. The more, the longer are the waits after this one.

        Returns:
            False, without a wait, if there is to be none: tries or time are spent.
        """
        policy = self.policy
        if self.attempt >= policy.attempts:
            return False
        if others:
            self.crowd.took = policy.clock() - self.began
        wait = self._drawn()
        if wait >= policy.time_left():
            return False
        self.attempt += 1
        crowd = self.crowd
        for _ in range(max(1, others.bit_length())):
            if crowd.level < _MOST_DOUBLINGS and self._most() < policy.cap:
                crowd.level += 1
        self.waited = wait
        policy.sleep(wait)
        self.began = policy.clock()
        return True
