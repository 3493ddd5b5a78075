"""The consumer's service over fakes: what becomes of each message."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes import NO_WAIT, FakeBus, FakeDeadLetters
from tests.support.services import Message, consume, sweep
from xorack.acker.memory_store import MemoryStore
from xorack.core.errors import InvalidRequest, NotAChain
from xorack.core.message import pack, parse
from xorack.core.ports import Unavailable
from xorack.core.request import Request
from xorack.core.retry import RetryPolicy
from xorack.core.stamp import traced, xor

NOW = 1_700_000_000_000


class World:
    def __init__(self):
        self.store = MemoryStore()
        self.bus = FakeBus()
        self.letters = FakeDeadLetters()
        self.now = NOW
        self.workers = 1
        self.policy = NO_WAIT

    def consume(self, *bodies):
        messages = [Message(f"m{i}", body) for i, body in enumerate(bodies)]
        return consume(
            messages,
            self.store,
            self.bus,
            self.letters,
            policy=self.policy,
            now=lambda: self.now,
            default_timeout=86_400_000,
            workers=self.workers,
        )

    def sweep(self):
        return sweep(self.store, self.bus, policy=NO_WAIT, now=lambda: self.now, workers=1)


@pytest.fixture
def world():
    return World()


def message(*requests):
    (body,) = pack(requests)
    return body


def create(tag, unit=1, **more):
    return Request.create(tag, "create", traced(unit), **more)


def finish(tag, unit=1):
    return Request.stamp_(tag, "finish", traced(unit), finished=1)


def test_from_messages_to_an_event(world):
    done = world.consume(
        message(create("a", detail={"x": 1}), create("b")),
        message(
            Request.stamp_("a", "s", xor(traced(1), traced(2), traced(3)), started=2, finished=1)
        ),
        message(finish("b"), Request.stamp_("a", "w2", traced(2), finished=1)),
    )
    assert done.failed == {}
    assert [event["tag"] for event in world.bus.events] == ["b"]
    assert (done.created, done.ended["acked"], done.events) == (2, 1, 1)
    # Three messages, two chains: one write a chain, one to cross the event off.
    assert done.stats.writes == 3
    world.now += 1500
    done = world.consume(message(Request.stamp_("a", "w3", traced(3), finished=1)))
    assert done.latencies == [1500]
    event = world.bus.events[-1]
    assert event == {
        "id": event["id"],
        "tag": "a",
        "status": "acked",
        "created_at": "2023-11-14T22:13:20.000Z",
        "ended_at": "2023-11-14T22:13:21.500Z",
        "duration_ms": 1500,
        "started": 3,
        "finished": 3,
        "detail": {"x": 1},
    }
    assert not world.store.chains["a"].event_pending


def test_a_failed_chain_names_what_is_outstanding(world):
    world.consume(
        message(
            create("a"),
            Request.stamp_(
                "a", "s", xor(traced(1), traced(0xAB), traced(3)), started=2, finished=1
            ),
            Request.stamp_("a", "w", traced(3), finished=1),
            Request.fail("a", "f", "no more"),
        )
    )
    (event,) = world.bus.events
    assert event["status"] == "failed"
    assert event["reason"] == "no more"
    assert event["outstanding"] == ["00000000000000ab"]
    assert event["outstanding_complete"] is True


def test_a_whole_batch_again_changes_nothing(world):
    bodies = [message(create("a")), message(create("b"), finish("a"))]
    world.consume(*bodies)
    before = dict(world.store.chains)
    done = world.consume(*bodies)
    assert world.store.chains == before
    assert done.outcomes["duplicate"] == 3
    assert done.failed == {}
    assert len(world.bus.events) == 1


def test_refused_requests_go_away_with_the_reason_and_the_others_apply(world):
    wrong = {"op": "stamp", "tag": "a", "id": "w", "stamp": "AQ=="}
    body = json.dumps(
        {
            "version": 1,
            "requests": [
                create("a").to_json(),
                {"op": "stamp", "tag": "a", "id": "x", "stamp": "!"},
                wrong,
                finish("a").to_json(),
            ],
        }
    )
    done = world.consume(body, "rubbish")
    assert done.failed == {}
    assert [e["status"] for e in world.bus.events] == ["acked"]
    by_reason = {letter.reason: letter.body for letter in world.letters.letters}
    assert len(by_reason) == 3
    (length,) = (reason for reason in by_reason if "1 bytes, expected 648" in reason)
    assert json.loads(by_reason[length])["requests"] == [wrong]
    assert "rubbish" in by_reason.values()
    assert done.outcomes["rejected"] == 3


def test_a_second_create_and_a_reused_id_are_refused_and_counted(world):
    world.consume(message(create("a")))
    done = world.consume(
        message(
            Request.create("a", "other", traced(5)),
            Request.stamp_("a", "create", traced(7), started=1),
        )
    )
    assert (done.outcomes["rejected"], done.outcomes["reused"]) == (2, 1)
    assert {"tag: 'a' already exists"} < {letter.reason for letter in world.letters.letters}
    assert [parse(letter.body).requests[0].id for letter in world.letters.letters] == [
        "other",
        "create",
    ]


def test_when_dead_letters_cannot_be_sent_the_message_stays(world):
    world.letters.broken = True
    done = world.consume(message(create("a")), "rubbish")
    assert list(done.failed) == ["m1"]
    assert "a" in world.store.chains


class Broken(MemoryStore):
    def __init__(self, tag):
        super().__init__()
        self.tag = tag

    def write(self, before, after):
        if after.tag == self.tag:
            raise PermissionError("not this one")
        super().write(before, after)


@pytest.mark.parametrize("workers", [1, 4])
def test_a_chain_that_cannot_be_written_fails_its_own_messages_only(world, workers):
    world.store = Broken("bad")
    world.workers = workers
    bodies = [
        message(create("a")),
        message(create("bad"), create("b")),
        message(create("c"), finish("c")),
        message(finish("bad"), Request.stamp_("b", "wrong", b"\1")),
    ]
    done = world.consume(*bodies)
    assert set(done.failed) == {"m1", "m3"}
    assert "not this one" in done.failed["m1"]
    assert set(world.store.chains) == {"a", "b", "c"}
    # m3 comes again whole; its refused request is sent away then, and only then.
    assert world.letters.letters == []
    world.store.tag = None
    done = world.consume(*bodies)
    assert done.failed == {}
    assert len(world.letters.letters) == 1
    assert {e["tag"] for e in world.bus.events} == {"c", "bad"}


def test_an_event_that_is_not_taken_stays_owed_and_goes_out_later_under_its_id(world):
    world.bus.refuse = {"a"}
    body = message(create("a"), finish("a"))
    done = world.consume(body, message(create("b")))
    assert list(done.failed) == ["m0"]
    assert (done.events, done.events_pending) == (0, 1)
    assert world.store.chains["a"].event_pending
    world.bus.refuse = set()
    done = world.consume(body)
    assert done.failed == {}
    assert done.outcomes["duplicate"] == 2
    assert [e["tag"] for e in world.bus.events] == ["a"]
    assert not world.store.chains["a"].event_pending


def test_a_crash_after_the_state_leaves_the_event_to_the_sweeper(world):
    class Crash(BaseException):
        pass

    def crash(chains):
        raise Crash

    publish, world.bus.publish = world.bus.publish, crash
    with pytest.raises(Crash):
        world.consume(message(create("a"), finish("a")))
    world.bus.publish = publish
    assert world.sweep().events == 0  # those who wrote the end have a minute
    world.now += 60_000
    assert world.sweep().events == 1
    first = world.bus.events[0]
    world.consume(message(finish("a")))
    assert world.bus.events == [first]
    assert world.sweep().chains == 0


def test_the_sweeper_ends_what_is_late_and_looks_again(world):
    world.consume(
        message(
            create("late", timeout=10),
            create("busy", idle_timeout=10),
            create("open"),
            Request.stamp_("orphan", "s", traced(5), started=1),
        )
    )
    world.now += 5000
    world.consume(message(Request.stamp_("busy", "s", traced(9), started=1)))
    world.now += 5000
    swept = world.sweep()
    assert swept.ended == {"timed out": 1}
    assert swept.chains == 2
    assert world.store.chains["busy"].status == "open"
    world.now += 5000
    assert world.sweep().ended == {"timed out": 1}
    world.now += 86_400_000
    assert world.sweep().ended == {"timed out": 1, "never created": 1}
    reasons = {e["tag"]: e["reason"] for e in world.bus.events}
    assert reasons == {
        "late": "timed out",
        "busy": "timed out",
        "open": "timed out",
        "orphan": "never created",
    }
    assert world.sweep().chains == 0


def test_late_requests_are_counted_and_change_nothing(world):
    world.consume(message(create("a"), finish("a")))
    before = world.store.chains["a"]
    done = world.consume(message(Request.stamp_("a", "late", traced(9)), Request.fail("a", "f")))
    assert done.outcomes["late"] == 2
    assert done.failed == {}
    assert world.store.chains["a"] is before


def test_when_time_runs_out_the_rest_comes_again(world):
    left = iter([9.0] * 4)
    world.policy = RetryPolicy(sleep=lambda s: None, time_left=lambda: next(left, -1))
    done = world.consume(*(message(create(f"t{i}")) for i in range(10)))
    assert 0 < len(done.failed) < 10
    assert set(done.failed.values()) == {"no time left in this invocation"}
    assert len(world.store.chains) == 10 - len(done.failed)


def test_chains_that_cannot_be_read_together_are_read_one_by_one(world):
    world.consume(message(create("a"), create("b")))
    read = world.store.read

    def one_at_a_time(tags):
        if len(tags) > 1:
            raise Unavailable(OSError("too many"))
        return read(tags)

    world.store.read = one_at_a_time
    done = world.consume(message(finish("a"), finish("b")))
    assert done.failed == {}
    assert done.ended["acked"] == 2


def test_the_same_message_twice_in_a_batch(world):
    body = message(create("a"), finish("a"))
    done = world.consume(body, body)
    assert (done.outcomes["applied"], done.outcomes["duplicate"]) == (2, 2)
    assert len(world.bus.events) == 1


def test_a_damaged_item_is_not_the_other_chains_trouble_in_a_sweep(world):
    world.consume(*(message(create(f"t{n}", timeout=10)) for n in range(5)))
    read = world.store.read

    def damaged(tags):
        if "t2" in tags:
            raise NotAChain("t2", "its stamp is missing")
        return read(tags)

    world.store.read = damaged
    world.now += 10_000
    swept = world.sweep()
    assert swept.ended == {"timed out": 4}
    assert swept.problems == 1


def test_a_sweep_tries_again_what_passes(world):
    world.consume(message(create("t", timeout=10)))
    read, left = world.store.read, [2]

    def throttled(tags):
        if left[0]:
            left[0] -= 1
            raise Unavailable(OSError("throttled"))
        return read(tags)

    world.store.read = throttled
    world.now += 10_000
    assert world.sweep().ended == {"timed out": 1}
    left[0] = 99
    world.consume(message(create("u", timeout=10)))
    world.now += 10_000
    with pytest.raises(OSError, match="throttled"):
        world.sweep()


def test_ten_thousand_due_at_once_are_ended_in_one_sweep_or_go_on_in_the_next(world):
    tags = [f"t{n}" for n in range(10_000)]
    world.consume(*(message(Request.create(tag, "c", b"\1", timeout=10)) for tag in tags))
    world.now += 10_000
    pages = world.store.due_pages

    def page_by_page(now):
        for page in pages(now):
            yield from (page[at : at + 100] for at in range(0, len(page), 100))

    world.store.due_pages = page_by_page
    hurried = iter([9.0] * 40)
    hasty = RetryPolicy(sleep=lambda s: None, time_left=lambda: next(hurried, -1))
    first = sweep(world.store, world.bus, policy=hasty, now=lambda: world.now, workers=1)
    assert not first.complete
    assert first.ended == {"timed out": 4000}
    second = world.sweep()
    assert second.complete
    assert second.ended == {"timed out": 6000}
    assert sorted(event["tag"] for event in world.bus.events) == sorted(tags)


STRANGE = st.sampled_from(
    [None, True, False, 0, 1, -1, 2**63 - 1, 2**63, 1.0, 0.5, "", "AQ==", [], {}, [1], {"a": 1}]
)
NAMES = st.one_of(
    st.text(max_size=3),
    st.sampled_from(["a", "a\0b", "\x7f", "é", "\ud800", "i" * 128, "i" * 129, "é" * 64, "é" * 65]),
    st.sampled_from([1024, 1025]).map(lambda length: "t" * length),
    STRANGE,
)
STAMPS = st.one_of(
    st.binary(max_size=20).map(lambda data: base64.b64encode(data).decode()),
    st.sampled_from(["AQ", "AQ=", "AQ==\n", " AQ==", "AQ==AQ==", "A-_=", "é", "=", "AAAA", "AR=="]),
    st.sampled_from([65_536, 65_537]).map(lambda n: base64.b64encode(b"x" * n).decode()),
    STRANGE,
)
COUNTS = st.one_of(st.integers(0, 5), STRANGE)
RAW = st.one_of(
    st.fixed_dictionaries(
        {
            "op": st.sampled_from(["stamp", "create"]),
            "tag": st.just("t") | NAMES,
            "id": st.just("i") | NAMES,
            "stamp": st.just("AQ==") | STAMPS,
        },
        optional={"started": COUNTS, "finished": COUNTS},
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "op": st.sampled_from(["stamp", "create", "fail", "extend", "", [], {}, 1]),
            "tag": NAMES,
            "id": NAMES,
            "stamp": STAMPS,
            "started": COUNTS,
            "finished": COUNTS,
            "timeout": STRANGE,
            "idle_timeout": STRANGE,
            "detail": STRANGE,
            "reason": NAMES,
            "other": STRANGE,
        },
    ),
    STRANGE,
)


@given(st.lists(RAW, min_size=1, max_size=4), st.booleans())
def test_a_message_holds_what_each_of_its_requests_is_when_looked_at_closely(raws, spaces):
    body = json.dumps({"version": 1, "requests": raws}, indent=1 if spaces else None)
    expected, wrong = [], []
    for index, raw in enumerate(raws):
        try:
            expected.append(Request.from_json(raw))
        except InvalidRequest as error:
            wrong.append(f"requests[{index}].{error}")
    requests, refused = parse(f" {body}\n" if spaces else body)
    assert requests == expected
    assert list(map(repr, requests)) == list(map(repr, expected))
    assert [type(request) for request in requests] == [Request] * len(expected)
    assert [letter.reason for letter in refused] == wrong


def test_what_was_read_cannot_be_changed():
    (request,), _ = parse(message(create("t")))
    with pytest.raises(AttributeError):
        request.tag = "other"
    with pytest.raises(AttributeError):
        request.other = 1


@pytest.mark.parametrize("more", ["", "x", "{}", '{"version":1}', "]", "\0"])
def test_nothing_may_stand_after_a_message(more):
    body = message(create("t"))
    requests, refused = parse(body + " \n" + more)
    assert len(requests) == (not more)
    assert [letter.reason[:5] for letter in refused] == ["body:"] * bool(more)


def test_wrong_requests_that_share_a_letter_are_counted_each(world):
    done = world.consume(json.dumps({"version": 1, "requests": [1] * 500}))
    assert done.failed == {}
    assert done.outcomes["rejected"] == 500
    assert len(world.letters.letters) == 101


def test_a_reason_that_is_a_status_is_counted_as_a_failure(world):
    done = world.consume(message(create("a"), Request("fail", "a", "f", reason="acked")))
    assert done.ended == {"failed": 1}
