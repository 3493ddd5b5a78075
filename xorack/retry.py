"""When to try again, and how long to wait: exponential back-off with full jitter.

Source: Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015. The policy is
apart from its state, and sleep and randomness are given, so that tests need no time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Retry", "RetryPolicy"]


def _forever() -> float:
    return float("inf")


@dataclass(frozen=True)
class RetryPolicy:
    """How often and for how long to try.

    Attributes:
        attempts: Most tries, the first included.
        base: Seconds; the n-th wait is drawn from 0 to ``base * 2**n``.
        cap: Seconds; the most of one wait.
        sleep: Waits so many seconds.
        draw: Draws from 0 to 1.
        time_left: Seconds left for all; no wait goes beyond.
    """

    attempts: int = 50
    base: float = 0.01
    cap: float = 1.0
    sleep: Callable[[float], None] = time.sleep
    draw: Callable[[], float] = field(default=random.random)
    time_left: Callable[[], float] = _forever

    def start(self) -> Retry:
        """A new count of tries."""
        return Retry(self)


class Retry:
    """The state of one operation's tries."""

    def __init__(self, policy: RetryPolicy) -> None:
        self.policy = policy
        self.attempt = 1

    def again(self) -> bool:
        """Wait before the next try.

        Returns:
            False, without a wait, if there is to be none: tries or time are spent.
        """
        policy = self.policy
        if self.attempt >= policy.attempts:
            return False
        most = min(policy.cap, policy.base * 2 ** min(self.attempt - 1, 32))
        wait = policy.draw() * most
        if wait >= policy.time_left():
            return False
        self.attempt += 1
        policy.sleep(wait)
        return True
