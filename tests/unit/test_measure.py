"""The measurement's plans, messages and judge, without AWS."""

import json
import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from measure.judge import Outcome, judge
from measure.load import Sender, Sent, texts
from measure.options import BAD, Options
from measure.report import Result, Totals, to_dict, to_text
from measure.subscription import Event, Events
from tests.support.chains import changed
from tests.support.fakes import FakeQueue
from xorack.core.errors import ArgumentError, SendError
from xorack.core.event import event_detail
from xorack.core.marks import MANY_INLINE_MARKS, MARK_BYTES
from xorack.core.message import pack, parse
from xorack.core.request import Request
from xorack.core.stamp import TRACED_CELLS, traced_length
from xorack.core.transitions import apply, expire

PAGE = Path(__file__).parents[2] / "docs" / "capacity.md"
_PRICE = re.compile(r"^\| a (?:million|GB of) ([\w-]+(?: units)?).* \| ([\d.]+) \|$", re.MULTILINE)
PRICES = {name: float(dollars) for name, dollars in _PRICE.findall(PAGE.read_text())}
RUN = "measure-20260131-00000001"
FAULTY = Options(
    seed=5,
    chains=60,
    units="1:3,2:3,40:4",
    fold=3,
    message_bytes=9000,
    duplicate=0.3,
    delay=0.3,
    reorder=0.3,
    lose=0.3,
    bad=0.6,
)


def simulate(options):
    """Apply all requests of a load; return the honest outcome, as a perfect stack would have it."""
    plans = list(options.plans(RUN))
    events, chains, letters, times = Events(), {}, [], {}
    for plan in plans:
        if plan.bad == "not JSON":
            letters.append((plan.tag, parse(f'{{"tag":"{plan.tag}", not JSON').rejected[0].reason))
        (parsed,) = map(parse, pack(texts(plan), 1 << 20))
        letters += [(plan.tag, rejected.reason) for rejected in parsed.rejected]
        chain, outcomes = apply(None, parsed.requests, now=1_000_000)
        letters += [(plan.tag, str(one.error)) for one in outcomes if one.kind == "rejected"]
        if plan.lost:
            chain, _ = apply(chain, [Request.extend(plan.tag, "end", 0.001)], now=1_000_100)
            chain = expire(chain, 1_060_000)
        events.add(chain.status, event_detail(chain), 1001.5)
        chains[plan.tag] = changed(chain, event_pending=False)
        times[plan.tag] = 1000.5
    requests = sum(plan.requests for plan in plans)
    sent = Sent(requests=requests, messages=40, first=999.0, times=times)
    return Outcome(plans, times, events.by_tag, chains, letters), sent


@pytest.fixture(scope="module")
def honest():
    return simulate(FAULTY)[0]


# -- plans and messages ------------------------------------------------------------------------


def test_the_load_has_all_faults_and_sizes():
    plans = list(FAULTY.plans(RUN))
    assert {plan.bad for plan in plans} == {None, *BAD}
    assert {plan.units for plan in plans} == {1, 2, 40}
    assert {plan.reverse for plan in plans} == {True, False}
    assert {plan.lost for plan in plans} >= {0, 1, 2, 5}
    assert (
        len({plan.unit(n) for plan in plans for n in range(plan.units)}) == Totals.of(plans).units
    )


def test_a_reversed_chain_sends_its_create_last():
    for plan in FAULTY.plans(RUN):
        if plan.bad is None:
            ops = [json.loads(text)["op"] for text in texts(plan)]
            assert ops.index("create") == (len(ops) - 1 if plan.reverse else 0)
            assert len(ops) == plan.requests


@pytest.mark.parametrize("text", ["", "0", "-1", "1:", "1:x", "1,1", "1:0", "1;2", "1:-1", "1e3"])
def test_an_invalid_spread_is_rejected(text):
    with pytest.raises(ArgumentError, match=f"units: '{text}', expected"):
        Options(seed=1, units=text)


def test_a_sender_injects_the_messages_faults():
    queue = FakeQueue(rejects=2)
    sent = Sender(FAULTY, RUN, "url", queue).send()
    bodies = Counter(entry["MessageBody"] for entry in queue.entries)
    assert sum(bodies.values()) == sent.messages == len(queue.entries)
    assert 0 < sent.copies == sum(count - 1 for count in bodies.values())
    assert sent.late
    assert {*sent.late} < {*bodies}
    delays = Counter(entry["DelaySeconds"] for entry in queue.entries)
    assert delays.keys() == {0, 1, 2}
    assert 0 < delays[0] < sent.messages
    assert queue.rejects == 0
    assert all(len(call) <= 10 for call in queue.calls)
    assert {entry["MessageGroupId"] for entry in queue.entries} == {RUN}
    honest = Counter(text for plan in FAULTY.plans(RUN) for text in texts(plan))
    requests = Counter(
        json.dumps(raw, separators=(",", ":"))
        for body in bodies
        if not body.endswith("not JSON")
        for raw in json.loads(body)["requests"]
    )
    assert requests == honest
    assert {*sent.times} == {plan.tag for plan in FAULTY.plans(RUN)}


def test_a_message_that_the_queue_rejects_stops_the_run():
    with pytest.raises(SendError, match="C: m"):
        Sender(FAULTY, RUN, "url", FakeQueue(rejects=99, permanent=True)).send()


# -- the judge ---------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [FAULTY, replace(FAULTY, fold=1)])
def test_the_judge_accepts_what_the_protocol_makes_of_the_load(options):
    outcome, _ = simulate(options)
    assert {event.kind for (event,) in outcome.events.values()} == {"acked", "failed"}
    assert judge(outcome) == []


