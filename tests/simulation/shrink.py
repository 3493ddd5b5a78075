"""Shrink a failing schedule: fewer chains, requests and faults.

Leaving something out changes the order of everything after it, so a smaller schedule of the same
seed may pass although the code is wrong. Several salts are therefore tried.
"""

from collections.abc import Callable
from dataclasses import replace

from tests.simulation.schedule import Recipe, Schedule, run

_SALTS = 12
_MAX_RUNS = 2_000


def _invariant(result: Schedule) -> str:
    """Return the invariant that a schedule violates; "" for none."""
    _, _, violation = result.violation.partition(": ")
    return violation.partition(" (")[0]


class Shrinker:
    """Shrinks one recipe, to a smaller one that violates the same invariant.

    Attributes:
        result: The result of the smallest failing recipe so far.
        runs: Number of schedules that were run.
    """

    def __init__(self, failing: Schedule) -> None:
        self.result = failing
        self.runs = 0

    @property
    def recipe(self) -> Recipe:
        return self.result.recipe

    def shrink(self) -> Schedule:
        """Return the result of the smallest recipe that still fails."""
        requests = self.result.requests
        self._leave_out(
            self.result.chains,
            lambda chains: {"requests": [one for one in requests if one[0] in chains]},
        )
        for salts in (4, 3 * _SALTS):
            self._leave_out(self.result.requests, lambda some: {"requests": some}, salts)
        if not self._fails({"faults": []}):
            self._leave_out(self.result.world.injected, lambda some: {"faults": some}, salts=1)
        return self.result

    def _fails(self, change: dict, salts: int = _SALTS) -> bool:
        """Tell if a changed recipe fails, with its own salt or another; keep the result."""
        recipe = replace(self.recipe, **change)
        for salt in [recipe.salt, *(salt for salt in range(salts) if salt != recipe.salt)][:salts]:
            if self.runs >= _MAX_RUNS:
                return False
            self.runs += 1
            result = run(replace(recipe, salt=salt))
            if _invariant(result) == _invariant(self.result):
                self.result = result
                return True
        return False

    def _leave_out(self, items: list, change: Callable[[list], dict], salts: int = _SALTS) -> None:
        """Leave out parts of a list, large ones first; `change` gives the recipe's new fields."""
        size = max(1, len(items) // 2)
        while size:
            at = 0
            while at < len(items):
                fewer = items[:at] + items[at + size :]
                if fewer and self._fails(change(fewer), salts):
                    items = fewer
                else:
                    at += size
            size //= 2
