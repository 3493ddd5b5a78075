"""Campaigns: many schedules and their figures."""

import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from tests.simulation.recipe import Result
from tests.simulation.schedule import run
from tests.support.fault_kinds import FAULTS


@dataclass
class Campaign:
    """The figures of many schedules.

    Attributes:
        largest: Number of chains in the largest schedule.
        reused: Chains whose tag was used before.
        months: Schedules in which more than 90 days pass.
    """

    schedules: int = 0
    chains: int = 0
    largest: int = 0
    requests: int = 0
    reused: int = 0
    months: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    failing: list[Result] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, result: Result) -> None:
        self.schedules += 1
        self.chains += len(result.chains)
        self.largest = max(self.largest, len(result.chains))
        self.requests += len(result.requests)
        self.reused += result.reused
        self.months += result.days > 90
        self.faults += result.faults
        self.ends += result.ends
        self.failing += [result] if result.violation else []

    def line(self) -> str:
        """Return the figures in a line."""
        return (
            f"{self.schedules:,} schedules, {self.chains:,} chains, {self.requests:,} requests, "
            f"{self.faults.total():,} faults, {len(self.failing)} violations, {self.seconds:.0f} s"
        )

    def table(self) -> str:
        """Return the figures in Markdown."""
        rows = {
            "schedules": self.schedules,
            "chains": self.chains,
            "chains in the largest schedule": self.largest,
            "requests, without their copies": self.requests,
            "chains whose tag was used before": self.reused,
            "schedules in which more than 90 days pass": self.months,
            "faults": self.faults.total(),
            "seconds": round(self.seconds),
            "**violations**": len(self.failing),
        }
        lines = ["| | |", "| --- | ---: |", *(f"| {name} | {n:,} |" for name, n in rows.items())]
        lines += ["", "| fault | effect | injected |", "| --- | --- | ---: |"]
        for kind, fault in FAULTS.items():
            lines.append(f"| {kind} | {fault.description} | {self.faults[kind]:,} |")
        lines += ["", "| the chain ended | chains |", "| --- | ---: |"]
        lines += [f"| {end} | {number:,} |" for end, number in self.ends.most_common()]
        return "\n".join(lines)


def campaign(seeds: Iterable[int], max_faults: float | None = None) -> Campaign:
    """Run schedules until one fails or the maximum number of faults is injected."""
    figures = Campaign()
    begin = time.monotonic()
    for seed in seeds:
        figures.add(run(seed))
        figures.seconds = time.monotonic() - begin
        if figures.schedules % 200 == 0 and sys.stderr.isatty():
            print(figures.line(), end="\r", file=sys.stderr, flush=True)
        if figures.failing or figures.faults.total() >= (max_faults or inf):
            break
    return figures
