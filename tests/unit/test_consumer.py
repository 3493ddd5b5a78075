"""Consumer, outbox and sweeper over fakes."""

import json
from itertools import count

import pytest

from tests.support.functions import message
from tests.support.services import DAY, NOW, Message, World, consume
from xorack.acker import chain_writer
from xorack.aws.client import BoundedClient
from xorack.aws.eventbridge import EventBus
from xorack.aws.retry import RetryPolicy
from xorack.core.budget import Budget
from xorack.core.errors import NotAChainError
from xorack.core.message import pack
from xorack.core.request import Request
from xorack.core.stamp import traced, xor
from xorack.errors import ConflictError, UnavailableError


@pytest.fixture
def world():
    return World()


def hurried(attempts):
    """Return a budget that is used up after a number of attempts."""
    left = iter([9.0] * attempts)
    return Budget(lambda: next(left, -1))


def create(tag, unit=1, **options):
    return Request.create(tag, "create", traced(unit), **options)


def finish(tag, unit=1):
    return Request.stamp_(tag, f"finish {unit}", traced(unit), finished=1)


def test_rejected_requests_that_share_a_dead_lettered_message_are_counted_each(world):
    world.consume(message(create("a")))
    stamps = message(*(Request.stamp_("a", f"s{n}", b"\1") for n in range(500)))
    reused = message(Request.stamp_("a", "create", traced(7), started=1))
    malformed = json.dumps({"version": 1, "requests": [1] * 500})
    result = world.consume(malformed, stamps, reused)
    rejected = result.outcomes["rejected"], result.outcomes["reused"]
    assert (result.failed, rejected) == ({}, (1_001, 1))
    assert len(world.dead_letters.letters) == 203


def test_dead_letters_know_the_origin_of_their_message(world):
    bodies = "no JSON", message(Request.stamp_("a", "s", b"\1"), Request.stamp_("a", "t", b"\1\2"))
    messages = [Message(f"m{n}", body, 1, NOW - n, f"s{n}") for n, body in enumerate(bodies)]
    consume(messages, world.store, world.bus, world.dead_letters)
    letters = world.dead_letters.letters
    sources = [(letter.sent_at, letter.message_id, letter.sender) for letter in letters]
    assert sources == [(NOW, "m0", "s0"), (NOW - 1, "m1", "s1")]


@pytest.mark.parametrize("lost", [False, True])
def test_the_write_that_ends_a_chain_counts_it_and_no_other(world, monkeypatch, lost):
    """Two consumers have the same messages: each applies some requests, one of them the last."""
    monkeypatch.setattr(chain_writer, "MAX_FOLD", 1)
    split = Request.stamp_("a", "split", xor(traced(1), traced(2)), started=1, finished=1)
    body = message(create("a"), split, finish("a", 2))
    results, real = [], world.store.write

    def write(before, after):
        world.store.write = real
        if not lost:
            real(before, after)
        results.append(world.consume(body))  # another consumer goes on, to the end
        if lost:
            real(before, after)

    world.store.write = write
    results.append(world.consume(body))
    other, first = results
    assert (first.outcomes["applied"], other.outcomes["applied"]) == ((0, 3) if lost else (1, 2))
    assert [one.ended["acked"] for one in results] == [1, 0]
    assert [len(one.latencies_ms) for one in results] == [1, 0]


def test_an_end_whose_response_is_lost_is_counted_by_its_writer(world):
    world.consume(message(create("a")))
    real = world.store.write

    def write(before, after):
        world.store.write = real
        real(before, after)
        raise UnavailableError(TimeoutError())

    world.store.write = write
    world.now += 1_500
    result = world.consume(message(finish("a")))
    assert (result.ended, result.latencies_ms) == ({"acked": 1}, [1_500])


@pytest.mark.parametrize(("days", "fails"), [(20, False), (40, True)])
def test_a_message_that_its_tombstone_would_not_outlive_fails_if_that_is_not_prolonged(
    world, days, fails
):
    world.consume(message(create("a"), finish("a")))
    world.fail("write", lambda before, after: True, PermissionError("no"))
    late = Message("m", message(finish("a")), 1, NOW + days * DAY)
    ports = world.store, world.bus, world.dead_letters
    result = consume([late], *ports, now=lambda: NOW + (days + 1) * DAY)
    assert result.failed == ({"m": "PermissionError: no"} if fails else {})


