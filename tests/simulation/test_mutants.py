"""The simulation sees: each of these broken versions of the code is caught."""

import pytest

from tests.simulation.campaign import campaign
from tests.simulation.mutants import MUTANTS, planted
from tests.simulation.test_schedules import SEEDS

WITHIN = 500
"""Seeds within which a mutant must be caught."""
TELLING = {24, 59, 76, 91, 169, 216, 229}
"""Of these, the ones that are the first to see some mutant."""
ORDER = sorted(range(WITHIN), key=lambda seed: seed > 15 and seed not in TELLING)
"""The same seeds, those that see most mutants before the others, to be done sooner."""


def test_the_code_itself_survives_the_same_seeds():
    assert len(MUTANTS) >= 10
    assert WITHIN <= SEEDS  # which test_schedules runs


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name):
    with planted(MUTANTS[name]):
        done = campaign(ORDER)
    assert done.failing, f"not caught by {WITHIN} schedules: {name}"


def test_a_mutant_leaves_nothing_behind():
    for edits in MUTANTS.values():
        codes = [edit.function.__code__ for edit in edits]
        with planted(edits):
            assert [edit.function.__code__ for edit in edits] != codes
        assert [edit.function.__code__ for edit in edits] == codes
