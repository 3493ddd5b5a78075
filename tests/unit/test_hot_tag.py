"""The example of a hot tag: it is acked with its last shard, and fails with the first."""

from itertools import count

import pytest

from examples import hot_tag
from examples.hot_tag import request_of, requests_to_open, root_of, shard_of
from tests.support.fakes import NO_WAIT, FakeBus, FakeDeadLetters
from tests.support.memory_store import MemoryStore
from tests.support.services import Message, consume
from xorack import peel, traced, unit_id, xor
from xorack.core.message import pack
from xorack.core.request import Request

TAG, SHARDS, WORK = "database", 4, [unit_id("database", n) for n in range(40)]


class Stack:
    """The consumer, and the rule that passes shards' events to the example, each twice."""

    def __init__(self):
        self.store, self.bus, self.dead = MemoryStore(), FakeBus(), FakeDeadLetters()
        self.delivered = 0
        self.numbers = count()

    def send(self, *requests, copies=1):
        for _ in range(copies):
            messages = [Message(str(next(self.numbers)), body) for body in pack(requests)]
            done = consume(messages, self.store, self.bus, self.dead, policy=NO_WAIT, workers=1)
            assert not done.failed
        events, self.delivered = self.bus.events[self.delivered :], len(self.bus.events)
        for detail in events:
            if "parent" in (detail.get("detail") or {}):
                self.send(request_of({"detail": detail}), copies=2)

    def finish(self, unit, **more):
        tag = shard_of(TAG, unit, SHARDS)
        self.send(Request.stamp_(tag, f"done {unit}", traced(unit), finished=1), **more)

    def status(self, tag):
        return self.store.chains[tag].status


@pytest.fixture
def stack():
    stack = Stack()
    stack.send(*requests_to_open(TAG, SHARDS, timeout=3600))
    for shard in range(SHARDS):
        mine = [unit for unit in WORK if shard_of(TAG, unit, SHARDS) == f"{TAG}#{shard}"]
        assert mine
        stamp = xor(traced(root_of(TAG, shard)), *map(traced, mine))
        stack.send(Request.stamp_(f"{TAG}#{shard}", "b", stamp, started=len(mine), finished=1))
    return stack


def test_the_tag_is_acked_with_its_last_shard(stack):
    *others, last = WORK
    for unit in others:
        stack.finish(unit, copies=2)
        assert stack.status(TAG) == "open"
    # The shard names its outstanding unit, and the tag its shard.
    shard = stack.store.chains[shard_of(TAG, last, SHARDS)]
    assert peel(shard.stamp) == ({last}, True)
    assert peel(stack.store.chains[TAG].stamp) == ({root_of(TAG, last % SHARDS)}, True)
    stack.finish(last)
    assert {stack.status(f"{TAG}#{shard}") for shard in range(SHARDS)} == {"acked"}
    assert stack.status(TAG) == "acked"
    assert (stack.store.chains[TAG].started, stack.store.chains[TAG].finished) == (SHARDS, SHARDS)
    assert stack.dead.letters == []


def test_the_tag_fails_with_a_shard_and_names_it(stack):
    stack.send(Request.fail(f"{TAG}#2", "f", "it broke"))
    assert stack.status(TAG) == "failed"
    assert stack.store.chains[TAG].reason == f"{TAG}#2: it broke"


def test_the_handler_sends_the_request(monkeypatch):
    sent = []
    monkeypatch.setenv("QUEUE_URL", "https://queue.test")
    monkeypatch.setattr(hot_tag, "send", lambda url, requests: sent.extend([url, *requests]))
    shard = {"parent": TAG, "shard": 1}
    detail = {"id": "e1", "tag": f"{TAG}#1", "status": "acked", "detail": shard}
    hot_tag.handler({"detail": detail}, None)
    url, request = sent
    assert url == "https://queue.test"
    assert (request.tag, request.id, request.finished) == (TAG, "e1", 1)
