"""The scenarios in the embedded AWS: its queue, functions and table."""

import json

import pytest

from tests.conformance.test_conformance import CLIENTS, SCENARIOS, prepared, run
from tests.e2e.conftest import assembly, demo_work, embedded_aws, item_of, stack  # noqa: F401
from tests.support.events import eventually

pytestmark = pytest.mark.slow


def under(prefix, scenario):
    """Return a scenario whose tags begin with a prefix: all share one table."""
    calls = [
        call | {"tag": f"{prefix}/{call['tag']}"} if "tag" in call else call
        for call in scenario["calls"]
    ]
    chains = {f"{prefix}/{tag}": chain for tag, chain in scenario["chains"].items()}
    return {"calls": calls, "chains": chains}


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
    expected, answers = {}, []
    for number, scenario in enumerate(SCENARIOS):
        own = under(f"{client} {number}", scenario)
        given, _, failures = prepared(own)
        done = run(client, {**given, "queue_url": stack.queue_url}, **stack.aws.environ())
        answers.append((done["failures"], failures))
        expected |= own["chains"]
    assert [found for found, _ in answers] == [failures for _, failures in answers]

    def states():
        return {tag: state_of(stack, tag, chain) for tag, chain in expected.items()}

    eventually(lambda: states() == expected)
    assert states() == expected
