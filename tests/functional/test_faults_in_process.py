"""The functions over a wire that drops, loses, throttles and breaks, below botocore."""

import random
from collections import Counter, defaultdict

import pytest
from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError

from tests.support.faults import error_response, on_the_wire
from tests.support.functions import message
from xorack.aws.retry import RetryPolicy
from xorack.core.request import Request
from xorack.core.stamp import plain, xor

pytestmark = pytest.mark.thorough

FAULTS = ["drop", "throttle", "break", "lose", "break after"]


class Wire:
    """A wire on which a share of the calls fails, by seed."""

    def __init__(self, rng, share=0.35):
        self.rng = rng
        self.share = share
        self.faults = Counter()

    def __call__(self, operation, deliver, request):
        if self.rng.random() >= self.share:
            return deliver()
        fault = self.rng.choice(FAULTS)
        self.faults[fault] += 1
        if fault in ("lose", "break after"):
            deliver()
        if fault == "drop":
            raise ConnectTimeoutError(endpoint_url=request.url)
        if fault == "lose":
            raise ReadTimeoutError(endpoint_url=request.url)
        if fault == "throttle":
            return error_response(request, "ThrottlingException")
        return error_response(request, "InternalServerError", 500)


def work(rng, chains):
    """Return all requests of chains that end acked, one a message, and the units of each."""
    bodies, units = [], {}
    for number in range(chains):
        tag = f"chain-{number}"
        root, *words = (plain(rng.getrandbits(63) | 1) for _ in range(rng.randint(2, 6)))
        units[tag] = 1 + len(words)
        split = Request.stamp_(tag, "split", xor(root, *words), started=len(words), finished=1)
        ends = (Request.stamp_(tag, f"w{n}", word, finished=1) for n, word in enumerate(words))
        bodies += map(message, (Request.create(tag, "create", root), split, *ends))
    return bodies, units


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_chain_is_acked_once_over_a_faulty_wire(aws, functions, monkeypatch, seed):
    defaults = [
        (lambda seconds: None) if getattr(value, "__name__", "") == "sleep" else value
        for value in RetryPolicy.__init__.__defaults__
    ]
    monkeypatch.setattr(RetryPolicy.__init__, "__defaults__", tuple(defaults))
    rng = random.Random(seed)
    wire = Wire(rng)
    bodies, units = work(rng, chains=15)
    queue = bodies + rng.sample(bodies, len(bodies) // 3)
    rng.shuffle(queue)
    functions.consume("{}")  # creates the clients before the first fault
    with on_the_wire(wire):
        for _ in range(1000):
            if not queue:
                break
            size = rng.randint(1, 30)
            batch, queue = queue[:size], queue[size:]
            queue += [batch[int(failed[1:])] for failed in functions.consume(*batch)]
            queue += rng.sample(batch, min(len(batch), 3)) * (rng.random() < 0.5)
    assert not queue
    assert wire.faults.keys() == set(FAULTS)
    assert wire.faults.total() > 30
    ids = defaultdict(set)
    for event in aws.events():
        assert event["detail"]["status"] == "acked"
        ids[event["detail"]["tag"]].add(event["detail"]["id"])
    for tag, count in units.items():
        item = functions.item(tag)
        assert item["status"] == {"S": "acked"}, tag
        assert item["started"] == item["finished"] == {"N": str(count)}
        assert len(ids[tag]) == 1 or "event_pending" in item, tag
    assert [letter["Body"] for letter in aws.dead_letters()] == ["{}"]
