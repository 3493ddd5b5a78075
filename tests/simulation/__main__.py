"""Run schedules: ``python -m tests.simulation SEED`` one, ``--seeds N`` many.

One that fails is shrunk, and told: what happened, and the command that replays it.

    python -m tests.simulation 985 --steps            what happens in the schedule of seed 985
    python -m tests.simulation --seeds 1000           seeds 0 to 999
    python -m tests.simulation 3 --mutant "the write has no condition"
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack

from tests.simulation.campaign import Campaign, campaign
from tests.simulation.mutants import MUTANTS, planted
from tests.simulation.schedule import Recipe, Result, run
from tests.simulation.shrink import Shrinker
from tests.simulation.world import KINDS


def _numbers(text: str) -> tuple[int, ...]:
    return () if text == "none" else tuple(int(part) for part in text.split(","))


def _pairs(text: str) -> tuple[tuple[int, int], ...]:
    return tuple(
        (int(chain), int(position))
        for chain, position in (part.split(":") for part in text.split(","))
    )


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(text.split(","))
    if unknown := set(kinds) - set(KINDS):
        raise argparse.ArgumentTypeError(f"{unknown}: the kinds are {', '.join(KINDS)}")
    return kinds


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("seed", type=int, nargs="?", help="run this one schedule")
    parser.add_argument("--steps", action="store_true", help="tell what happens in it")
    parser.add_argument("--no-shrink", action="store_true", help="leave it as large as it is")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="break the code first")
    one = parser.add_argument_group("what was shrunk")
    one.add_argument("--salt", type=int, default=0, help="another order, other faults")
    one.add_argument("--chains", type=_numbers, help="only these chains: 3,7")
    one.add_argument("--requests", type=_pairs, help="only these requests of them: 3:0,3:5")
    one.add_argument("--faults", type=_numbers, help="only these faults: 12,40, or none")
    one.add_argument("--quiet", type=_kinds, default=(), help="without these kinds of faults")
    many = parser.add_argument_group("many schedules")
    many.add_argument("--seeds", type=int, help="how many")
    many.add_argument("--first", type=int, default=0, help="the first seed")
    many.add_argument("--until-faults", type=int, help="stop once so many faults were injected")
    many.add_argument("--table", action="store_true", help="the figures in Markdown at the end")
    return parser


def _tell_failing(result: Result, shrinking: bool, mutant: str | None) -> None:
    print(f"VIOLATION in the schedule of seed {result.recipe.seed}: {result.violation}")
    if shrinking:
        shrinker = Shrinker(result)
        result = shrinker.shrink()
        print(f"shrunk by {shrinker.runs} more runs: {result.violation}")
    trace = run(result.recipe, trace=True).trace or []
    print(f"{result.chains} chains, {result.requests} requests, {result.faults.total()} faults:")
    print("\n".join(trace))
    more = f" --mutant '{mutant}'" if mutant else ""
    print(f"replay: python -m tests.simulation {result.recipe.arguments()} --steps{more}")


def _progress(done: Campaign) -> None:
    if done.schedules % 200 == 0 and sys.stderr.isatty():
        print(f"\r{done.line()}", end="", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for.

    Returns:
        0; 1 if something that must hold did not.
    """
    parser = _parser()
    given = parser.parse_args(arguments)
    if (given.seed is None) == (given.seeds is None):
        parser.error("either a seed, or --seeds")
    with ExitStack() as stack:
        if given.mutant:
            stack.enter_context(planted(MUTANTS[given.mutant]))
        if given.seeds is not None:
            seeds = range(given.first, given.first + given.seeds)
            done = campaign(seeds, faults=given.until_faults, progress=_progress)
            print("\r" * sys.stderr.isatty() + done.line())
            if given.table:
                print(done.table())
            for result in done.failing:
                _tell_failing(result, not given.no_shrink, given.mutant)
            return int(bool(done.failing))
        recipe = Recipe(
            given.seed, given.salt, given.chains, given.requests, given.faults, given.quiet
        )
        result = run(recipe, trace=given.steps)
        if result.violation is not None:
            whole = recipe == Recipe(given.seed)
            _tell_failing(result, whole and not given.no_shrink, given.mutant)
            return 1
        if result.trace is not None:
            print("\n".join(result.trace))
        faults = ", ".join(f"{count} {kind}" for kind, count in result.faults.most_common())
        ends = ", ".join(f"{count} {end}" for end, count in result.ends.most_common())
        print(f"all holds: {result.chains} chains ({ends}), {result.requests} requests; {faults}")
        return 0


if __name__ == "__main__":
    sys.exit(main())
