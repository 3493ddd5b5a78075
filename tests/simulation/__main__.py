"""Run schedules: one by its seed or recipe, or many with ``--seeds N``.

A failing schedule is shrunk and printed, with the command that replays it.

    python -m tests.simulation 985 --steps            what happens in the schedule of seed 985
    python -m tests.simulation --seeds 1000           seeds 0 to 999
    python -m tests.simulation 3 --mutant "the write has no condition"
"""

import argparse
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from tests.simulation.mutants import MUTANTS, mutated
from tests.simulation.schedule import Recipe, Result, run
from tests.simulation.shrink import Shrinker
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "recipe", type=Recipe.parse, nargs="?", help="a seed, or the recipe of a shrunk schedule"
    )
    parser.add_argument("--steps", action="store_true", help="print what happens")
    parser.add_argument("--no-shrink", action="store_true", help="do not shrink a failing schedule")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="break the code first")
    many = parser.add_argument_group("many schedules")
    many.add_argument("--seeds", type=int, help="number of schedules")
    many.add_argument("--first", type=int, default=0, help="the first seed")
    many.add_argument("--until-faults", type=float, help="stop after so many injected faults")
    many.add_argument("--table", action="store_true", help="print the figures in Markdown")
    return parser


def _print_failing(result: Result, options: argparse.Namespace) -> None:
    print(f"VIOLATION in the schedule of seed {result.recipe.seed}: {result.violation}")
    if result.recipe == Recipe(result.recipe.seed) and not options.no_shrink:
        shrinker = Shrinker(result)
        result = shrinker.shrink()
        print(f"shrunk by {shrinker.runs} more runs: {result.violation}")
    print("\n".join(run(result.recipe, trace=True).trace or []))
    words = [str(result.recipe), "--steps"]
    words += ["--mutant", options.mutant] if options.mutant else []
    print("replay: python -m tests.simulation " + shlex.join(words))


def _run(options: argparse.Namespace) -> int:
    """Run the requested schedules; return 1 after a violation, else 0."""
    if options.recipe is not None:
        figures = Campaign()
        result = run(options.recipe, trace=options.steps)
        figures.add(result)
        if not figures.failing:
            print("\n".join(result.trace or []))
    else:
        seeds = range(options.first, options.first + options.seeds)
        figures = campaign(seeds, max_faults=options.until_faults)
    print(figures.table() if options.table else figures.line())
    for failing in figures.failing:
        _print_failing(failing, options)
    return int(bool(figures.failing))


def main(arguments: list[str] | None = None) -> int:
    """Run the program; return 1 after a violation, else 0."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if (options.recipe is None) == (options.seeds is None):
        parser.error("either a seed, or --seeds")
    with mutated(options.mutant):
        return _run(options)


if __name__ == "__main__":
    sys.exit(main())
