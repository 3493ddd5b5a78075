"""Tracker: from plain Python through the queue and the consumer to acked events."""

import json
import threading

import pytest

from tests.functional.test_handlers import handle, item, world  # noqa: F401
from tests.support.faults import refused
from xorack import Token, Tracker, unit_id
from xorack.aws.client import CONFIG
from xorack.core.errors import InvalidRequest, InvalidToken, SendFailed, XorAckError
from xorack.core.message import parse
from xorack.core.retry import RetryPolicy


@pytest.fixture
def tracker(world):  # noqa: F811
    policy = RetryPolicy(attempts=4, base=0.001)
    return Tracker(world.queue_url, world.client("sqs", config=CONFIG), policy=policy)


@pytest.fixture
def deliver(world):  # noqa: F811
    """Hands what is on the queue to the consumer."""

    def deliver(times=1):
        bodies = [message["Body"] for message in world.receive_all(world.queue_url)]
        for _ in range(times):
            assert handle(*bodies) == []
        return bodies

    return deliver


def events(world):  # noqa: F811
    return {event["detail"]["tag"]: event["detail"] for event in world.events()}


def test_a_word_count_event_by_event(tracker, deliver, world):  # noqa: F811
    token = tracker.start("database/file13", timeout=60, detail={"lines": 2})
    wire = []
    with tracker.step(token) as step:
        for position, word in enumerate(["to", "be", "or"]):
            wire.append(json.dumps({"word": word, "token": step.child(position).to_json()}))
    deliver()
    assert item(world, "database/file13")["started"] == {"N": "4"}
    for event in wire:
        assert events(world) == {}
        with tracker.step(json.loads(event)["token"]):
            pass
        deliver(times=2)
    (told,) = events(world).values()
    assert told["status"] == "acked"
    assert (told["started"], told["finished"]) == (4, 4)
    assert told["detail"] == {"lines": 2}


