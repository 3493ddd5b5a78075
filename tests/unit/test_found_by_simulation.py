"""The shortest test for each bug that the simulation found."""

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

ONE_ATTEMPT = RetryPolicy(attempts=1, sleep=lambda seconds: None)


class WriteThatMeetsItself(MemoryStore):
    """Writes succeed, are retried by the SDK after a lost response, and then conflict."""

    def write(self, before, after):
        super().write(before, after)
        raise Conflict(after, maybe_ours=True)


class AlwaysConflicts(MemoryStore):
    def write(self, before, after):
        raise Conflict(self.chains[after.tag])


def write(store, chain, request, policy=ONE_ATTEMPT, cached=None):
    """Apply a request to a stored chain; return the kinds of outcomes."""
    store.chains["t"] = chain
    applied = apply_requests(store, "t", [request], now=lambda: 1, policy=policy, cached=cached)
    return [outcome.kind for outcome in applied.outcomes]


def test_a_write_that_meets_itself_at_the_last_attempt_is_applied():
    store, chain = WriteThatMeetsItself(), Chain("t", b"\3", "open", version=1)
    cached = CachedChain(chain, verified=True)
    assert write(store, chain, Request.stamp_("t", "a", b"\1"), cached=cached) == ["applied"]
    assert store.chains["t"].stamp == b"\2"


@pytest.mark.parametrize(("policy", "attempts"), [(ONE_ATTEMPT, 1), (NO_WAIT, 20)])
def test_a_conflict_with_others_at_the_last_attempt_is_stale(policy, attempts):
    chain = Chain("t", b"\3", "open", version=1)
    with pytest.raises(StaleLocalData, match=f"each of {attempts} attempts"):
        write(AlwaysConflicts(), chain, Request.stamp_("t", "a", b"\1"), policy)


def test_a_wrong_guess_does_not_count_as_an_attempt():
    store, pending = MemoryStore(), Chain("t", b"\2", "pending", version=1)
    guess = CachedChain(None, verified=False)
    assert write(store, pending, Request.create("t", "a", b"\1"), cached=guess) == ["applied"]
    assert store.chains["t"].stamp == b"\3"


def test_the_id_of_a_rejected_request_is_not_used():
    creates = [Request.create("t", "one", b"\1"), Request.create("t", "two", b"\2")]
    stamp = Request.stamp_("t", "two", b"\3")
    applied = apply(None, [*creates, stamp, creates[1]], now=1)
    kinds = [outcome.kind for outcome in applied.outcomes]
    assert kinds == ["applied", "rejected", "applied", "rejected"]
    assert isinstance(applied.outcomes[1].error, TagExists)
    assert isinstance(applied.outcomes[3].error, RequestIdReused)
    assert applied.chain.stamp == b"\2"
