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


CAUGHT_BY = {
    "the end of a child is lost if a parent cannot be written": 144,
    "the end of a child is lost while the bus is down": 7,
    "spilled marks of ends are not looked up": 71,
    "the end of an old child starts its parent again": 75,
    "a failed child finishes its parents' unit": 20,
    "a child finishes its parents' unit before it has ended": 6,
    "a child finishes its parents' unit again and again": 6,
    "one page of the index a shard serves all reports": 91,
    "a retried task is not resumed": 149,
}
"""Seeds of mutants that few schedules catch, or that one schedule must always catch."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in MUTANTS],
)
def test_a_mutant_is_caught(name):
    seeds = [CAUGHT_BY[name]] if name in CAUGHT_BY else ORDER
    with mutated(name):
        assert campaign(seeds).failing, f"not caught by {len(seeds)} schedules: {name}"


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
