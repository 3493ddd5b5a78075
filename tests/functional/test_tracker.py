"""The tracker: from plain Python through the queue and the consumer to acked events."""

import asyncio
import json
import os
import subprocess
import sys
import time
import warnings
from types import SimpleNamespace

import pytest

from tests.support.fakes import FakeQueue
from tests.support.functions import Functions
from tests.support.in_process import create_resources
from tests.support.queue_server import QueueServer
from tests.support.threads import in_threads
from xorack import Token, Tracker, fan_in, unit_id
from xorack.aws.client import CONFIG, PerProcess
from xorack.aws.retry import RetryPolicy
from xorack.core.errors import ArgumentError, XorAckError
from xorack.core.message import parse
from xorack.ops.dead_letters import DeadMessage


@pytest.fixture
def tracker(aws):
    policy = RetryPolicy(attempts=4, sleep=lambda seconds: None)
    return Tracker(aws.queue_url, aws.client("sqs", config=CONFIG), policy=policy)


def finished(functions):
    """Deliver all messages; return the finished units of each chain that is acked."""
    functions.deliver()
    events = functions.events()
    assert {event["status"] for event in events.values()} <= {"acked"}
    return {tag: event["finished"] for tag, event in events.items()}


def run(step):
    """Run a step without children."""
    with step:
        pass


def test_a_step_that_ran_twice_with_other_children_says_which_nobody_tracks(tracker, functions):
    root, units = tracker.start("t"), {}
    for names in (["a", "b"], ["b", "new", "other"]):
        with tracker.step(root) as step:
            units |= {name: f"{step.child(name).unit:016x}" for name in names}
        functions.deliver()
    (letter,) = functions.aws.dead_letters()
    reason = (
        "id: '{}', expected a unique id: the chain's first step ran before with other children; "
        "was its token passed on, instead of a child's?; '{}' were started by the rejected "
        "request only"
    )
    others = f"{units['new']} and {units['other']}"
    error = letter["MessageAttributes"]["error"]["StringValue"]
    assert error == reason.format(f"step-{root.unit:016x}", others)
    cause = DeadMessage.read(letter | {"ReceiptHandle": "r"}).cause
    assert cause == reason.replace("'{}'", "…")


@pytest.mark.slow
def test_a_step_takes_a_batch_of_10_000_messages(tracker, functions):
    root = tracker.start("t")
    with tracker.step(root) as step:
        units = [step.child(number) for number in range(10_000)]
    with tracker.step(*units) as step:
        child = step.child("file")
    assert finished(functions) == {}
    assert len(functions.aws.item("t")["marks"]["B"]) == 16 * 10_003
    run(tracker.step(*units[5000:], units[0]))  # all their marks are spilled
    run(tracker.step(units[9]))
    run(tracker.step(child))
    assert finished(functions) == {"t": 10_002}
    with pytest.raises(ArgumentError, match="10001 tokens"):
        tracker.step(*units, root)


def test_a_batch_is_sent_packed_at_its_end(tracker, functions):
    with tracker.batch():
        for number in range(8):
            token = tracker.start(f"t{number}")
            with tracker.batch():
                run(tracker.step(token))
        assert functions.deliver() == []
    assert len(functions.deliver()) == 1
    assert len(functions.events()) == 8


def test_a_batch_that_raises_sends_the_steps_that_ended(tracker, functions):
    one, two = tracker.start("one"), tracker.start("two")

    def work():
        with tracker.batch():
            run(tracker.step(one))
            with tracker.step(two) as step:
                step.child("a")
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    sent = [request for body in functions.deliver() for request in parse(body).requests]
    assert [(request.op, request.tag) for request in sent] == [
        ("create", "one"),
        ("create", "two"),
        ("stamp", "one"),
    ]


def test_a_batch_belongs_to_its_task_of_asyncio(tracker, functions):
    """One task's batch must neither send nor keep what another one collects."""
    sent = []

    async def worker(name, before, after):
        await before.wait()
        with tracker.batch():
            tracker.start(f"{name}/1")
            after.set()
            await asyncio.sleep(0)  # the other task runs
            tracker.start(f"{name}/2")
        sent.append(sorted(r.tag for body in functions.deliver() for r in parse(body).requests))

    async def both():
        first, second, third = (asyncio.Event() for _ in range(3))
        first.set()
        await asyncio.gather(worker("a", first, second), worker("b", second, third))

    in_threads(asyncio.run, [both()])  # Playwright's loop may run in this thread
    assert sent == [["a/1", "a/2"], ["b/1", "b/2"]]


