"""The simulation catches each of these broken versions of the code."""

from copy import deepcopy

import pytest

from tests.simulation.__main__ import campaign
from tests.simulation.mutants import FAST, MUTANTS, frozen_first_seen, mutated
from tests.simulation.test_schedules import SEEDS
from tests.support.mutants import Replaced
from xorack.aws.callbacks import CALLBACK_SERVICES
from xorack.core import transitions
from xorack.core.transitions import VERDICTS

CATCHING = [17, 25, 28, 31, 33, 36, 46, 54, 58, 61, 62, 67, 69, 75, 78, 85]
CATCHING += [99, 123, 149, 166, 184, 213, 301]
"""Seeds above 15 that are the first to catch some mutant."""
ORDER = [*dict.fromkeys([*range(16), *CATCHING, *SEEDS])]
"""All seeds, those that catch most mutants first."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in MUTANTS]
)
def test_a_mutant_is_caught(name):
    with mutated(name):
        assert campaign(ORDER).failing, f"not caught by {len(ORDER)} schedules: {name}"


@pytest.mark.slow
def test_chains_of_one_tag_and_millisecond_are_told_apart():
    with Replaced(transitions._fold, frozen_first_seen):
        assert not campaign(CATCHING).failing


def test_every_mutant_changes_the_code_and_is_removed():
    replaced = [one for some in MUTANTS.values() for one in some if isinstance(one, Replaced)]

    def state():
        codes = [one.function.__code__ for one in replaced]
        tables = deepcopy(VERDICTS), dict(CALLBACK_SERVICES), transitions.TRANSITIONS
        waits = transitions._GIVE_UP_MS
        return codes, tables, waits

    before = state()
    for name in MUTANTS:
        with mutated(name):
            assert state() != before, name
        assert state() == before, name
