"""The handlers through a wire that drops, loses, throttles and breaks: at botocore's layer.

The whole of the code runs, boto3's own retries included; only the waiting is left out.
"""

import random
import time
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError
from moto.core.models import botocore_stubber

from tests.functional.test_handlers import handle, item, message, world  # noqa: F401
from tests.support.faults import wire_error
from xorack.core.request import Request
from xorack.core.retry import RetryPolicy
from xorack.core.stamp import plain, xor

OPERATIONS = {
    "UpdateItem",
    "GetItem",
    "BatchGetItem",
    "BatchWriteItem",
    "PutEvents",
    "SendMessageBatch",
}
CHAINS = 50


class Wire:
    """Hurts a share of the calls, by seed."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.share = 0.0
        self.hurt = {}

    def __call__(self, original):
        def call(stubber, event_name, request, **more):
            def deliver():
                return original(stubber, event_name, request, **more)

            operation = event_name.rsplit(".", 1)[-1]
            if operation not in OPERATIONS or self.rng.random() >= self.share:
                return deliver()
            fault = self.rng.choice(["drop", "lose", "throttle", "break", "break after"])
            self.hurt[fault] = self.hurt.get(fault, 0) + 1
            if fault == "drop":
                raise ConnectTimeoutError(endpoint_url=request.url)
            if fault == "throttle":
                return wire_error(request, "ThrottlingException", 400)
            if fault == "break":
                return wire_error(request, "InternalServerError", 500)
            deliver()
            if fault == "lose":
                raise ReadTimeoutError(endpoint_url=request.url)
            return wire_error(request, "InternalServerError", 500)

        return call


@pytest.fixture
def _no_waiting(monkeypatch):
    clock = SimpleNamespace(**{**vars(time), "sleep": lambda seconds: None})
    monkeypatch.setattr("botocore.endpoint.time", clock)
    defaults = tuple(
        (lambda seconds: None) if getattr(value, "__name__", "") == "sleep" else value
        for value in RetryPolicy.__init__.__defaults__
    )
    monkeypatch.setattr(RetryPolicy.__init__, "__defaults__", defaults)


def work(rng):
    """Chains whose work is done, in one message a request, and their number of units."""
    bodies, units = [], {}
    for number in range(CHAINS):
        tag = f"chain-{number}"
        count = rng.randint(1, 5)
        ids = [rng.getrandbits(63) | 1 for _ in range(count + 1)]
        root, *words = map(plain, ids)
        units[tag] = count + 1
        requests = [
            Request.create(tag, "create", root),
            Request.stamp_(tag, "split", xor(root, *words), started=count, finished=1),
            *(Request.stamp_(tag, f"w{n}", word, finished=1) for n, word in enumerate(words)),
        ]
        bodies += [message(request) for request in requests]
    return bodies, units


@pytest.mark.usefixtures("_no_waiting")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_chain_is_acked_once_whatever_the_wire_does(world, seed):  # noqa: F811
    rng = random.Random(seed)
    wire = Wire(seed)
    bodies, units = work(rng)
    waiting = bodies + rng.sample(bodies, len(bodies) // 3)
    rng.shuffle(waiting)
    handle("{}")  # so that what the handlers keep is made before anything is hurt
    stubber = type(botocore_stubber)
    with patch.object(stubber, "__call__", wire(stubber.__call__)):
        wire.share = 0.35
        for _ in range(1000):
            if not waiting:
                break
            size = rng.randint(1, 60)
            batch, waiting = waiting[:size], waiting[size:]
            again = [batch[int(failed[1:])] for failed in handle(*batch)]
            waiting += again + rng.sample(batch, min(len(batch), 3)) * (rng.random() < 0.5)
        wire.share = 0.0
    assert not waiting
    assert sum(wire.hurt.values()) > 60
    assert len(wire.hurt) == 5
    events = world.events()
    ids = {}
    for event in events:
        ids.setdefault(event["detail"]["tag"], set()).add(event["detail"]["id"])
    for tag, count in units.items():
        left = item(world, tag)
        assert left["status"] == {"S": "acked"}, tag
        assert left["started"] == left["finished"] == {"N": str(count)}
        assert len(ids.get(tag, ())) == 1 or "event_pending" in left, tag
    assert all(event["detail"]["status"] == "acked" for event in events)
    assert [letter["Body"] for letter in world.dead_letters()] == ["{}"]
