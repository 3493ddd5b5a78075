"""No invocation runs past its time, whatever is slow, and each makes progress.

`SlowFunctions` asserts after every invocation that it ended within its time.
"""

import json
import random

import pytest

from tests.support.chains import changed, make_chain
from tests.support.functions import message
from tests.support.slow import START, SlowFunctions
from xorack.acker.breaker import CircuitBreaker
from xorack.aws.client import config_of
from xorack.aws.eventbridge import EventBus
from xorack.core.budget import TimeOuts
from xorack.core.request import Request


@pytest.fixture
def functions(monkeypatch):
    return SlowFunctions(monkeypatch)


def create(tag, **options):
    return Request.create(tag, "c", b"\1", **options)


def finish(tag):
    return Request.stamp_(tag, "f", b"\1", finished=1)


def open_chains(functions, count):
    """Store open chains of one unit; return their tags."""
    tags = [f"t{n}" for n in range(count)]
    for tag in tags:
        functions.table.chains[tag] = make_chain(tag, b"\1", "open", 1, 0, 1, START, START)
    return tags


PENDING = {"status": "acked", "event_pending": True, "ended_at": 1}


def due_chains(functions, count, prefix="t", **state):
    """Store chains that have been due for long: open ones, or finished ones with pending events."""
    functions.clock.spend(1_000)
    for n in range(count):
        fields = state or {"status": "open", "deadline": n}
        functions.table.chains[f"{prefix}{n}"] = make_chain(
            f"{prefix}{n}", b"\1", due_at=n, **fields
        )


def test_no_healthy_message_of_a_backlog_dies(functions):
    """Each invocation has time for less than half of what it receives."""
    functions.table.write_seconds = 0.3
    bodies = {f"m{n}": message(*(create(f"{n}/{m}") for m in range(10))) for n in range(60)}
    receives, rng, dead = dict.fromkeys(bodies, 0), random.Random(1), []
    while bodies:
        batch = {id: bodies[id] for id in rng.sample(sorted(bodies), min(32, len(bodies)))}
        receives.update({id: receives[id] + 1 for id in batch})
        failed = functions.consume(batch, receives)
        dead += [id for id in failed if receives[id] == 5]
        done = {*batch, *dead} - ({*failed} - {*dead})
        bodies = {id: body for id, body in bodies.items() if id not in done}
    assert dead == []


def test_a_throttled_chain_takes_a_second_of_its_batch(functions):
    """It is not known beforehand: it comes first, and the others are written first."""
    throttled, *others = tags = open_chains(functions, 301)
    functions.table.hot = {throttled}
    functions.table.write_seconds = 0.001
    failed = functions.consume({tag: message(finish(tag)) for tag in tags})
    assert failed == [throttled]
    assert len(functions.bus.events) == len(others)
    in_calls = len(others) * (2 * 0.001 + 0.02 / 100 + 0.02 / 10) + 0.02
    assert functions.clock.now < in_calls + 1.6


def test_a_chain_of_many_requests_does_not_wait_for_slow_callbacks(functions):
    """The chain needs three writes, and the last two come after the reports of the other chains."""
    functions.tasks.seconds = 4.5
    tags = open_chains(functions, 20)
    for tag in tags:
        chain, resume = functions.table.chains[tag], json.dumps({"step_functions": tag})
        functions.table.chains[tag] = changed(chain, resume=resume)
    ended = map(finish, tags)
    many = [Request.stamp_("many", f"s{n}", starts=[n + 1], cells=0) for n in range(300)]
    assert functions.consume({"ended": message(*ended), "many": message(*many)}) == []
    assert functions.table.chains["many"].counts.started == 300
    assert len(functions.tasks.tasks) > 3
    functions.tasks.seconds = 0.02
    functions.clock.spend(60)
    functions.sweep()
    assert len(functions.tasks.tasks) == 20


@pytest.mark.parametrize("seconds", [5, 60, 900])
@pytest.mark.parametrize(("silent", "failed"), [("table", ["m0", "m1"]), ("queue", ["m1"])])
def test_a_silent_service_fails_the_messages_that_need_it(monkeypatch, seconds, silent, failed):
    functions = SlowFunctions(monkeypatch, seconds)
    getattr(functions, silent).dead = True
    tags = open_chains(functions, 20)
    invalid = message(Request.stamp_("other", "s", b"\1"), Request.stamp_("other", "t", b"\1\2"))
    assert functions.consume({"m0": message(*map(finish, tags)), "m1": invalid}) == failed
    assert len(functions.bus.events) == (0 if silent == "table" else 20)


@pytest.mark.parametrize("seconds", [10, 900])
def test_a_bus_that_never_answers_fails_no_message(monkeypatch, seconds):
    functions = SlowFunctions(monkeypatch, seconds)
    functions.bus.dead = True
    tags = open_chains(functions, 400)
    for at in (0, 100, 200):
        assert functions.consume({"m": message(*map(finish, tags[at : at + 100]))}) == []
    assert 4 <= functions.bus.calls <= 6
    # The circuit breaker is open: the next invocation does not wait.
    calls, started = functions.bus.calls, functions.clock.now
    assert functions.consume({"m": message(*map(finish, tags[300:]))}) == []
    assert functions.bus.calls == calls
    assert functions.clock.now - started < 1
    functions.clock.spend(60)
    functions.bus.dead = False
    figures = functions.sweep()
    assert (figures["EventsPublished"], figures["EventsPending"]) == (400, 0)
    assert not any(chain.reports.event_pending for chain in functions.table.chains.values())


