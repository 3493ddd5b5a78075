"""Laws of the core: however requests are split, ordered and repeated, the end is the same."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from xorack.core.event import event_detail
from xorack.core.marks import mark_of
from xorack.core.message import pack, parse
from xorack.core.peeling import peel
from xorack.core.request import Request
from xorack.core.stamp import plain, traced, xor
from xorack.core.transitions import apply

NOW = 1_700_000_000_000


@st.composite
def work(draw):
    """All requests of one chain whose work is done: a tree of units, each started and finished."""
    make = draw(st.sampled_from([plain, traced]))
    units = draw(st.lists(st.integers(1, 2**64 - 1), min_size=1, max_size=12, unique=True))
    children = {unit: [] for unit in units}
    for position, unit in enumerate(units[1:], 1):
        children[units[draw(st.integers(0, position - 1))]].append(unit)
    requests = [Request.create("t", "create", make(units[0]))]
    for number, unit in enumerate(units):
        stamps = [make(unit), *map(make, children[unit])]
        folded = xor(*stamps, bytes(len(stamps[0])))
        requests.append(
            Request.stamp_("t", f"r{number}", folded, started=len(children[unit]), finished=1)
        )
    return requests


def split(draw, requests):
    """Any split into batches."""
    batches = []
    rest = list(requests)
    while rest:
        size = draw(st.integers(1, len(rest)))
        batches.append(rest[:size])
        rest = rest[size:]
    return batches


def end(batches):
    chain = None
    for batch in batches:
        chain = apply(chain, batch, now=NOW, default_timeout=1000).chain
    return chain


def told(chain):
    """What a chain says, without how many writes it took and in what order its marks came."""
    return replace(chain, marks=b"", version=0), {
        chain.marks[at : at + 16] for at in range(0, len(chain.marks), 16)
    }


@given(st.data())
def test_any_order_split_and_repetition_ends_acked_once(data):
    requests = data.draw(work())
    whole = told(end([requests]))
    order = data.draw(st.permutations(requests))
    duplicates = data.draw(st.lists(st.sampled_from(requests), max_size=5))
    positions = [data.draw(st.integers(0, len(order))) for _ in duplicates]
    for position, duplicate in zip(positions, duplicates, strict=True):
        order.insert(position, duplicate)
    chain = end(split(data.draw, order))
    assert chain.status == "acked"
    assert told(chain) == whole
    assert event_detail(chain) == event_detail(end([requests]))


@given(st.data())
def test_it_is_never_acked_with_work_left(data):
    requests = data.draw(work())
    missing = data.draw(st.integers(0, len(requests) - 1))
    order = data.draw(st.permutations(requests[:missing] + requests[missing + 1 :]))
    chain = None
    for request in order * 2:
        chain = apply(chain, [request], now=NOW).chain
        assert chain.status in ("pending", "open")


@given(st.data())
def test_with_a_fail_anywhere_before_the_end_it_fails(data):
    requests = data.draw(work())
    fail = Request.fail("t", "fail", "why")
    *before, last = data.draw(st.permutations(requests))
    order = data.draw(st.permutations([*before, fail]))
    chain = end([*split(data.draw, order), [last]])
    assert (chain.status, chain.reason) == ("failed", "why")


@given(st.lists(st.binary(min_size=5, max_size=5), min_size=2))
def test_xor_is_commutative_and_its_own_inverse(stamps):
    folded = xor(*stamps)
    assert folded == xor(*reversed(stamps))
    assert xor(folded, *stamps).acked


@given(st.sets(st.integers(1, 2**64 - 1), max_size=40))
def test_peel_is_sound(ids):
    found = peel(xor(bytes(648), bytes(648), *map(traced, ids)))
    if found.complete:
        assert found.ids == ids
    if len(ids) <= 6:
        assert found.complete


@given(st.binary(min_size=648, max_size=648))
def test_peel_ends_on_any_bytes(residual):
    peel(residual)


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(texts, children, max_size=3),
    max_leaves=8,
)
requests = st.builds(
    Request.stamp_,
    texts.filter(bool),
    texts.filter(bool),
    st.binary(min_size=1, max_size=100).filter(any),
    started=st.integers(0, 2**63 - 1),
    finished=st.integers(0, 2**63 - 1),
) | st.builds(
    Request.create,
    texts.filter(bool),
    texts.filter(bool),
    st.binary(min_size=1, max_size=100).filter(any),
    timeout=st.none() | st.floats(0.001, 1e6),
    detail=st.none() | st.dictionaries(texts, json_values, max_size=3),
)


@given(st.lists(requests, max_size=30), st.integers(1024, 4000))
def test_messages_carry_requests_unchanged(given_requests, max_bytes):
    carried = []
    for body in pack(given_requests, max_bytes=max_bytes):
        parsed = parse(body)
        assert not parsed.rejected
        carried += parsed.requests
    assert carried == given_requests


@given(st.text() | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(str))
def test_parse_never_raises(body):
    parsed = parse(body)
    assert parsed.requests or parsed.rejected


@given(requests, requests)
def test_marks_tell_ids_and_contents_apart(one, other):
    same_id = one.id == other.id
    assert (mark_of(one)[:12] == mark_of(other)[:12]) == same_id
