"""Make a failing schedule small: fewer chains, kinds of faults, requests and faults.

Whatever is left out changes the order of all that follows, so that the same seed may well pass
without being right; each smaller schedule is therefore tried with several salts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from tests.simulation.schedule import Recipe, Result, run
from tests.simulation.world import KINDS

_SALTS = 12


class Shrinker:
    """Shrinks one recipe.

    Attributes:
        best: The smallest failing recipe so far.
        runs: Schedules that it took.
    """

    def __init__(self, failing: Result, most: int = 600) -> None:
        self.best = failing.recipe
        self.result = failing
        self.most = most
        self.runs = 0

    def _fails(self, recipe: Recipe, salts: Iterable[int]) -> bool:
        for salt in salts:
            if self.runs >= self.most:
                return False
            self.runs += 1
            result = run(replace(recipe, salt=salt))
            if result.violation is not None:
                self.best, self.result = result.recipe, result
                return True
        return False

    def shrink(self) -> Result:
        """Shrink.

        Returns:
            What came of the smallest recipe that still fails.
        """
        self._chains()
        self._kinds()
        self._requests()
        self._faults()
        return self.result

    def _salts(self) -> list[int]:
        own = self.best.salt
        return [own, *(salt for salt in range(_SALTS) if salt != own)]

    def _chains(self) -> None:
        chains = (
            list(range(self.result.chains)) if self.best.chains is None else [*self.best.chains]
        )
        named = [int(n) for n in re.findall(r"chain-(\d+)", str(self.result.violation))[:1]]
        if named and self._fails(replace(self.best, chains=tuple(named)), range(3 * _SALTS)):
            return
        size = max(1, len(chains) // 2)
        while size and len(chains) > 1:
            for at in range(0, len(chains), size):
                fewer = chains[:at] + chains[at + size :]
                if fewer and self._fails(replace(self.best, chains=tuple(fewer)), self._salts()):
                    chains = fewer
                    break
            else:
                size //= 2

    def _kinds(self) -> None:
        kinds = [kind for kind in KINDS if kind not in self.best.quiet and kind != "timed out"]
        if self._fails(replace(self.best, quiet=tuple(sorted(KINDS))), self._salts()):
            return
        for kind in kinds:
            quiet = tuple(sorted((*self.best.quiet, kind)))
            self._fails(replace(self.best, quiet=quiet), self._salts()[:4])

    def _requests(self) -> None:
        numbers = range(self.result.chains) if self.best.chains is None else list(self.best.chains)
        left = [(number, at) for number in numbers for at in range(200)]
        size = 64
        while size:
            at = 0
            while at < len(left):
                without = tuple(sorted((*self.best.without, *left[at : at + size])))
                if self._fails(replace(self.best, without=without), self._salts()[:4]):
                    del left[at : at + size]
                else:
                    at += size
            size //= 4

    def _faults(self) -> None:
        salt = (self.best.salt,)
        if self._fails(replace(self.best, faults=()), salt):
            return
        faults = list(self.result.injected)
        if not self._fails(replace(self.best, faults=tuple(faults)), salt):
            return
        size = max(1, len(faults) // 2)
        while size:
            at = 0
            while at < len(faults):
                fewer = faults[:at] + faults[at + size :]
                if self._fails(replace(self.best, faults=tuple(fewer)), salt):
                    faults = fewer
                else:
                    at += size
            size //= 2


def shrink(failing: Result) -> Result:
    """The smallest schedule found that fails as this one does, or otherwise."""
    return Shrinker(failing).shrink()
