"""Retries: exponential back-off with full jitter.

Source: Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from xorack.core.budget import UNLIMITED, Budget
from xorack.core.errors import UnavailableError

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class RetryPolicy:
    """Limits of retries.

    Attributes:
        attempts: The most attempts, including the first.
        base_seconds: The n-th wait is random, from 0 to ``base_seconds * 2**n``.
        cap_seconds: The longest wait. It gives several hundred writers of one item time to finish.
        sleep: Waits for this number of seconds.
        draw: Returns a random number from 0 to 1.
    """

    attempts: int = 50
    base_seconds: float = 0.01
    cap_seconds: float = 5.0
    sleep: Callable[[float], None] = time.sleep
    draw: Callable[[], float] = random.random

    def start(self, budget: Budget = UNLIMITED) -> Retry:
        """Start the attempts of one operation. A wait takes at most half of the time left."""
        return Retry(self, budget)


class Retry:
    """The attempts of one operation: the number of the current attempt, and the wait before it."""

    def __init__(self, policy: RetryPolicy, budget: Budget) -> None:
        self.policy = policy
        self.budget = budget
        self.attempt = 1
        self.waited_seconds = 0.0

    def again(self) -> bool:
        """Wait before the next attempt; return False if no attempts or no time are left."""
        policy, left = self.policy, self.budget.left()
        if self.attempt >= policy.attempts or left <= 0:
            return False
        longest = policy.base_seconds * 2.0 ** min(self.attempt - 1, 64)
        # A longer wait would use up the time that the next attempt needs.
        self.waited_seconds = min(policy.draw() * min(policy.cap_seconds, longest), left / 2)
        self.attempt += 1
        policy.sleep(self.waited_seconds)
        return True

    def call(self, make: Callable[[], _Result]) -> _Result:
        """Make a call until it raises no UnavailableError, or `again` returns False."""
        while True:
            try:
                return make()
            except UnavailableError:
                if not self.again():
                    raise
