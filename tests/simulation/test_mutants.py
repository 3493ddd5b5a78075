"""The simulation catches each of these broken versions of the code."""

import pytest

from tests.simulation.campaign import campaign
from tests.simulation.mutants import MUTANTS, mutated
from tests.simulation.test_schedules import SEEDS

CATCHING = (26, 31, 32, 34, 37, 45, 52, 53, 58, 66, 75, 77, 95, 104, 123, 157, 217, 238, 493, 518)
"""Seeds above 15 that are the first to catch some mutant."""
ORDER = sorted(range(SEEDS), key=lambda seed: seed > 15 and seed not in CATCHING)
"""All seeds, those that catch most mutants first."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name):
    with mutated(name):
        assert campaign(ORDER).failing, f"not caught by {SEEDS} schedules: {name}"


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_removed(name):
    def codes():
        return [edit.function.__code__ for edit in MUTANTS[name]]

    before = codes()
    with mutated(name):
        assert codes() != before
    assert codes() == before
