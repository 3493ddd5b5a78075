"""The scenarios in the embedded AWS: its queue, functions and table."""

import json

import pytest

from tests.conformance.test_conformance import CLIENTS, SCENARIOS, decoded, prepared, run
from tests.e2e.conftest import assembly, demo_work, embedded_aws, item_of, stack  # noqa: F401
from tests.support.events import eventually

pytestmark = pytest.mark.slow

FIELDS = {"status", "started", "finished", "reason", "detail"}
CALLS = {"start", "step", "fan_in", "fan_out", "fail"}


def is_short(scenario):
    """Return whether a scenario needs the acker alone, and no tag or answer of its own."""
    calls = scenario["calls"]
    given = set().union(*calls).intersection(("queue", "error", "outcomes", "statuses", "count"))
    fields = set().union(*scenario["chains"].values())
    return not given and {call["call"] for call in calls} <= CALLS and fields <= FIELDS


SHORT = [scenario for scenario in SCENARIOS if is_short(scenario)]


def under(prefix, scenario):
    """Return a scenario whose tags begin with a prefix: all share one table."""
    calls = [
        call | {"tag": f"{prefix}/{call['tag']}"} if call["call"] == "start" else call
        for call in scenario["calls"]
    ]
    chains = {f"{prefix}/{tag}": chain for tag, chain in scenario["chains"].items()}
    return {**scenario, "calls": calls, "chains": chains}


def state_of(deployed, tag, names):
    """Return attributes of a chain as scenarios have them."""
    item = item_of(deployed, tag) or {}
    read = {"S": str, "N": int}
    found = {
        name: read[kind](value) for name in names for kind, value in item.get(name, {}).items()
    }
    return found | ({"detail": json.loads(found["detail"])} if "detail" in found else {})


@pytest.mark.parametrize("client", CLIENTS)
def test_the_chains_of_the_scenarios_end_as_they_say(stack, client):  # noqa: F811
    own = [under(f"{client} {number}", scenario) for number, scenario in enumerate(SHORT)]
    made = [prepared(scenario) for scenario in own]
    done = run(client, [given for given, *_ in made], stack.queue_url, **stack.aws.environ())
    for (_, _, outcomes), result in zip(made, done, strict=True):
        for expected, found in zip(outcomes, result["outcomes"], strict=True):
            assert found == (expected or {"answer": found.get("answer")})
    expected = {
        tag: {name: decoded(value) for name, value in chain.items()}
        for scenario in own
        for tag, chain in scenario["chains"].items()
    }

    def states():
        return {tag: state_of(stack, tag, chain) for tag, chain in expected.items()}

    eventually(lambda: states() == expected)
    assert states() == expected
