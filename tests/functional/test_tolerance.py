"""Tolerated units, from the tracker to the operators' commands."""

import json

import pytest

from tests.support.web import request, serving
from xorack import Tracker, names_of

LINES = [f"line {n}" for n in range(5)]


@pytest.fixture
def lost(functions, stack):
    """A function that starts a chain of five lines, loses some, and lets its deadline pass."""
    tracker = Tracker(stack.queue_url, stack.client("sqs"))

    def lose(tag, count, **options):
        token = tracker.start(tag, timeout=0.001, **options)
        with tracker.step(token) as step:
            children = [step.child(name) for name in LINES]
        for child in children[count:]:
            with tracker.step(child):
                pass
        functions.deliver()
        return functions.sweep()

    return lose


def test_a_chain_with_few_units_outstanding_is_acked_at_its_deadline_and_seen_apart(
    lost, functions, stack, xorack, capsys
):
    lost("run/complete", 0, tolerated_units=2)
    lost("run/some", 2, tolerated_units=2)
    printed = capsys.readouterr().out.splitlines()
    metrics = [json.loads(line) for line in printed if "_aws" in line]
    counted = [one.get("AckedWithOutstanding") for one in metrics if "ChainsLookedAt" in one]
    assert counted == [None, [1.0]]  # zeros are not emitted, since CloudWatch bills them
    lost("run/many", 3, tolerated_units=2)
    lost("run/none", 1)
    events = functions.events()
    statuses = {tag: (event["status"], event.get("reason")) for tag, event in events.items()}
    assert statuses == {
        "run/complete": ("acked", None),
        "run/some": ("acked", None),
        "run/many": ("failed", "timed out"),
        "run/none": ("failed", "timed out"),
    }
    some = events["run/some"]
    assert (some["outstanding_units"], some["tolerated_units"]) == (2, 2)
    assert sorted(names_of(some, LINES).values()) == LINES[:2]
    assert "outstanding_units" not in events["run/complete"]
    text = "acked with 2 outstanding, 2 units tolerated"
    assert text in "\n".join(xorack("show", "run/some")[1])
    (shown,) = map(json.loads, xorack("show", "run/some", "--json")[1])
    assert (shown["status"], shown["tolerated"], len(shown["outstanding"])) == ("acked", True, 2)
    listed = "\n".join(xorack("list", "--run", "run")[1])
    assert listed.count("acked with 2 outstanding") == 1
    with serving(stack) as server:
        assert text in request(server, "chain?tag=run/some").text
        assert "tolerated" not in request(server, "chain?tag=run/complete").text