@pytest.mark.parametrize("workers", [1, 4])
def test_a_chain_that_cannot_be_written_fails_only_its_own_messages(world, workers):
    world.fail("write", lambda _, after: after.tag == "bad", PermissionError("not this one"))
    bodies = [
        message(create("a")),
        message(create("bad"), create("b")),
        message(create("c"), finish("c")),
        message(finish("bad"), Request.stamp_("b", "short", b"\1")),
    ]
    result = world.consume(*bodies, workers=workers)
    assert result.failed == dict.fromkeys(("m1", "m3"), "PermissionError: not this one")
    assert set(world.store.chains) == {"a", "b", "c"}
    # m3 is delivered again, with the request that was rejected already.
    assert len(world.dead_letters.letters) == 1
    del world.store.write
    assert world.consume(*bodies, workers=workers).failed == {}
    assert world.dead_letters.letters == [world.dead_letters.letters[0]] * 2
    assert set(world.tags()) == {"c", "bad"}


def test_an_outage_of_the_bus_logs_one_line_a_kind_and_batch(world, caplog):
    world.bus.rejects = {f"t{n}" for n in range(50)}
    requests = [request for n in range(50) for request in (create(f"t{n}"), finish(f"t{n}"))]
    assert world.consume(message(*requests)).events_pending == 50
    assert {record.message for record in caplog.records} == {"events not published"}
    rejected, held_back = caplog.records
    assert (rejected.why, rejected.failures + held_back.failures) == ("rejected", 50)
    assert held_back.why.startswith("not tried: the circuit is open")


def test_an_event_is_marked_with_one_write_and_without_a_read(world):
    reads = []
    world.fail("read", lambda tags, *_: reads.append(tags), None)
    for tag, error in (("a", UnavailableError(OSError())), ("b", ConflictError(None))):
        world.fail("write", lambda before, _: before and before.reports.event_pending, error)
        result = world.consume(message(create(tag), finish(tag)))
        assert (result.failed, result.events, result.stats.writes) == ({}, 1, 2)
        assert world.store.chains[tag].reports.event_pending
    assert reads == []


def test_without_time_the_messages_are_delivered_again(world):
    bodies = (message(create(f"t{i}")) for i in range(10))
    result = world.consume(*bodies, budget=hurried(4))
    assert list(result.failed) == [f"m{i}" for i in range(4, 10)]
    assert set(result.failed.values()) == {"no time left in this invocation"}
    assert len(world.store.chains) == 4


def test_a_message_of_few_chains_does_not_wait_for_messages_of_thousands(world):
    """An invocation writes some 300 chains of 9,000."""
    fails = [f'{{"op":"fail","tag":"{n:x}","id":"f"}}' for n in range(9_000)]
    bodies = [*pack(fails, 110_000)][:3]
    bodies.append(message(create("small")))
    result = world.consume(*bodies, budget=hurried(300), receives=[1, 2, 4, 1])
    assert sorted(result.failed) == ["m0", "m1", "m2"]
    assert "small" in world.store.chains


def test_among_alike_messages_one_that_has_fewer_attempts_left_goes_first(world):
    bodies = [message(create("new")), message(create("old"), create("other"))]
    read_and_two_writes = hurried(3)
    result = world.consume(*bodies, budget=read_and_two_writes, receives=[1, 2])
    assert sorted(result.failed) == ["m0"]


class SlowBus(EventBus):
    """A bus of an invocation with a clock; an event of a failed chain takes 22 ms to make."""

    def __init__(self, seconds, sent):
        self.left = seconds
        client = BoundedClient(lambda: self, Budget(lambda: self.left))
        super().__init__("bus", client, policy=RetryPolicy(2, 0))
        self.sent = sent

    def entry(self, chain):
        self.left -= 0.022 if chain.status == "failed" else 0
        return {"tag": chain.tag}

    def describe_event_bus(self, Name):
        return {}

    def put_events(self, Entries):
        self.sent += [entry["tag"] for entry in Entries]
        return {}