def test_a_task_shares_the_batch_in_which_it_started_and_may_outlive_it(tracker, functions):
    async def late(go):
        tracker.start("in the batch")
        await go.wait()
        tracker.start("after it")
        with tracker.batch():
            tracker.start("in its own")
            assert len(functions.deliver()) == 1

    async def main():
        go = asyncio.Event()
        with tracker.batch():
            task = asyncio.create_task(late(go))
            await asyncio.sleep(0)
            assert functions.deliver() == []
        (body,) = functions.deliver()
        assert parse(body).requests[0].tag == "in the batch"
        go.set()
        await task

    in_threads(asyncio.run, [main()])
    (body,) = functions.deliver()
    assert parse(body).requests[0].tag == "in its own"


_FORKS = """
import os, sys
from xorack import Tracker
tracker = Tracker(sys.argv[1])
tracker.start("parent/1")
if not (child := os.fork()):
    tracker.start("child/1")
    os._exit(0)
os.waitpid(child, 0)
tracker.start("parent/2")
with tracker.batch():
    tracker.start("parent/3")
    if not (child := os.fork()):
        tracker.start("child/2")
        with tracker.batch():
            tracker.start("child/3")
    else:
        os.waitpid(child, 0)
"""


def test_a_forked_process_connects_and_sends_by_itself():
    """Two processes on one connection would read each other's responses, and batches end in one."""
    with QueueServer() as server:
        command = [sys.executable, "-c", _FORKS, server.queue_url]
        subprocess.run(command, check=True)
        tags = [request.tag for request in server.take()]
    assert tags == ["parent/1", "child/1", "parent/2", "child/2", "child/3", "parent/3"]
    before, forked, after, *in_batch, last = server.ports
    assert before == after == last != forked
    assert len({before, forked, *in_batch}) == 3


@pytest.mark.parametrize("key", ["tag", "tagID"])
def test_the_state_of_a_chain_takes_one_read_of_its_status(aws, stacks, monkeypatch, key):
    aws = create_resources(aws.aws, partition_key=key)
    functions = Functions(aws, monkeypatch)
    monkeypatch.setattr("xorack.client.tracker.make_client", stacks.make_client)
    tracker = Tracker(aws.queue_url, table_name=aws.table_name)
    states = [tracker.state("t")]
    token = Token(unit_id("t"), ("t",))
    for send in (
        lambda: tracker.note(token, "early"),
        lambda: tracker.start("t"),
        lambda: run(tracker.step(token)),
    ):
        send()
        functions.deliver()
        states.append(tracker.state("t"))
    tracker.fail(tracker.start("u"), "no more")
    functions.deliver()
    assert [*states, tracker.state("u")] == [None, "pending", "open", "acked", "failed"]
    calls = []
    tracker._store.table.client.meta.events.register(
        "provide-client-params.*.*", lambda params, model, **_: calls.append((model.name, params))
    )
    tracker.state("t")
    ((operation, given),) = calls
    assert (operation, given.get("ConsistentRead", False)) == ("GetItem", False)
    assert {*given["ExpressionAttributeNames"].values()} == {aws.partition_key, "status"}


def test_a_state_without_a_table_is_refused_in_words(tracker):
    for given, problem in (
        (None, "table_name: None, expected"),
        ("none", "there is no table none"),
    ):
        tracker.table_name = given
        with pytest.raises(XorAckError, match=problem):
            tracker.state("t")


