"""Transitions of chains that no vector, no schedule and no property test covers."""

import json
import random
import time

import pytest

from tests.support.chains import apply_all
from xorack.core.errors import BufferLengthsUnequal, RequestIdReused, TagExists
from xorack.core.event import event_detail, rfc3339
from xorack.core.request import Request
from xorack.core.stamp import sum_of
from xorack.core.transitions import Limits, expire

NOW = 1_700_000_000_000
DAY = 86_400_000
LIMITS = Limits(DAY, pending_timeout_ms=4 * DAY, resumes=frozenset({"lambda"}))


def create(id="c", stamp=b"\x01", **options):
    return Request.create("t", id, stamp, **options)


def stamp(id, stamp=b"\x01", **counts):
    return Request.stamp_("t", id, stamp, **counts)


def run(*requests, chain=None, now=NOW):
    """Apply requests in one write; return the chain, and each error or kind of outcome."""
    applied = apply_all(chain, requests, now=now, limits=LIMITS)
    return applied.chain, [type(one.error) if one.error else one.kind for one in applied.outcomes]


PENDING, _ = run(stamp("c", b"\x07"))
ENDED = {
    "acked": run(create(), stamp("finish", finished=1))[0],
    # The reason that a sender gives changes no rule.
    "failed": run(create(), Request.fail("t", "f", "never created"))[0],
    "never created": expire(PENDING, NOW + 4 * DAY),
}


@pytest.mark.parametrize("state", ENDED)
def test_a_request_that_is_rejected_once_is_rejected_after_the_end(state):
    chain = ENDED[state]
    rejected = stamp("wrong", b"\x01\x02"), stamp("c", b"\x05"), create("two")
    after, outcomes = run(*rejected, chain=chain, now=NOW + DAY)
    assert after is chain
    assert outcomes == [BufferLengthsUnequal, RequestIdReused, TagExists]
    (outcome,) = apply_all(chain, [create("two")], now=NOW + DAY).outcomes
    ended = f"it is {state}, since {rfc3339(chain.ended_at)}"
    assert str(outcome.error) == f"tag: 't' already exists: {ended}"


def test_a_chain_is_as_old_as_the_message_of_its_create():
    """The queue's delay is part of its duration; a clock that is ahead makes none negative."""
    for sent_at, created_at in ((NOW - DAY, NOW - DAY), (NOW + DAY, NOW), (None, NOW)):
        applied = apply_all(None, [create(timeout=60)], now=NOW, limits=LIMITS, sent_at=[sent_at])
        assert applied.chain.created_at == created_at
        assert applied.chain.deadlines.deadline == NOW + 60_000  # from when it is applied
    ended, _ = run(
        stamp("done", finished=1),
        chain=apply_all(None, [create()], now=NOW, limits=LIMITS, sent_at=[NOW - DAY]).chain,
    )
    assert event_detail(ended)["duration_ms"] == DAY


def test_a_sweep_looks_at_chains_that_hide_units_in_little_time():
    """A long search for their names took 40 ms a chain, and a sweep of 1,200 chains 46 s."""
    rng = random.Random(1)
    stamps = [sum_of([rng.getrandbits(64) for _ in range(45)], 16) for _ in range(30)]
    took = []
    for one in stamps:
        chain = run(create(stamp=one, started=16, tolerated_units=16))[0]
        started = time.process_time()
        assert expire(chain, NOW + 2 * DAY).status == "failed"
        took.append(time.process_time() - started)
    assert min(took) < 0.012  # all are as hard; a busy machine makes some of them slower


def test_who_waits_is_rejected_without_the_permission_and_in_no_text():
    (outcome,) = apply_all(
        None, [create(resume={"step_functions": "T"})], now=0, limits=LIMITS
    ).outcomes
    message = "resume: 'step_functions', expected lambda: see this acker's setting resume"
    assert str(outcome.error) == message
    chain, outcomes = run(create(resume={"lambda": "secret"}))
    assert (outcomes, "secret" in repr(chain)) == (["applied"], False)


def test_the_callback_is_that_of_the_create_that_was_sent_last():
    """A task that runs again sends its create with another token, and SQS keeps no order."""
    chain = None
    for token, sent_at, expected in (("a", 100, "a"), ("c", 300, "c"), ("b", 200, "c")):
        request = create(resume={"lambda": token})
        chain = apply_all(chain, [request], now=NOW, limits=LIMITS, sent_at=[sent_at]).chain
        assert json.loads(chain.reports.resume) == {"lambda": expected}