@pytest.mark.parametrize(("chains", "workers"), [(0, 1), (1_107, 1), (1_107, 8)])
def test_naming_outstanding_units_takes_a_quarter_of_an_invocation(world, chains, workers):
    """1 MiB of chains that failed, whose ids were chosen to be hard to name, took 25 s."""
    tags, sent = [f"{n:04}" for n in range(chains)], []
    failed = (request for tag in tags for request in (create(tag), Request.fail(tag, "f")))
    bodies = pack([*failed, create("acked"), finish("acked")])
    world.bus = SlowBus(60, sent)
    result = world.consume(*bodies, workers=workers)
    # Several workers send their first batches at once, in any order.
    assert "acked" in (sent[:1] if workers == 1 else sent)
    assert result.failed == {}
    assert world.bus.left >= 60 * 0.75 - 0.022
    assert result.events + result.events_pending == 1 + chains
    for _ in range(2 if chains else 0):
        world.now += 60_000
        world.bus = SlowBus(60, sent)
        world.sweep()
    assert sorted(sent) == [*tags, "acked"]
    assert world.bus.left >= 60 * 0.75 - 0.022


def test_the_sweeper_counts_what_stays_pending_and_publishes_it_later(world):
    requests = (
        request
        for tag in [f"{n:03}" for n in range(120)]
        for request in (create(tag), Request.fail(tag, "f"))
    )
    world.bus.rejects = {f"{n:03}" for n in range(120)} | {"z"}
    world.consume(*pack([*requests, create("z"), finish("z")]))
    assert world.sweep().chains == 0  # the consumer that ended them has a minute to publish
    world.now += 60_000
    result = world.sweep()
    assert (result.events_pending, result.pending_since) == (121, NOW)
    world.bus.rejects = set()
    world.now += 3_600_000
    assert world.sweep().pending_since is None
    assert sorted(world.tags()) == sorted(world.store.chains)


def test_the_sweeper_fails_late_chains_and_postpones_the_others(world):
    creates = create("late", timeout=10), create("busy", idle_timeout=10), create("open")
    world.consume(message(*creates, Request.stamp_("orphan", "s", traced(5), started=1)))
    world.now += 5000
    world.consume(message(Request.stamp_("busy", "s", traced(9), started=1)))
    world.now += 5000
    result = world.sweep()
    assert (result.ended, result.chains) == ({"timed out": 1}, 2)
    assert world.store.chains["busy"].status == "open"
    world.now += 5000
    assert world.sweep().ended == {"timed out": 1}
    world.now += DAY
    assert world.sweep().ended == {"timed out": 1, "never created": 1}
    reasons = {event["tag"]: event["reason"] for event in world.bus.events}
    timed_out = dict.fromkeys(("late", "busy", "open"), "timed out")
    assert reasons == {**timed_out, "orphan": "never created"}
    assert world.sweep().chains == 0


def test_the_sweeper_does_not_count_a_chain_that_another_ends_meanwhile(world, monkeypatch):
    world.consume(message(create("a", timeout=10)))
    world.now += 10_000
    write = world.store.write

    def overtaken(before, after):
        world.store.write = write
        assert world.consume(message(finish("a"))).ended == {"acked": 1}
        write(before, after)

    monkeypatch.setattr(world.store, "write", overtaken)
    result = world.sweep()
    assert (result.ended, result.events, world.tags()) == ({}, 0, ["a"])


@pytest.fixture
def late(world):
    """Twenty chains whose deadline has passed."""
    world.consume(message(*(Request.create(f"t{n}", "c", b"\1", timeout=10) for n in range(20))))
    world.now += 10_000
    return world


def test_each_read_of_a_sweep_is_retried_by_itself(late):
    """Three of four reads fail, though none too often."""
    calls = count(1)
    late.store.invalid["t2"] = NotAChainError("t2", "no stamp")
    late.fail("read", lambda *_: next(calls) % 4, UnavailableError(OSError("throttled")))
    result = late.sweep()
    assert (result.ended, result.problems) == ({"timed out": 19}, 1)


def test_a_chain_that_cannot_be_swept_does_not_hold_up_the_others(late):
    def delete(_, after):
        return after.tag == "t2" and late.store.chains.pop("t2", None)

    late.fail("write", lambda _, after: after.tag == "t1", PermissionError())
    late.fail("write", delete, ConflictError(None))
    result = late.sweep()
    assert (result.ended, result.problems, result.chains) == ({"timed out": 18}, 1, 20)
