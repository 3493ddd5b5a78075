"""The options of a load, and the plan of each of its chains: functions of the seed alone."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from typing import Any

from xorack.core.errors import ArgumentError
from xorack.core.hashing import unit_id

TAG = re.compile(r'"tag":"([^"]+)"')
"""The tags in a message's text."""
MAX_DELAY_SECONDS = 2
"""Longest delay of a message."""
BAD = {"not JSON": "body: ", "changed create": "already exists"}
"""Bad requests -> a part of the reason in the dead-letter queue."""
_MAX_LOST = 5


def option(default: Any, help_text: str, low: float = 0, high: float = 1) -> Any:
    """Declare an option of the command; a number from `low` to `high`, by default a probability."""
    return field(default=default, metadata={"help": help_text, "range": (low, high)})


@dataclass(frozen=True, kw_only=True)
class Options:
    """A load and its faults. Equal options make equal chains and messages, besides the run's name.

    The faults are probabilities. The fields' help is that of the command's options.
    """

    seed: int
    chains: int = option(100, "Chains.", 1, 1_000_000)
    units: str = option("1:50,100:40,1000:10", "Units of a chain, by share.")
    fold: int = option(1, "Units that a request finishes.", 1, 1_000_000)
    message_bytes: int = option(250_000, "Largest body of a message.", 1024, 1 << 20)
    rate: float = option(1e6, "Most messages a second.", 0.1, 1e6)
    duplicate: float = option(0.0, "Messages sent again: soon, and when all chains have ended.")
    delay: float = option(0.0, "Messages that SQS delays.")
    reorder: float = option(0.0, "Chains that send their create last.")
    lose: float = option(0.0, "Chains of which one to five units never finish.")
    bad: float = option(0.0, "Chains with a request that is malformed or that they reject.")
    patience: float = option(300.0, "Seconds without progress after which to give up.", 1, 86_400)

    def __post_init__(self) -> None:
        """Reject sizes that do not exist."""
        if not any(self.sizes.values()):
            raise ArgumentError("units", self.units, "a size with a share above 0")

    @cached_property
    def sizes(self) -> dict[int, float]:
        """Numbers of units, each with its weight: of ``100`` or ``1:50,100:40,10000:10``."""
        parts = self.units.split(",")
        matches = [re.fullmatch(r"([1-9]\d{0,6})(?::(\d{1,6}(?:\.\d{1,6})?))?", p) for p in parts]
        sizes = {int(match[1]): float(match[2] or 1) for match in matches if match}
        if len(sizes) < len(parts):
            expected = "units:share,... each once, such as 100 or 1:50,100:40,10000:10"
            raise ArgumentError("units", self.units, expected)
        return sizes

    def plan(self, run: str, number: int) -> Plan:
        """Plan a chain of a run by its number."""
        draw = random.Random(f"{self.seed}/chain/{number}")
        units = draw.choices([*self.sizes], [*self.sizes.values()])[0]
        lost, bad = 0, None
        if draw.random() < self.lose:
            lost = draw.randint(1, min(_MAX_LOST, max(1, units - 1)))
        if draw.random() < self.bad:
            bad = draw.choice(list(BAD))
        return Plan(self, f"{run}/{number}", number, units, lost, draw.random() < self.reorder, bad)

    def plans(self, run: str) -> Iterator[Plan]:
        """Plan the chains of a run."""
        return (self.plan(run, number) for number in range(self.chains))


@dataclass(frozen=True)
class Plan:
    """What a chain sends, and so its expected end."""

    options: Options
    tag: str
    number: int
    units: int  # the root included
    lost: int  # units that never finish: the last ones
    reverse: bool  # the create goes last
    bad: str | None  # the request of `BAD` that it sends besides

    @property
    def finished(self) -> int:
        """Units that finish."""
        return self.units - self.lost

    @property
    def requests(self) -> int:
        """Requests, without a bad one."""
        root = 1 if self.finished else 0
        return 1 + root + ceil(max(0, self.finished - root) / self.options.fold)

    def unit(self, position: int) -> int:
        """Return a unit's id; the root's position is 0."""
        return unit_id("measure", self.options.seed, self.number, position)

    def outstanding(self) -> list[int]:
        """Return the lost units."""
        return [self.unit(position) for position in range(self.finished, self.units)]
