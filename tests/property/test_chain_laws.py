"""Laws of the core: however requests are split, ordered and repeated, the end is the same."""

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.support.chains import apply_all
from xorack.core.event import event_detail
from xorack.core.hashing import xxh64_long
from xorack.core.message import parse
from xorack.core.request import Request
from xorack.core.stamp import plain, traced, xor
from xorack.core.transitions import Limits

NOW = 1_700_000_000_000
# The id whose hash is 0 has no traced stamp.
UNITS = st.integers(1, 2**64 - 1).filter(xxh64_long)
JSON = st.recursive(st.none() | st.text() | st.integers(), st.lists, max_leaves=5)


@st.composite
def finished_work(draw):
    """All requests of a chain: a tree of units, each started and finished once."""
    make = draw(st.sampled_from([plain, traced]))
    units = draw(st.lists(UNITS, min_size=1, max_size=12, unique=True))
    children = {unit: [] for unit in units}
    for position, unit in enumerate(units[1:], 1):
        children[units[draw(st.integers(0, position - 1))]].append(unit)
    requests = [Request.create("t", "create", make(units[0]))]
    for number, unit in enumerate(units):
        stamps = [make(unit), *map(make, children[unit])]
        counts = {"started": len(children[unit]), "finished": 1}
        folded = xor(*stamps, bytes(len(stamps[0])))
        requests.append(Request.stamp_("t", f"r{number}", folded, **counts))
    return requests


def split(draw, requests):
    """Split requests into batches at random."""
    batches, rest = [], list(requests)
    while rest:
        size = draw(st.integers(1, len(rest)))
        batches.append(rest[:size])
        rest = rest[size:]
    return batches


def end(batches):
    chain = None
    for batch in batches:
        chain = apply_all(chain, batch, now=NOW, limits=Limits(1000, 1000)).chain
    return chain


def content(chain):
    """Return the chain without the number of writes and the order of its marks."""
    marks = {chain.marks[at : at + 16] for at in range(0, len(chain.marks), 16)}
    return replace(chain, marks=b"", version=0), marks


@given(finished_work(), st.data())
def test_any_order_split_and_repetition_ends_acked_once(requests, data):
    once = end([requests])
    duplicates = data.draw(st.lists(st.sampled_from(requests), max_size=5))
    order = data.draw(st.permutations([*requests, *duplicates]))
    chain = end(split(data.draw, order))
    assert chain.status == "acked"
    assert content(chain) == content(once)
    assert event_detail(chain) == event_detail(once)


@given(finished_work(), st.data())
def test_a_chain_with_work_left_is_never_acked(requests, data):
    lost = data.draw(st.integers(0, len(requests) - 1))
    order = data.draw(st.permutations(requests[:lost] + requests[lost + 1 :]))
    chain = None
    for request in order * 2:
        chain = apply_all(chain, [request], now=NOW).chain
        assert chain.status in ("pending", "open")


@given(finished_work(), st.data())
def test_a_fail_anywhere_before_the_end_fails_the_chain(requests, data):
    *before, last = data.draw(st.permutations(requests))
    order = data.draw(st.permutations([*before, Request.fail("t", "fail", "why")]))
    chain = end([*split(data.draw, order), [last]])
    assert (chain.status, chain.reason) == ("failed", "why")


@given(st.text() | JSON.map(json.dumps))
def test_parse_never_raises(body):
    parsed = parse(body)
    assert parsed.requests or parsed.rejected
