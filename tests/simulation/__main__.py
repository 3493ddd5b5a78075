"""Run schedules: one by its seed, or many with ``--seeds N``.

The first failing schedule is printed, with the command that replays it.

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

from tests.simulation.mutants import MUTANTS, mutated
from tests.simulation.schedule import Schedule, run
from tests.support.fault_kinds import FAULTS

LARGEST = "chains in the largest schedule"


@dataclass
class Campaign:
    """Many schedules: their figures by name, faults by kind, chains by their end, violations."""

    figures: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    failing: list[Schedule] = field(default_factory=list)

    def add(self, result: Schedule) -> None:
        """Add a schedule."""
        self.figures[LARGEST] = max(self.figures[LARGEST], len(result.workloads))
        self.figures.update(
            {
                "schedules": 1,
                "chains": len(result.workloads),
                "requests, without their copies": result.size,
                "chains whose tag was used before": result.reused,
                "schedules in which more than 90 days pass": int(result.world.days > 90),
                "faults": result.faults.total(),
                "violations": int(bool(result.violation)),
            }
        )
        self.faults += result.faults
        self.ends += result.ends
        self.failing += [result] if result.violation else []

    def table(self) -> str:
        """Return all figures in Markdown."""
        lines = ["| | |", "| --- | ---: |"]
        lines += [f"| {name} | {number:,} |" for name, number in self.figures.items()]
        lines += ["", "| fault | effect | injected |", "| --- | --- | ---: |"]
        for kind, fault in FAULTS.items():
            lines.append(f"| {kind} | {fault.description} | {self.faults[kind]:,} |")
        lines += ["", "| the chain ended | chains |", "| --- | ---: |"]
        lines += [f"| {end} | {number:,} |" for end, number in self.ends.most_common()]
        return "\n".join(lines)


def campaign(seeds: Iterable[int]) -> Campaign:
    """Run schedules until one fails."""
    many = Campaign()
    begin = time.monotonic()
    for seed in seeds:
        many.add(run(seed))
        many.figures["seconds"] = round(time.monotonic() - begin)
        if many.figures["schedules"] % 500 == 0:
            print(f"{seed}: {dict(many.figures)}", file=sys.stderr)
        if many.failing:
            break
    return many


def main(arguments: list[str] | None = None) -> int:
    """Run the program; return 1 after a violation, else 0."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("seed", type=int, nargs="?")
    parser.add_argument("--steps", action="store_true", help="print what happens")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="break the code first")
    parser.add_argument("--seeds", type=int, help="instead of a seed: number of schedules")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args(arguments)
    if (options.seed is None) == (options.seeds is None):
        parser.error("either a seed, or --seeds")
    with mutated(options.mutant):
        if options.seed is not None:
            result = run(options.seed, trace=options.steps)
        else:
            many = campaign(range(options.first, options.first + options.seeds))
            print(many.table())
            if not many.failing:
                return 0
            result = run(many.failing[0].seed, trace=True)
    print("\n".join([*(result.world.trace or []), result.violation or "no violation"]))
    if result.violation:
        mutant = ["--mutant", options.mutant] if options.mutant else []
        words = [str(result.seed), "--steps", *mutant]
        print("replay: python -m tests.simulation " + shlex.join(words))
    return int(bool(result.violation))


if __name__ == "__main__":
    sys.exit(main())
