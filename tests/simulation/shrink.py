"""Make a failing schedule small: fewer chains, kinds of faults, requests and faults.

Whatever is left out changes the order of all that follows, so that the same seed may well pass
without being right; each smaller schedule is therefore tried with several salts.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import replace
from random import Random

from tests.simulation.schedule import Recipe, Result, Schedule, run
from tests.simulation.world import KINDS

_SALTS = 12


class Shrinker:
    """Shrinks one recipe.

    Attributes:
        best: The smallest failing recipe so far.
        runs: Schedules that it took.
    """

    def __init__(self, failing: Result, seconds: float = 60.0) -> None:
        """Begin with a failing schedule, and stop after so many seconds."""
        self.best = failing.recipe
        self.result = failing
        self.until = time.monotonic() + seconds
        self.runs = 0

    def _fails(self, recipe: Recipe, salts: Iterable[int]) -> bool:
        for salt in salts:
            if time.monotonic() > self.until:
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
        left = Schedule(self.best).positions()
        size = len(left) // 2
        while size:
            at = 0
            while at < len(left):
                fewer = left[:at] + left[at + size :]
                if fewer and self._fails(
                    replace(self.best, requests=tuple(fewer)), self._salts()[:4]
                ):
                    left = fewer
                else:
                    at += size
            size //= 2

    def _faults(self) -> None:
        """Few faults, of any salt: what is left out changes all that comes after."""
        if self._fails(replace(self.best, faults=()), self._salts()):
            return
        random = Random(0)
        drawn = {}
        for salt in self._salts():
            self.runs += 1
            drawn[salt] = run(replace(self.best, salt=salt)).injected
        for number in (1, 2, 3):
            for _ in range(150 * number):
                salt = random.choice(list(drawn))
                if len(drawn[salt]) < number:
                    continue
                faults = tuple(sorted(random.sample(drawn[salt], number)))
                if self._fails(replace(self.best, faults=faults), (salt,)):
                    return
        self._fewer_faults()

    def _fewer_faults(self) -> None:
        """Of many faults, as many as can be left out."""
        salt = (self.best.salt,)
        faults = list(self.result.injected)
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