def forged(outcome, tag, *, event=(), detail=(), item=(), events=1, letters=()):
    """Return an outcome with other fields of a chain's event, of its detail and of its item."""
    (true,) = outcome.events[tag]
    other = replace(true, **{"detail": {**true.detail, **dict(detail)}, **dict(event)})
    chains = dict(outcome.chains)
    chain = chains.pop(tag)
    if item is not None:
        chains[tag] = changed(chain, **dict(item))
    return replace(
        outcome,
        events={**outcome.events, tag: [true, other][2 - events :] if events else []},
        chains=chains,
        dead_letters=[*outcome.dead_letters, *((tag, reason) for reason in letters)],
    )


ACKED, LOSSY = False, True
FORGED = {
    # By what the judge says of it: a chain without lost units or with some, and what is forged.
    "false ack: ": (LOSSY, {"detail": {"status": "acked"}}),
    "status 'failed', expected 'acked'": (ACKED, {"detail": {"status": "failed"}}),
    "reason 'never created', expected 'timed out'": (
        LOSSY,
        {"detail": {"reason": "never created"}},
    ),
    "outstanding ['00000000000000aa'], expected ": (
        LOSSY,
        {"detail": {"outstanding": ["00000000000000aa"]}},
    ),
    "outstanding [], expected ": (LOSSY, {"detail": {"outstanding": []}}),
    "outstanding_complete False, expected True": (
        LOSSY,
        {"detail": {"outstanding_complete": False}},
    ),
    "finished 77, expected": (ACKED, {"detail": {"finished": 77}}),
    "detail {}": (ACKED, {"detail": {"detail": {}}}),
    "the id of its event is 000": (ACKED, {"detail": {"id": "0" * 32}}),
    "arrived 0.600 s before its last message was sent": (ACKED, {"event": {"received_at": 999.9}}),
    "detail-type failed of an event with status acked": (ACKED, {"event": {"kind": "failed"}}),
    "2 different events, ids": (ACKED, {"detail": {"id": "1" * 32}, "events": 2}),
    "lost: neither an event nor an item": (ACKED, {"events": 0, "item": None}),
    "lost event: acked in the table": (ACKED, {"events": 0}),
    "not ended: open in the table": (ACKED, {"events": 0, "item": {"status": "open"}}),
    "but not in the table": (ACKED, {"item": None}),
    "but failed in the table": (ACKED, {"item": {"status": "failed"}}),
    "still pending": (ACKED, {"item": {"event_pending": True}}),
    "dead-lettered, though all its requests are valid: why": (ACKED, {"letters": ["why"]}),
}


@pytest.mark.parametrize("line", FORGED)
def test_the_judge_finds_a_forged_outcome(honest, line):
    lossy, fields = FORGED[line]
    plan = next(one for one in honest.plans if not one.bad and bool(one.lost) == lossy)
    violations = judge(forged(honest, plan.tag, **fields))
    assert any(line in violation for violation in violations), violations
    assert all(violation.startswith(f"{plan.tag}: ") for violation in violations)


@pytest.mark.parametrize("bad", BAD)
def test_the_judge_misses_a_dead_letter_and_its_reason(honest, bad):
    plan = next(plan for plan in honest.plans if plan.bad == bad)
    others = [letter for letter in honest.dead_letters if letter[0] != plan.tag]
    for letters in (others, [*others, (plan.tag, "another reason")]):
        (violation,) = judge(replace(honest, dead_letters=letters))
        assert violation == f"{plan.tag}: no dead-lettered message of its request {bad}"


def test_the_judge_finds_an_unknown_chain(honest):
    event = Event("acked", {"status": "acked"}, 1.0)
    (violation,) = judge(replace(honest, events={**honest.events, f"{RUN}/x": [event]}))
    assert violation == f"{RUN}/x: no chain of this run"


# -- the bill and the report -------------------------------------------------------------------


def test_the_estimate_is_above_what_a_load_costs():
    """A message, a write with a conflict and its marks' bucket for each request; a chain's end."""
    item = traced_length(TRACED_CELLS) + MANY_INLINE_MARKS * MARK_BYTES + 500
    writes, reads = 2 * (math.ceil(item / 1024) + 1), 2 * (math.ceil(item / 4096) + 1)
    request = {
        "calls": 3,
        "invocations": 1,
        "GB-seconds": 0.07,
        "write units": writes,
        "read units": reads,
        "logs": 1.5,
    }
    end = {"write units": 8, "calls": 6, "events": 1, "read units": 4}
    for amounts in (request, end):
        dollars = sum(PRICES[name] * amount for name, amount in amounts.items()) / 1e6
        least = Totals(chains=0, units=0, requests=1000, bad=0, lossy=0).upper_estimate(0.0)
        assert 1000 * dollars < least - Totals(0, 0, 0, 0, 0).upper_estimate(0.0)
    totals = Totals.of(FAULTY.plans(RUN))
    assert totals.upper_estimate(0.5) > totals._replace(
        requests=2 * totals.requests
    ).upper_estimate(0)


def test_the_report_has_latencies_and_names_what_is_not_available():
    report = to_dict(Result(RUN, *simulate(FAULTY), 1.0, 1001.0, ["a: b"]))
    assert report["latency"]["to arrival"] == dict.fromkeys(("p50", "p90", "p99", "max"), 1000)
    assert report["latency"]["to time-out"]["max"] == 500
    lines = list(to_text(report))
    assert lines[0] == f"run {RUN}"
    assert any(line.startswith("  to arrival  ") and "p50 1,000" in line for line in lines)
    assert lines[-2:] == ["left behind: a: b", "all as expected"]
