"""Run schedules: one by its seed or recipe, or many with ``--seeds N``.

A failing schedule is shrunk and printed, with the command that replays it.

    python -m tests.simulation 985 --steps            what happens in the schedule of seed 985
    python -m tests.simulation --seeds 1000           seeds 0 to 999
    python -m tests.simulation 3 --mutant "the write has no condition"
"""

import argparse
import shlex
import sys

from tests.simulation.campaign import Campaign, campaign
from tests.simulation.mutants import MUTANTS, mutated
from tests.simulation.recipe import Recipe, Result
from tests.simulation.schedule import run
from tests.simulation.shrink import Shrinker


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
