"""Many schedules, and that a schedule is its seed's doing alone."""

from itertools import islice
from math import inf

import pytest

from tests.simulation.campaign import campaign
from tests.simulation.mutants import MUTANTS, planted
from tests.simulation.schedule import Recipe, run
from tests.simulation.shrink import Shrinker
from tests.simulation.world import KINDS

SEEDS = 500
"""Schedules that `make test` runs; `make test-slow` runs four times as many others."""
BROKEN = MUTANTS["the event is marked as published before it is published"]


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(SEEDS), id="first"),
        pytest.param(range(SEEDS, 3 * SEEDS), id="second", marks=pytest.mark.slow),
        pytest.param(range(3 * SEEDS, 5 * SEEDS), id="third", marks=pytest.mark.slow),
    ],
)
def test_whatever_happens_the_acker_is_right(seeds):
    done = campaign(seeds)
    failing = [f"seed {result.recipe.seed}: {result.violation}" for result in done.failing]
    assert not failing, f"{failing}; python -m tests.simulation {done.failing[0].recipe.seed}"
    # It only says something if all of it happened.
    assert done.schedules == len(seeds)
    assert done.most_chains > 200
    assert done.faults.keys() == KINDS.keys()
    assert done.faults.total() > 10_000
    assert {"acked", "timed out", "never created", "it broke"} <= done.ends.keys()


@pytest.mark.parametrize("seed", range(10))
def test_a_seed_replays(seed):
    once, again = run(seed, trace=True), run(seed, trace=True)
    assert once.trace == again.trace
    assert once.faults == again.faults


def test_another_seed_and_another_salt_are_other_schedules():
    tales = [run(recipe, trace=True).trace for recipe in (Recipe(1), Recipe(2), Recipe(1, 1))]
    assert tales[0] != tales[1]
    assert tales[0] != tales[2]


def _shrunk(seeds):
    """The schedules of these seeds that fail and are not small, shrunk one by one."""
    for failing in map(run, seeds):
        if failing.violation and failing.requests > 60:
            # However long it takes: what it comes to is not the machine's doing.
            small = Shrinker(failing, seconds=inf).shrink()
            assert small.requests < failing.requests / 10
            yield failing, small


def test_a_failing_seed_shrinks_and_replays():
    # How far a schedule shrinks depends on it: this one soon shrinks to the bone, and were it
    # changed, another would.
    with planted(BROKEN):
        shrunk = _shrunk((39, *range(100)))
        failing, small = next(
            pair for pair in shrunk if pair[1].chains == 1 and pair[1].requests <= 5
        )
        again = run(small.recipe, trace=True)
    assert again.chains == 1 < failing.chains
    assert again.requests <= 5 < failing.requests
    assert again.faults.total() < failing.faults.total() / 10
    assert "no event went out" in str(again.violation)
    assert again.trace
    assert "VIOLATION" in again.trace[-1]
    assert run(small.recipe).violation is None


@pytest.mark.slow
def test_whatever_fails_shrinks_to_a_tenth():
    with planted(BROKEN):
        assert len(list(islice(_shrunk(range(100)), 4))) == 4
