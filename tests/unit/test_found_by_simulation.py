"""What the simulation found, each as the shortest test that showed it."""

import pytest

from tests.support.fakes import NO_WAIT
from tests.support.services import apply_requests
from xorack.acker.chain_writer import CachedChain
from xorack.acker.memory_store import MemoryStore
from xorack.core.chain import Chain
from xorack.core.errors import RequestIdReused, StaleLocalData, TagExists
from xorack.core.ports import Conflict
from xorack.core.request import Request
from xorack.core.retry import RetryPolicy
from xorack.core.transitions import apply

ONCE = RetryPolicy(attempts=1, sleep=lambda seconds: None)


class LandsAndConflicts(MemoryStore):
    """A write lands, is sent again by a client that lost the answer, and meets itself."""

    def write(self, before, after):
        super().write(before, after)
        raise Conflict(after, maybe_ours=True)


class AlwaysConflicts(MemoryStore):
    def write(self, before, after):
        raise Conflict(self.chains[after.tag])


def test_a_write_that_meets_itself_at_the_last_try_is_applied_and_not_stale():
    store = LandsAndConflicts()
    chain = Chain("t", b"\3", "open", version=1)
    store.chains["t"] = chain
    request = Request.stamp_("t", "a", b"\1")
    applied = apply_requests(
        store, "t", [request], now=lambda: 1, policy=ONCE, cached=CachedChain(chain, verified=True)
    )
    assert [outcome.kind for outcome in applied.outcomes] == ["applied"]
    assert store.chains["t"].stamp == b"\2"


def test_a_conflict_with_others_at_the_last_try_is_stale():
    store = AlwaysConflicts()
    store.chains["t"] = Chain("t", b"\3", "open", version=1)
    with pytest.raises(StaleLocalData, match="each of 1 attempts"):
        apply_requests(store, "t", [Request.stamp_("t", "a", b"\1")], now=lambda: 1, policy=ONCE)
    with pytest.raises(StaleLocalData, match="each of 20 attempts"):
        apply_requests(store, "t", [Request.stamp_("t", "a", b"\1")], now=lambda: 1, policy=NO_WAIT)


def test_a_wrong_guess_is_no_try():
    store = MemoryStore()
    pending = Chain("t", b"\2", "pending", version=1)
    store.chains["t"] = pending
    guess = CachedChain(None, verified=False)
    create = Request.create("t", "a", b"\1")
    applied = apply_requests(store, "t", [create], now=lambda: 1, policy=ONCE, cached=guess)
    assert [outcome.kind for outcome in applied.outcomes] == ["applied"]
    assert store.chains["t"].stamp == b"\3"


def test_an_id_that_was_refused_in_a_fold_is_not_used():
    creates = [Request.create("t", "one", b"\1"), Request.create("t", "two", b"\2")]
    stamp = Request.stamp_("t", "two", b"\3")
    applied = apply(None, [*creates, stamp, creates[1]], now=1)
    assert [outcome.kind for outcome in applied.outcomes] == [
        "applied",
        "rejected",
        "applied",
        "rejected",
    ]
    assert isinstance(applied.outcomes[1].error, TagExists)
    assert isinstance(applied.outcomes[3].error, RequestIdReused)
    assert applied.chain.stamp == b"\2"
