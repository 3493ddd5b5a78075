"""What determines a schedule, and its result."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field

from tests.simulation.world import Violation


@dataclass(frozen=True)
class Recipe:
    """Everything that determines a schedule; only the seed, unless it is shrunk.

    Attributes:
        salt: Selects another order and other faults for the same requests.
        requests: Requests to keep: [chain, position]; None: all.
        faults: Draw numbers of the faults to keep; None: all.
        without: Kinds of faults to leave out.
    """

    seed: int
    salt: int = 0
    requests: list[list[int]] | None = None
    faults: list[int] | None = None
    without: list[str] = field(default_factory=list)

    @staticmethod
    def parse(text: str) -> Recipe:
        """Parse a seed, or what `__str__` returns."""
        values = json.loads(text)
        return Recipe(values) if isinstance(values, int) else Recipe(**values)

    def __str__(self) -> str:
        default = asdict(Recipe(self.seed))
        values = {name: value for name, value in asdict(self).items() if value != default[name]}
        return json.dumps({"seed": self.seed, **values})


@dataclass(frozen=True)
class Result:
    """The result of a schedule.

    Attributes:
        requests: Kept requests: [chain, position].
        faults: Injected faults: kind -> number.
        injected: Draw numbers of the injected faults.
        ends: How chains ended: status or reason -> number.
        reused: Number of chains whose tag was used before.
        days: Days that passed.
        trace: Log lines, if requested.
    """

    recipe: Recipe
    violation: Violation | None
    requests: list[list[int]]
    faults: Counter[str]
    injected: list[int]
    ends: Counter[str]
    reused: int
    days: float
    trace: list[str] | None

    @property
    def chains(self) -> list[int]:
        return sorted({chain for chain, _ in self.requests})
