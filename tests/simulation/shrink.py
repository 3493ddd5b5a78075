"""Shrink a failing schedule: fewer chains, kinds of faults, requests and faults.

Leaving something out changes the order of everything after it, so a smaller schedule of the same
seed may pass although the code is wrong. Several salts are therefore tried.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random

from tests.simulation.schedule import Recipe, Result, run
from tests.support.fault_kinds import FAULTS

_SALTS = 12


def _invariant(result: Result) -> str:
    """Return the invariant that a schedule violates; "" for none."""
    _, _, violation = str(result.violation or "").partition(": ")
    return violation.partition(" (")[0]


class Shrinker:
    """Shrinks one recipe, to a smaller one that violates the same invariant.

    Attributes:
        result: The result of the smallest failing recipe so far.
    """

    def __init__(self, failing: Result, max_runs: int = 2_000) -> None:
        self.result = failing
        self.invariant = _invariant(failing)
        self.runs = 0
        self.max_runs = max_runs

    @property
    def recipe(self) -> Recipe:
        return self.result.recipe

    def shrink(self) -> Result:
        """Return the result of the smallest recipe that still fails."""
        self._shrink_chains()
        self._shrink_kinds()
        self._shrink_requests()
        self._shrink_faults()
        return self.result

    def _fails(self, recipe: Recipe, salts: Iterable[int]) -> bool:
        for salt in salts:
            if self.runs >= self.max_runs:
                return False
            self.runs += 1
            result = run(replace(recipe, salt=salt))
            if _invariant(result) == self.invariant:
                self.result = result
                return True
        return False

    def _salts(self, number: int = _SALTS) -> list[int]:
        """Return the current salt and others."""
        own = self.recipe.salt
        return [own, *(salt for salt in range(number) if salt != own)][:number]

    def _shrink_list(self, items: list, salts: int, change: Callable[[list], dict]) -> None:
        """Leave out parts of a list, large ones first; `change` gives the recipe's new fields."""
        size = max(1, len(items) // 2)
        while size:
            at = 0
            while at < len(items):
                fewer = items[:at] + items[at + size :]
                if fewer and self._fails(replace(self.recipe, **change(fewer)), self._salts(salts)):
                    items = fewer
                else:
                    at += size
            size //= 2

    def _shrink_chains(self) -> None:
        requests = self.result.requests

        def only(chains: list[int]) -> dict:
            return {"requests": [request for request in requests if request[0] in chains]}

        named = re.findall(r"chain-(\d+)", str(self.result.violation))[:1]
        recipe = replace(self.recipe, **only([int(number) for number in named]))
        if not (named and self._fails(recipe, range(3 * _SALTS))):
            self._shrink_list(self.result.chains, _SALTS, only)

    def _shrink_requests(self) -> None:
        for salts in (4, 3 * _SALTS):
            requests = self.result.requests
            self._shrink_list(requests, salts, lambda fewer: {"requests": fewer})

    def _shrink_kinds(self) -> None:
        if self._fails(replace(self.recipe, faults=[]), self._salts()):
            return
        for kind in FAULTS:
            without = [*self.recipe.without, kind]
            self._fails(replace(self.recipe, without=without), self._salts(4))

    def _shrink_faults(self) -> None:
        """Keep no fault, or a few of any salt, or what is left after leaving out many."""
        if self._fails(replace(self.recipe, faults=[]), self._salts()):
            return
        random = Random(0)
        injected = {}
        for salt in self._salts():
            self.runs += 1
            injected[salt] = run(replace(self.recipe, salt=salt)).injected
        for number in (1, 2, 3):
            for _ in range(150 * number):
                salt = random.choice(list(injected))
                if len(injected[salt]) < number:
                    continue
                faults = sorted(random.sample(injected[salt], number))
                if self._fails(replace(self.recipe, faults=faults), (salt,)):
                    return
        self._shrink_list(self.result.injected, 1, lambda fewer: {"faults": fewer})
