"""Many schedules keep all invariants, and a seed determines its schedule."""

import shlex

import pytest

from tests.simulation.__main__ import LARGEST, campaign, main
from tests.simulation.options import LARGE_CHAINS, LARGE_EVERY
from tests.simulation.schedule import run
from tests.support.fault_kinds import FAULTS

SEEDS = [*range(200), LARGE_EVERY - 1]
"""The schedules of `make test-slow`."""
FAST_SEEDS = [*range(59), 78]
"""The schedules of `make test`. In number 78, senders disagree on the length of stamps."""
MUTANT = "the event is marked as published before it is published"


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(FAST_SEEDS, id="fast"),
        pytest.param(SEEDS, id="slow", marks=pytest.mark.slow),
    ],
)
def test_no_schedule_violates_an_invariant(seeds):
    figures = campaign(seeds)
    failing = [f"seed {result.seed}: {result.violation}" for result in figures.failing]
    assert not failing, f"{failing}; python -m tests.simulation {figures.failing[0].seed}"
    # The result means little unless everything happened.
    assert figures.figures["schedules"] == len(seeds)
    assert (figures.figures[LARGEST] == LARGE_CHAINS) == (LARGE_EVERY - 1 in seeds)
    assert figures.faults.keys() == FAULTS.keys()
    assert figures.faults.total() > 20 * len(seeds)
    assert figures.figures["chains whose tag was used before"] > len(seeds) / 10
    assert figures.figures["schedules in which more than 90 days pass"] > len(seeds) / 52
    ends = {"acked", "timed out", "never created", "it broke", "timed out: wrong counts"}
    assert ends | {"failed: two lengths of stamps"} <= figures.ends.keys()


def test_a_seed_determines_its_schedule():
    first, second, other = (run(seed, trace=True) for seed in (8, 8, 0))
    assert first.world.trace == second.world.trace != other.world.trace
    assert first.faults == second.faults


def test_a_failing_schedule_is_printed_and_replays(capsys):
    assert main(["--seeds", "9", "--mutant", MUTANT]) == 1
    *_, violation, replay = capsys.readouterr().out.splitlines()
    *_, seed, steps, mutant, name = shlex.split(replay)
    assert (replay[:8], steps, mutant, name) == ("replay: ", "--steps", "--mutant", MUTANT)
    assert run(int(seed)).violation == ""
    assert main([seed, steps, mutant, name]) == 1
    assert capsys.readouterr().out.splitlines()[-2:] == [violation, replay]