def test_a_step_that_raises_sends_nothing_and_may_be_tried_again(tracker, deliver, world):  # noqa: F811
    token = tracker.start("t")

    def work():
        with tracker.step(token) as step:
            step.child("a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert [r.op for body in deliver() for r in parse(body).requests] == ["create"]
    with tracker.step(token) as step:
        child = step.child("a")
    with tracker.step(token) as step:  # its event was delivered again
        assert step.child("a") == child
    with tracker.step(str(child)):
        pass
    deliver()
    assert events(world)["t"]["status"] == "acked"


def test_a_step_that_raises_fails_its_chains_where_asked(tracker, deliver, world):  # noqa: F811
    token = tracker.start("t")
    with pytest.raises(ValueError, match="worse"), tracker.step(token, fail=True):
        raise ValueError("worse\0 and " + "é" * 2000)
    deliver()
    told = events(world)["t"]
    assert told["status"] == "failed"
    assert told["reason"].startswith("ValueError: worse and é")
    assert told["outstanding"] == [f"{token.unit:016x}"]


def test_a_step_may_belong_to_several_chains(tracker, deliver, world):  # noqa: F811
    one, two = tracker.start("one"), tracker.start("two")
    with tracker.step(one, two) as step:
        joined = step.child("joined")
    assert joined.tags == ("one", "two")
    deliver()
    assert events(world) == {}
    with tracker.step(joined.to_json()):
        pass
    deliver()
    assert {tag: told["finished"] for tag, told in events(world).items()} == {"one": 2, "two": 2}


def test_two_units_of_one_chain_may_meet_in_a_step(tracker, deliver, world):  # noqa: F811
    with tracker.step(tracker.start("t")) as step:
        left, right = step.child(), step.child()
    with tracker.step(left, right) as step:
        last = step.child("sum")
    with tracker.step(last):
        pass
    deliver()
    assert events(world)["t"]["finished"] == 4


def test_a_batch_is_sent_packed_at_its_end(tracker, deliver, world):  # noqa: F811
    with tracker.batch():
        tokens = [tracker.start(f"t{n}") for n in range(100)]
        for token in tokens:
            with tracker.batch(), tracker.step(token):
                pass
        assert deliver() == []
    assert len(deliver()) == 1
    assert len(events(world)) == 100


def test_a_batch_that_raises_sends_the_steps_that_ended_well(tracker, deliver, world):  # noqa: F811
    tokens = [tracker.start("a"), tracker.start("b")]

    def work():
        with tracker.batch():
            with tracker.step(tokens[0]):
                pass
            with tracker.step(tokens[1]):
                raise RuntimeError

    with pytest.raises(RuntimeError):
        work()
    deliver()
    assert list(events(world)) == ["a"]


def test_a_batch_is_its_threads_own(tracker, deliver):
    def other():
        tracker.start("at once")

    with tracker.batch():
        tracker.start("later")
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        (body,) = deliver()
        assert parse(body).requests[0].tag == "at once"
    assert len(deliver()) == 1


def test_plain_stamps(world, deliver):  # noqa: F811
    tracker = Tracker(world.queue_url, world.client("sqs"), stamps="plain")
    token = tracker.start("t", "root", 5)
    assert token.unit == unit_id("root", 5)
    with Tracker(world.queue_url, world.client("sqs")).step(str(token)) as step:
        step.child(unit=2**64 - 1)
    deliver()
    assert item(world, "t")["stamp"]["B"] == b"\xff" * 8


def test_extend_and_fail(tracker, deliver, world):  # noqa: F811
    token = tracker.start("t", timeout=60)
    tracker.extend(token, 7200)
    deliver()
    left = item(world, "t")
    assert int(left["deadline"]["N"]) - int(left["created_at"]["N"]) >= 7_199_000
    tracker.fail(str(token), "no more")
    tracker.fail(token, "no more")
    deliver()
    assert events(world)["t"]["reason"] == "no more"
    for wrong in (0, -5, None):
        with pytest.raises(InvalidRequest if wrong is not None else Exception):
            tracker.extend(token, wrong) if wrong is not None else tracker.extend("x", 5)


def test_what_is_not_accepted_is_raised(tracker):
    with (
        refused("SendMessageBatch", "ServiceUnavailable", times=99, status=503),
        pytest.raises(SendFailed, match="ServiceUnavailable"),
    ):
        tracker.start("t")


def test_mistakes_of_a_step_are_named(tracker):
    token = tracker.start("t")
    with tracker.step(token) as step:
        step.child("a")
        with pytest.raises(InvalidRequest, match="child"):
            step.child("a")
        with pytest.raises(InvalidRequest, match="child"):
            step.child(unit=token.unit)
        with pytest.raises(InvalidRequest, match="unit"):
            step.child(unit=0)
    with pytest.raises(XorAckError, match="ended"):
        step.child("b")
    with pytest.raises(InvalidRequest, match="token"):
        tracker.step()
    with pytest.raises(InvalidRequest, match="each unit once"):
        tracker.step(token, str(token))
    with pytest.raises(InvalidRequest, match="one kind"):
        tracker.step(token, Token(5, ("u",), "plain"))
    with pytest.raises(InvalidRequest, match="tag"):
        tracker.start("")
    with pytest.raises(InvalidRequest, match="stamps"):
        Tracker("q", stamps="opaque")
    with pytest.raises(InvalidRequest, match="queue_url"):
        Tracker("")


GOOD = {"v": 1, "unit": "00000000000000ff", "tags": ["t"], "kind": "traced"}


def test_tokens_survive_json():
    token = Token(255, ("t",))
    assert token.to_json() == GOOD
    for form in (token, GOOD, json.dumps(GOOD), str(token), str(token).encode()):
        assert Token.from_json(form) == token
    assert len(str(token)) < 80


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({**GOOD, "v": 2}, "v: 2, expected 1: another version"),
        ({**GOOD, "v": True}, "v: True"),
        ({}, "v: None"),
        ({**GOOD, "unit": 5}, "unit: 5"),
        ({**GOOD, "unit": "0" * 16}, "unit: "),
        ({**GOOD, "unit": "x" * 16}, "unit: "),
        ({**GOOD, "tags": []}, "tags: "),
        ({**GOOD, "tags": ["t", "t"]}, "tags: "),
        ({**GOOD, "tags": [5]}, "tags: "),
        ({**GOOD, "kind": "opaque"}, "kind: 'opaque'"),
        ({**GOOD, "kind": []}, "kind: a list"),
        ("no JSON", "text: 'no JSON'"),
        ("5", "value: 5"),
        (None, "value: None"),
    ],
)
def test_what_is_no_token_is_named(wrong, named):
    with pytest.raises(InvalidToken) as caught:
        Token.from_json(wrong)
    assert named in str(caught.value)
