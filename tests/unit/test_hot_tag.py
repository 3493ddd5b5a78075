"""The example of a hot tag: the whole is acked with the last shard, and fails with the first."""

from itertools import count

import pytest

from examples.hot_tag import PATTERN, handler, request_of, requests_to_open, root_of, shard_of
from tests.support.fakes import NO_WAIT, FakeBus, FakeDeadLetters
from tests.support.services import Message, consume
from xorack import traced, unit_id, xor
from xorack.acker.memory_store import MemoryStore
from xorack.core.message import pack
from xorack.core.request import Request

TAG, SHARDS, WORK = "database", 4, [unit_id("database", n) for n in range(40)]


class Stack:
    """The consumer, and the rule that hands shards' events to the example."""

    def __init__(self):
        self.store, self.bus, self.letters = MemoryStore(), FakeBus(), FakeDeadLetters()
        self.told = 0
        self.numbers = count()

    def send(self, *requests, copies=1):
        for _ in range(copies):
            messages = [Message(str(next(self.numbers)), body) for body in pack(requests)]
            done = consume(messages, self.store, self.bus, self.letters, policy=NO_WAIT, workers=1)
            assert not done.failed
        events, self.told = self.bus.events[self.told :], len(self.bus.events)
        for detail in events:
            if "parent" in (detail.get("detail") or {}):
                self.send(request_of({"detail": detail}), copies=2)  # delivered twice

    def status(self, tag):
        return self.store.chains[tag].status


@pytest.fixture
def stack():
    stack = Stack()
    stack.send(*requests_to_open(TAG, SHARDS, timeout=3600))
    for shard in range(SHARDS):
        mine = [unit for unit in WORK if shard_of(TAG, unit, SHARDS) == f"{TAG}#{shard}"]
        assert mine
        begun = xor(traced(root_of(TAG, shard)), *map(traced, mine))
        request = Request.stamp_(f"{TAG}#{shard}", "b", begun, started=len(mine), finished=1)
        stack.send(request)
    return stack


def finish(stack, unit, **more):
    tag = shard_of(TAG, unit, SHARDS)
    stack.send(Request.stamp_(tag, f"done {unit}", traced(unit), finished=1), **more)


def test_the_whole_is_acked_with_its_last_shard(stack):
    for unit in WORK[:-1]:
        finish(stack, unit, copies=2)
        assert stack.status(TAG) == "open"
    finish(stack, WORK[-1])
    assert {stack.status(f"{TAG}#{shard}") for shard in range(SHARDS)} == {"acked"}
    assert stack.status(TAG) == "acked"
    assert (stack.store.chains[TAG].started, stack.store.chains[TAG].finished) == (SHARDS, SHARDS)
    assert stack.letters.letters == []


def test_the_whole_fails_with_a_shard_and_says_which(stack):
    stack.send(Request.fail(f"{TAG}#2", "f", "it broke"))
    assert stack.status(TAG) == "failed"
    assert stack.store.chains[TAG].reason == f"{TAG}#2: it broke"


def test_what_is_missing_is_named_by_its_shard(stack):
    for unit in WORK[1:]:
        finish(stack, unit)
    from xorack import peel

    lost = stack.store.chains[shard_of(TAG, WORK[0], SHARDS)]
    assert peel(lost.stamp) == ({WORK[0]}, True)
    shard = WORK[0] % SHARDS
    assert peel(stack.store.chains[TAG].stamp) == ({root_of(TAG, shard)}, True)


def test_the_handler_sends_it(aws, monkeypatch):
    monkeypatch.setenv("QUEUE_URL", aws.queue_url)
    monkeypatch.setattr("examples.hot_tag.send", lambda url, requests: sent.extend([url, requests]))
    sent = []
    detail = {"id": "e1", "tag": f"{TAG}#1", "status": "acked",
              "detail": {"parent": TAG, "shard": 1}}  # fmt: skip
    handler({"detail": detail}, None)
    url, (request,) = sent
    assert (url, request.tag, request.id, request.finished) == (aws.queue_url, TAG, "e1", 1)
    assert PATTERN["source"] == ["xorack"]