def test_a_sweep_judges_all_deadlines_before_it_waits_for_a_dead_bus(functions):
    functions.bus.dead = True
    due_chains(functions, 100, **PENDING)
    due_chains(functions, 300, "late")
    due_chains(functions, 1, "orphan", status="pending", pending_deadline=0)
    now = (START + 3_000) * 1000
    figures = functions.sweep()
    names = ("ChainsFailed", "ChainsTimedOut", "ChainsNeverCreated", "SweepsIncomplete")
    assert [figures[name] for name in names] == [301, 300, 1, 0]
    assert (figures["EventsPublished"], figures["EventsPending"]) == (0, 401)
    chains = functions.table.chains.values()
    assert not any(chain.status == "open" for chain in chains)
    assert now <= max(chain.ended_at for chain in chains)


def test_a_sweep_without_time_is_incomplete_and_still_publishes(functions):
    due_chains(functions, 120)
    functions.table.write_seconds = 1
    figures = functions.sweep()
    assert figures["SweepsIncomplete"] == 1
    assert figures["SweepProblems"] == 0
    assert figures["ChainsTimedOut"] == figures["EventsPublished"] > 15
    functions.table.write_seconds = 0.01
    functions.clock.spend(60)
    figures = functions.sweep()
    assert figures["SweepsIncomplete"] == 0
    assert {chain.status for chain in functions.table.chains.values()} == {"failed"}
    assert not any(chain.reports.event_pending for chain in functions.table.chains.values())


def test_each_sweep_makes_progress_with_a_slow_bus(functions):
    due_chains(functions, 300, **PENDING)
    functions.bus.seconds = 4
    pending = [functions.sweep()["EventsPending"] for _ in range(5)]
    assert pending[-1] == 0
    assert len(set(functions.bus.events)) == 300
    assert len(functions.bus.events) < 300 + 5 * 30


def test_a_sweep_of_a_dead_bus_counts_all_pending_events_and_reads_few(functions):
    due_chains(functions, 2_000, **PENDING)
    functions.bus.dead, functions.table.write_seconds = True, 0.02
    figures = functions.sweep()
    names = ("EventsPending", "EventsPendingAfterSweep", "EventsPublished", "SweepsIncomplete")
    assert [figures[name] for name in names] == [2_000, 2_000, 0, 0]
    assert figures["ChainsLookedAt"] <= 40 * 20
    functions.bus.dead = False
    functions.clock.spend(60)
    figures = functions.sweep()
    assert figures["EventsPublished"] > 500
    assert figures["EventsPublished"] + figures["EventsPendingAfterSweep"] == 2_000
    assert figures["SweepsIncomplete"] == 1  # time ran out


@pytest.mark.parametrize(("naming", "published"), [(0.02, 1_000), (0.1, 300)])
def test_a_sweep_names_units_while_it_has_time(functions, monkeypatch, naming, published):
    """A sweep that could not name more units counted as complete, with 33 of 60 s left."""
    due_chains(functions, 1_000)
    due_chains(functions, 300, "easy", **PENDING)
    entry = EventBus.entry

    def slow_entry(self, chain):
        functions.clock.spend(naming if chain.status == "failed" else 0)
        return entry(self, chain)

    monkeypatch.setattr(EventBus, "entry", slow_entry)
    functions.table.write_seconds = 0.001
    figures = functions.sweep()
    assert figures["ChainsTimedOut"] == 1_000
    tags = [json.loads(event)["tag"] for event in functions.bus.events]
    assert sum(tag.startswith("easy") for tag in tags) == 300
    assert published <= len(tags) - 300 <= 1_000
    left = 1_300 - len(tags)
    assert figures["EventsPendingAfterSweep"] == left
    assert figures["SweepsIncomplete"] == (left > 0)


@pytest.mark.parametrize(("seconds", "longest"), [(10, 10 / 6), (60, 6), (900, 6)])
def test_time_outs_follow_from_the_time_of_the_invocation(seconds, longest):
    time_outs = TimeOuts.within(seconds)
    assert time_outs.longest_call == pytest.approx(longest)
    config = config_of(time_outs)
    assert (config.connect_timeout, config.read_timeout) == time_outs
    assert config.retries["total_max_attempts"] == 1


def test_too_little_time_opens_no_circuit_breaker(functions, monkeypatch):
    tags = open_chains(functions, 100)

    def slow_entry(self, chain):
        functions.clock.spend(48)

    with monkeypatch.context() as patch:
        patch.setattr(EventBus, "entry", slow_entry)
        for tag in tags[:5]:
            assert functions.consume({"m": message(finish(tag))}) == []
    assert functions.bus.calls == 0
    assert functions.consume({"m": message(*map(finish, tags[5:]))}) == []
    assert len(functions.bus.events) == 95


def test_a_circuit_breaker_opens_probes_and_closes():
    now = 0.0
    breaker = CircuitBreaker(clock=lambda: now)
    # The time, the results since the last time, and whether calls are allowed, twice.
    for now, results, expected in (
        (0.0, [False, False, True, False, False], [True, True]),
        (0.0, [False], [False, False]),
        (29.9, [], [False, False]),
        (30.0, [], [True, False]),
        (30.0, [False], [False, False]),
        (59.0, [], [False, False]),
        (60.0, [], [True, False]),
        (60.0, [True], [True, True]),
    ):
        for success in results:
            breaker.record(success=success)
        assert [breaker.allows(), breaker.allows()] == expected, now
