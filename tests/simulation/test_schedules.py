"""2,000 schedules, and that a schedule is its seed's doing alone."""

from itertools import islice

import pytest

from tests.simulation.campaign import campaign
from tests.simulation.mutants import MUTANTS, planted
from tests.simulation.schedule import Recipe, run
from tests.simulation.shrink import Shrinker
from tests.simulation.world import KINDS

SEEDS = 2000


def test_whatever_happens_the_acker_is_right():
    done = campaign(range(SEEDS))
    failing = [f"seed {result.recipe.seed}: {result.violation}" for result in done.failing]
    assert not failing, f"{failing}; python -m tests.simulation {done.failing[0].recipe.seed}"
    # It only says something if all of it happened.
    assert done.schedules == SEEDS
    assert done.most_chains > 200
    assert done.faults.keys() == KINDS.keys()
    assert done.faults.total() > 20_000
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


def test_a_failing_seed_shrinks_and_replays():
    # How far a schedule shrinks depends on it: of the first that fail, one shrinks to the bone.
    with planted(MUTANTS["owed is crossed off before the event is published"]):
        broken = (result for result in map(run, range(100)) if result.violation)
        failures = islice((result for result in broken if result.requests > 60), 4)
        shrunk = [(failing, Shrinker(failing).shrink()) for failing in failures]
        assert all(small.requests < failing.requests / 10 for failing, small in shrunk)
        failing, small = min(shrunk, key=lambda pair: pair[1].requests)
        again = run(small.recipe, trace=True)
    assert again.chains == 1 < failing.chains
    assert again.requests <= 5 < failing.requests
    assert again.faults.total() < failing.faults.total() / 10
    assert "no event went out" in str(again.violation)
    assert again.trace
    assert "VIOLATION" in again.trace[-1]
    assert run(small.recipe).violation is None
