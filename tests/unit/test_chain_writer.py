"""The loop that applies requests exactly once, over a store that fails as it is told."""

import pytest

from tests.support.fakes import NO_WAIT
from tests.support.services import apply_requests, writer
from xorack.acker.chain_writer import CachedChain
from xorack.acker.memory_store import MemoryStore
from xorack.core.chain import Chain
from xorack.core.errors import StaleLocalData, TagExists, TagNotFound
from xorack.core.marks import mark_key
from xorack.core.ports import Conflict, Unavailable
from xorack.core.request import Request
from xorack.core.retry import RetryPolicy
from xorack.core.transitions import apply

NOW = 1_700_000_000_000


class Lost(Exception):
    pass


class FaultyStore(MemoryStore):
    """Loses answers, drops calls, lets others write in between: by a script."""

    def __init__(self):
        super().__init__()
        self.script = []
        self.others = []
        self.reads = 0
        self.looked_up = []

    def get_spilled_marks(self, chain, keys):
        self.looked_up += keys
        return super().get_spilled_marks(chain, keys)

    def read(self, tags):
        self.reads += 1
        return super().read(tags)

    def write(self, before, after):
        fault = self.script.pop(0) if self.script else None
        if fault == "drop":
            raise Unavailable(Lost())
        if fault == "other":
            there = super().read([after.tag]).get(after.tag)
            super().write(there, apply(there, [self.others.pop(0)], now=NOW).chain)
        super().write(before, after)
        if fault == "lose":
            raise Unavailable(Lost())
        if fault == "retried by the client":
            # The client tried again by itself, and found its own write.
            raise Conflict(super().read([after.tag])[after.tag], maybe_ours=True)


def stamp(id, data=b"\x01", **more):
    return Request.stamp_("t", id, data, **more)


def run(store, *requests, **more):
    more.setdefault("policy", NO_WAIT)
    return apply_requests(store, "t", requests, now=lambda: NOW, **more)


def run_counted(store, *requests, policy=NO_WAIT):
    chains = writer(store, now=lambda: NOW, policy=policy)
    return chains.apply("t", requests), chains.stats


@pytest.fixture
def store():
    store = FaultyStore()
    run(store, Request.create("t", "c", b"\x10"))
    store.reads = 0
    return store


@pytest.mark.parametrize("fault", ["lose", "drop", "retried by the client"])
def test_a_lost_answer_applies_once_and_counts_as_applied(store, fault):
    store.script = [fault] * 3
    applied = run(store, stamp("s", b"\x03"), stamp("s", b"\x03"))
    assert [o.kind for o in applied.outcomes] == ["applied", "duplicate"]
    assert store.chains["t"].stamp == b"\x13"
    assert applied.chain == store.chains["t"]


def test_another_writers_state_comes_with_the_conflict(store):
    store.script = ["other", "other"]
    store.others = [stamp("x", b"\x04"), stamp("y", b"\x08")]
    at_once = RetryPolicy(sleep=lambda s: None, draw=lambda: 0.0)
    _, stats = run_counted(store, stamp("s", b"\x03"), policy=at_once)
    assert store.chains["t"].stamp == b"\x1f"
    assert (stats.writes, stats.conflicts) == (3, 2)
    assert store.reads == 1


def test_what_another_writer_applied_is_a_duplicate(store):
    store.script = ["other"]
    store.others = [stamp("s", b"\x03")]
    applied = run(store, stamp("s", b"\x03"), cached=CachedChain(store.chains["t"], verified=True))
    assert store.chains["t"].stamp == b"\x13"
    assert applied.outcomes[0].kind == "duplicate"


def test_tries_are_spent(store):
    store.script = ["other"] * 9
    store.others = [stamp(f"x{i}", b"\x04") for i in range(9)]
    policy = RetryPolicy(attempts=3, sleep=lambda s: None)
    with pytest.raises(StaleLocalData, match="3 attempts"):
        run(store, stamp("s"), policy=policy)
    store.script = ["drop"] * 9
    with pytest.raises(Lost):
        run(store, stamp("s"), policy=policy)


def test_only_a_write_whose_response_was_lost_counts_as_ours(store):
    """A conflict and then a failed read say nothing of the write: what another applied is its."""
    store.script = ["other"]
    store.others = [stamp("s", b"\x03")]
    read, failures = store.read, [Unavailable(Lost())]

    def fail_once(tags):
        if failures:
            raise failures.pop()
        return read(tags)

    store.read = fail_once
    waits = RetryPolicy(base=1, sleep=lambda s: None, draw=lambda: 1.0)
    verified = CachedChain(store.chains["t"], verified=True)
    applied = run(store, stamp("s", b"\x03"), policy=waits, cached=verified)
    assert applied.outcomes[0].kind == "duplicate"
    assert failures == []
    # A lost response, then a failed read: still ours.
    store.script, failures[:] = ["lose"], [Unavailable(Lost())]
    verified = CachedChain(store.chains["t"], verified=True)
    applied = run(store, stamp("u", b"\x03"), cached=verified)
    assert applied.outcomes[0].kind == "applied"
    assert failures == []


def test_marks_that_cannot_be_spilled_are_retried_and_nothing_is_written_before(store):
    run(store, *(stamp(f"s{n}") for n in range(63)))
    put, failures = store.put_spilled_marks, [Unavailable(Lost())] * 2

    def fail_twice(chain, marks, until):
        if failures:
            raise failures.pop()
        put(chain, marks, until)

    store.put_spilled_marks = fail_twice
    version = store.chains["t"].version
    applied = run(store, stamp("more"))
    assert [outcome.kind for outcome in applied.outcomes] == ["applied"]
    assert store.chains["t"].version == version + 1
    assert (failures, store.chains["t"].spilled) == ([], 64)


