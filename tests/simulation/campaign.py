"""Many schedules, and their figures."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.simulation.schedule import Result, run
from tests.simulation.world import KINDS


@dataclass
class Campaign:
    """What many schedules came to.

    Attributes:
        failing: Those in which something did not hold.
        most_chains: Chains of the largest.
        ends: How the chains ended: status or reason -> how many.
    """

    schedules: int = 0
    chains: int = 0
    most_chains: int = 0
    requests: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    failing: list[Result] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, result: Result) -> None:
        self.schedules += 1
        self.chains += result.chains
        self.most_chains = max(self.most_chains, result.chains)
        self.requests += result.requests
        self.faults += result.faults
        self.ends += result.ends
        if result.violation is not None:
            self.failing.append(result)

    def line(self) -> str:
        """The figures in a line."""
        return (
            f"{self.schedules:,} schedules, {self.chains:,} chains, {self.requests:,} requests, "
            f"{self.faults.total():,} faults, {len(self.failing)} violations, {self.seconds:.0f} s"
        )

    def table(self) -> str:
        """The figures in Markdown."""
        rows = [
            ("schedules", self.schedules),
            ("chains", self.chains),
            ("chains in the largest schedule", self.most_chains),
            ("requests, without their copies", self.requests),
            ("faults", self.faults.total()),
            ("seconds", round(self.seconds)),
            ("**violations**", len(self.failing)),
        ]
        lines = ["| | |", "| --- | ---: |", *(f"| {name} | {count:,} |" for name, count in rows)]
        lines += ["", "| fault | what it does | injected |", "| --- | --- | ---: |"]
        lines += [f"| {kind} | {KINDS[kind]} | {self.faults[kind]:,} |" for kind in KINDS]
        lines += ["", "| the chain ended | chains |", "| --- | ---: |"]
        lines += [f"| {end} | {count:,} |" for end, count in self.ends.most_common()]
        return "\n".join(lines)


def campaign(
    seeds: Iterable[int],
    *,
    faults: int | None = None,
    patience: int = 1,
    progress: Callable[[Campaign], None] = lambda done: None,
) -> Campaign:
    """Run many schedules.

    Args:
        seeds: Their seeds.
        faults: Stop once so many were injected.
        patience: Stop after so many failing schedules.
        progress: Called after each schedule.
    """
    done = Campaign()
    begin = time.monotonic()
    for seed in seeds:
        done.add(run(seed))
        done.seconds = time.monotonic() - begin
        progress(done)
        if len(done.failing) >= patience or (faults and done.faults.total() >= faults):
            break
    return done