INVALID_CALLS = {
    "resume: a tuple": lambda tracker, token: tracker.start("t", resume=("lambda", "secret")),
    "missing: 5, expected a list": lambda tracker, token: tracker.note(token, "x", missing=5),
    "reason: 5, expected a string": lambda tracker, token: tracker.fail(token, 5),
    r"missing_count: '\\ud800', expected a whole": (
        lambda tracker, token: tracker.note(token, "x", missing_count="\ud800")
    ),
    "one kind and size": lambda tracker, token: tracker.step(token, Token(5, ("u",), cells=64)),
    "cells: 32, expected 16, 64, 256 or 1024": lambda *_: Tracker("https://q", cells=32),
    "cells: 64, expected traced": lambda *_: Tracker("https://q", stamps="plain", cells=64),
    "stamps: a list": lambda *_: Tracker("https://q", stamps=["plain"]),
    "queue_url": lambda *_: Tracker(""),
    "group: '', expected the name": lambda *_: Tracker("https://q", group=""),
    "queue_url: 'my-queue', expected the URL .*, and not the name": lambda *_: Tracker("my-queue"),
    "queue_url: '', expected the URL .* or set XORACK_QUEUE_URL": lambda *_: Tracker(),
    "this ARN has https://sqs.eu-west-1.amazonaws.com/123456789012/work": lambda *_: Tracker(
        "arn:aws:sqs:eu-west-1:123456789012:work", object()
    ),
    "tracker: <function .*, expected a Tracker: write @fan_in": lambda *_: fan_in(lambda _: None),
}


@pytest.mark.parametrize("named", INVALID_CALLS)
def test_the_error_names_an_invalid_argument(named):
    tracker = Tracker("queue", client=object())
    with pytest.raises(ArgumentError, match=named):
        INVALID_CALLS[named](tracker, Token(255, ("t",)))


def test_a_child_is_a_new_unit_of_a_step_that_has_not_ended(tracker):
    token = tracker.start("t")
    with tracker.step(token) as step:
        child = step.child(unit=-2)  # as Spark's xxhash64
        assert (child.unit, step.child("a").tags) == (2**64 - 2, ("t",))
        for parts, unit in ((("a",), None), ((), token.unit), ((), 0), ((), child.unit)):
            with pytest.raises(ArgumentError, match=r"child|unit"):
                step.child(*parts, unit=unit)
    with pytest.raises(XorAckError, match="ended"):
        step.child("b")


def test_a_step_without_a_with_statement_says_that_nothing_was_sent():
    tracker = Tracker("queue", queue := FakeQueue())
    with pytest.warns(RuntimeWarning, match="the step of t was never entered.*with tracker.step"):
        tracker.step(Token(5, ("t",))).child("a")  # nobody refers to it any more
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(tracker.step(Token(5, ("t",))))
        assert tracker.step(Token(6, ("t",))).requests()
    assert len(queue.requests) == 1


def test_the_environment_names_the_queue_and_the_table(monkeypatch):
    monkeypatch.setenv("XORACK_QUEUE_URL", "https://sqs.test/acker")
    monkeypatch.setenv("XORACK_TABLE", "chains")
    tracker = Tracker()
    assert (tracker.queue_url, tracker.table_name) == ("https://sqs.test/acker", "chains")
    given = Tracker("https://sqs.test/other", table_name="others")
    assert (given.queue_url, given.table_name) == ("https://sqs.test/other", "others")


def test_threads_share_a_tracker(aws, functions):
    """All of them make their first call at once, with the clients that the tracker makes."""
    shared = Tracker(aws.queue_url, table_name=aws.table_name)

    def work(number):
        with shared.batch():
            tokens = [shared.start(f"{number}/{n}", timeout=60) for n in range(5)]
            with shared.step(*tokens) as step:
                child = step.child("a")
            shared.note(child, f"thread {number}")
            shared.extend(child, 600 + number)
        run(shared.step(child))
        return shared.state(f"{number}/0")

    assert set(in_threads(work, range(8))) == {None}
    expected = {f"{number}/{n}": 2 for number in range(8) for n in range(5)}
    assert finished(functions) == expected
    items = [functions.aws.item(f"{number}/4") for number in range(8)]
    texts = [json.loads(item["note"]["S"])["text"] for item in items]
    assert texts == [f"thread {number}" for number in range(8)]
    assert set(in_threads(shared.state, expected)) == {"acked"}


def test_threads_make_one_client_at_its_first_call():
    made = []

    def make():
        time.sleep(0.01)
        made.append(os.getpid())
        return SimpleNamespace(call=os.getpid)

    client = PerProcess(make)
    assert set(in_threads(lambda _: client.call(), range(8))) == {os.getpid()} == set(made)
    assert len(made) == 1
