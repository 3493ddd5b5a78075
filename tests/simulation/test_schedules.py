"""Many schedules keep all invariants, and a seed determines its schedule."""

from itertools import islice

import pytest

from tests.simulation.__main__ import LARGEST, campaign, main
from tests.simulation.mutants import mutated
from tests.simulation.options import LARGE_CHAINS, LARGE_EVERY, Options
from tests.simulation.schedule import Recipe, run
from tests.simulation.shrink import Shrinker
from tests.support.fault_kinds import FAULTS

SEEDS = 520
"""Schedules that catch each mutant. `make test` runs 100 of them, `make test-slow` 2,600."""
MUTANT = "the event is marked as published before it is published"


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(LARGE_EVERY - 100, LARGE_EVERY), id="by day"),
        pytest.param(range(SEEDS), id="first", marks=pytest.mark.slow),
        pytest.param(range(SEEDS, 3 * SEEDS), id="second", marks=pytest.mark.slow),
        pytest.param(range(3 * SEEDS, 5 * SEEDS), id="third", marks=pytest.mark.slow),
    ],
)
def test_no_schedule_violates_an_invariant(seeds):
    figures = campaign(seeds)
    failing = [f"seed {result.recipe.seed}: {result.violation}" for result in figures.failing]
    assert not failing, f"{failing}; python -m tests.simulation {figures.failing[0].recipe.seed}"
    # The result means little unless everything happened.
    assert figures.figures["schedules"] == len(seeds)
    assert figures.figures[LARGEST] == LARGE_CHAINS
    assert figures.faults.keys() == FAULTS.keys()
    assert figures.faults.total() > 20 * len(seeds)
    assert figures.figures["chains whose tag was used before"] > len(seeds) / 10
    assert figures.figures["schedules in which more than 90 days pass"] > len(seeds) / 52
    ends = {"acked", "timed out", "never created", "it broke", "timed out: wrong counts"}
    assert ends | {"failed: two lengths of stamps"} <= figures.ends.keys()


@pytest.mark.parametrize("seed", range(10))
def test_a_seed_replays(seed):
    first, second = run(seed, trace=True), run(seed, trace=True)
    assert first.world.trace == second.world.trace
    assert first.faults == second.faults


def test_another_seed_and_another_salt_give_other_schedules():
    first, *others = (run(recipe, trace=True) for recipe in (Recipe(1), Recipe(2), Recipe(1, 1)))
    assert all(first.world.trace != other.world.trace for other in others)


def _shrink(seeds):
    """Shrink the failing schedules of many small chains, each to a tenth of its requests."""
    with mutated(MUTANT):
        for seed in seeds:
            if 20 < Options(seed).chains < LARGE_CHAINS and (failing := run(seed)).violation:
                small = Shrinker(failing).shrink()
                assert len(small.requests) < len(failing.requests) / 10
                yield failing, small


@pytest.mark.slow
def test_a_failing_seed_shrinks_and_replays(capsys):
    # Seed 301 shrinks soon and far. If the code changes, another seed does.
    shrunk = _shrink((301, *range(5 * SEEDS)))
    failing, small = next(
        pair for pair in shrunk if len(pair[1].chains) == 1 and len(pair[1].requests) <= 5
    )
    shrunk.close()
    assert small.faults.total() < failing.faults.total() / 10
    lost = ("has its event on the bus", "is resumed or given up")
    assert any(text in small.violation for text in lost)
    assert run(small.recipe).violation == ""
    assert main([str(small.recipe), "--steps", "--mutant", MUTANT]) == 1
    output = capsys.readouterr().out
    assert small.violation in output
    assert "replay: python -m tests.simulation '{" in output


@pytest.mark.slow
def test_every_failing_seed_shrinks():
    assert len(list(islice(_shrink(range(5 * SEEDS)), 4))) == 4