def test_must_exist(store):
    with pytest.raises(TagNotFound, match="u"):
        apply_requests(
            store,
            "u",
            [Request.stamp_("u", "s", b"\1")],
            now=lambda: NOW,
            policy=NO_WAIT,
            must_exist=True,
        )
    # A remembered chain that is gone: the write's condition tells.
    gone = store.chains.pop("t")
    with pytest.raises(TagNotFound):
        run(store, stamp("s"), cached=CachedChain(gone, verified=False), must_exist=True)


def test_a_guess_is_not_believed_without_a_write_that_proves_it(store):
    remembered = store.chains["t"]
    run(store, stamp("s"))
    with_s = store.chains["t"]
    store.chains["t"] = remembered  # deleted and made again, say
    applied = run(store, stamp("s"), cached=CachedChain(with_s, verified=False))
    assert applied.outcomes[0].kind == "applied"
    assert store.chains["t"].stamp == b"\x11"


def test_a_guess_saves_the_read(store):
    run(store, stamp("s"), cached=CachedChain(store.chains["t"], verified=False))
    assert store.reads == 0


def test_create_of_what_is_there_is_refused(store):
    applied = run(
        store, Request.create("t", "d", b"\x10"), cached=CachedChain(None, verified=False)
    )
    assert isinstance(applied.outcomes[0].error, TagExists)
    assert store.chains["t"].stamp == b"\x10"


def test_after_a_long_wait_the_chain_is_read_again_and_not_after_a_short_one(store):
    for wait, reads in ((0.004, 0), (0.4, 2)):
        store.script, store.reads = ["other", "other"], 0
        store.others = [stamp(f"x{wait}{i}", b"\x04") for i in range(2)]
        policy = RetryPolicy(base=wait, cap=wait, sleep=lambda s: None, draw=lambda: 1.0)
        run(
            store,
            stamp(f"s{wait}"),
            policy=policy,
            cached=CachedChain(store.chains["t"], verified=True),
        )
        assert store.reads == reads
    assert store.chains["t"].stamp == b"\x10"


def test_ids_drawn_for_the_call_are_looked_up_only_after_a_lost_answer(store):
    run(store, *(stamp(f"s{i}") for i in range(100)))
    assert store.chains["t"].spilled
    run(store, stamp("new"), fresh_ids=True)
    assert store.looked_up == []

    # The answer is lost, and others move the mark out of the chain before it is read again.
    def others_write(_):
        run(store, *(stamp(f"o{i}") for i in range(100)))

    store.script = ["lose"]
    before = store.chains["t"].started
    policy = RetryPolicy(sleep=others_write)
    applied = run(store, stamp("mine", started=1), policy=policy, fresh_ids=True)
    assert [outcome.kind for outcome in applied.outcomes] == ["applied"]
    assert store.chains["t"].started == before + 1
    assert store.looked_up[-1] == mark_key("mine")


@pytest.mark.parametrize("n", [3000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_requests_one_by_one_keep_the_item_small_and_duplicates_out(n):
    store = MemoryStore()
    requests = [stamp(f"s{i}", (i + 1).to_bytes(8, "little"), started=1) for i in range(n)]
    largest = 0
    for request in requests:
        run(store, request)
        largest = max(largest, len(store.chains["t"].marks))
    assert largest <= 64 * 16
    chain = store.chains["t"]
    assert chain.started == n
    # However late a duplicate comes.
    again = [
        run(store, request).outcomes[0].kind for request in (*requests[:: n // 300], requests[-1])
    ]
    assert set(again) == {"duplicate"}
    assert store.chains["t"] is chain


def test_a_large_batch_is_written_in_bounded_parts():
    store = MemoryStore()
    requests = [stamp(f"s{i}", (i + 1).to_bytes(8, "little")) for i in range(1000)]
    requests.insert(700, Request.create("t", "c", b"\1" * 8))
    applied, stats = run_counted(store, *requests)
    assert {o.kind for o in applied.outcomes} == {"applied"}
    assert [o.request for o in applied.outcomes] == requests
    assert stats.writes == 8
    assert stats.spilled == 7 * 128
    assert store.chains["t"].status == "open"
    again = run(store, *requests)
    assert {o.kind for o in again.outcomes} == {"duplicate"}


def test_a_crash_between_copying_marks_and_the_write_loses_none():
    class Crash(MemoryStore):
        armed = False

        def write(self, before, after):
            if self.armed:
                raise KeyboardInterrupt
            super().write(before, after)

    store = Crash()
    first = [stamp(f"s{i}", (i + 1).to_bytes(8, "little")) for i in range(64)]
    run(store, *first)
    store.armed = True
    more = [stamp(f"m{i}", b"\7" * 8) for i in range(10)]
    with pytest.raises(KeyboardInterrupt):
        run(store, *more)
    store.armed = False
    assert {o.kind for o in run(store, *more).outcomes} == {"applied"}
    assert {o.kind for o in run(store, *first, *more).outcomes} == {"duplicate"}


def test_write_retrying_does_again_what_may_be_done_twice(store):
    store.script = ["other", "drop", "lose"]
    store.others = [stamp("x", b"\x04")]

    def change(chain: Chain) -> Chain:
        from dataclasses import replace

        return (
            chain
            if chain.event_pending
            else replace(chain, version=chain.version + 1, event_pending=True)
        )

    chains = writer(store, policy=NO_WAIT)
    after = chains.change(store.chains["t"], change)
    assert after.event_pending
    assert store.chains["t"].event_pending
    gone = store.chains.pop("t")
    assert chains.change(gone, lambda c: Chain("t", version=9)) is None
