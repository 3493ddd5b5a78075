"""The chain writer over a store that fails by a script."""

import pytest

from tests.support.chains import changed, make_chain
from tests.support.fakes import NO_WAIT
from tests.support.memory_store import MemoryStore
from tests.support.services import apply_requests, writer
from xorack.acker.chain_writer import Application, CachedChain
from xorack.aws.retry import RetryPolicy
from xorack.core.errors import StaleLocalData
from xorack.core.request import Request
from xorack.core.transitions import apply
from xorack.errors import UnavailableError

NOW = 1_700_000_000_000
GUESS = CachedChain(None, verified=False)


class LostResponse(Exception):
    """The cause of each scripted failure."""


class FaultyStore(MemoryStore):
    """A store whose calls fail by a script: one list of faults for each kind of call.

    Faults of a write: ``drop`` (it does not arrive), ``lose`` (its response is lost), or a request
    that another writer applies first. Any fault of a read drops it.
    """

    def __init__(self):
        super().__init__()
        self.write_faults, self.read_faults = [], []
        self.reads, self.kept = 0, []

    def read(self, tags, on_invalid=None):
        self.reads += 1
        if self.read_faults and self.read_faults.pop(0):
            raise UnavailableError(LostResponse())
        return super().read(tags, on_invalid)

    def keep_spilled_marks(self, chain, until):
        self.kept.append(until)

    def write(self, before, after):
        fault = self.write_faults.pop(0) if self.write_faults else None
        if fault == "drop":
            raise UnavailableError(LostResponse())
        if isinstance(fault, Request):
            stored = self.chains[after.tag]
            super().write(stored, apply(stored, [fault], now=NOW).chain)
        super().write(before, after)
        if fault == "lose":
            raise UnavailableError(LostResponse())


def stamp(id, data=b"\x01", **counts):
    return Request.stamp_("t", id, data, **counts)


def stamps(count, prefix="s"):
    return [stamp(f"{prefix}{n}", (n + 1).to_bytes(8, "little"), started=1) for n in range(count)]


def run(store, *requests, policy=NO_WAIT, **options):
    return apply_requests(store, "t", requests, now=lambda: NOW, policy=policy, **options)


def kinds(applied):
    return [outcome.kind for outcome in applied.outcomes]


def policy(wait=0.0, **options):
    return RetryPolicy(
        base_seconds=wait, cap_seconds=wait, sleep=lambda s: None, draw=lambda: 1.0, **options
    )


@pytest.fixture
def store():
    store = FaultyStore()
    run(store, Request.create("t", "c", b"\x10"))
    store.reads = 0
    return store


@pytest.fixture
def verified(store):
    return CachedChain(store.chains["t"], verified=True)


def test_a_conflict_returns_the_stored_state(store):
    store.write_faults = [stamp("x", b"\x04"), stamp("y", b"\x08")]
    chains = writer(store, now=lambda: NOW, policy=policy())
    chains.apply(Application("t", [stamp("s", b"\x03")]))
    assert store.chains["t"].stamp == b"\x1f"
    assert (chains.stats.writes, chains.stats.conflicts) == (3, 2)
    assert store.reads == 1


@pytest.mark.parametrize(("wait", "reads"), [(0.004, 0), (0.4, 2)])
def test_the_chain_is_read_again_only_after_a_long_wait(store, verified, wait, reads):
    store.write_faults = [stamp("x", b"\x04"), stamp("y", b"\x04")]
    run(store, stamp("s"), policy=policy(wait), cached=verified)
    assert store.reads == reads
    assert store.chains["t"].stamp == b"\x11"
    store.chains["t"] = changed(store.chains["t"], deadline=NOW)
    store.write_faults = [stamp("z", b"\x04"), stamp("u", b"\x04")]
    assert writer(store, now=lambda: NOW, policy=policy(wait)).expire(store.chains["t"]).final
    assert store.reads == 2 * reads


@pytest.mark.parametrize(("fault", "kind"), [(stamp("s"), "duplicate"), ("lose", "applied")])
def test_only_a_lost_response_credits_the_write_after_a_failed_read(store, verified, fault, kind):
    store.write_faults, store.read_faults = [fault], ["drop"]
    applied = run(store, stamp("s"), cached=verified, policy=policy(1))
    assert (kinds(applied), store.reads) == ([kind], 2)


@pytest.mark.parametrize("attempts", [1, 3, 20])
def test_retries_are_used_up(store, attempts):
    store.write_faults = [stamp(f"x{n}", b"\x04") for n in range(20)]
    with pytest.raises(StaleLocalData, match=f"each of {attempts} attempts"):
        run(store, stamp("s"), policy=policy(attempts=attempts))
    store.write_faults = ["drop"] * 20
    with pytest.raises(LostResponse):
        run(store, stamp("s"), policy=policy(attempts=attempts))


def test_a_wrong_guess_does_not_count_as_an_attempt(store):
    store.chains["t"] = make_chain("t", b"\2", "pending", version=1)
    create = Request.create("t", "a", b"\1")
    assert kinds(run(store, create, cached=GUESS, policy=policy(attempts=1))) == ["applied"]
    assert store.chains["t"].stamp == b"\3"


def test_a_guess_that_a_chain_does_not_exist_is_verified(store):
    assert kinds(run(store, stamp("s"), cached=GUESS, must_exist=True)) == ["applied"]
    assert store.reads == 1


DAY = 86_400_000
RETENTION = 30 * DAY


def test_spilled_marks_of_a_chain_without_a_deadline_expire():
    """The direct API knows none: its buckets stayed for ever, also after `delete`."""
    store = FaultyStore()
    run(store, Request.create("t", "c", bytes(7) + b"\1"), *stamps(70))
    run(store, *stamps(70, "more"))
    assert store.chains["t"].marks_until == NOW + RETENTION + DAY
    for day in range(0, 100, 20):
        now = NOW + day * DAY
        apply_requests(store, "t", stamps(1, day), now=lambda n=now: n, policy=NO_WAIT)
        assert now + RETENTION <= store.chains["t"].marks_until <= now + 2 * RETENTION
    assert len(store.kept) == 2


def test_marks_outlive_a_late_create_and_an_end_that_a_sweeper_missed():
    store = FaultyStore()
    limits = {"policy": NO_WAIT, "default_timeout_ms": DAY}
    apply_requests(store, "t", stamps(70), now=lambda: NOW, **limits)
    apply_requests(store, "t", stamps(70, "more"), now=lambda: NOW, **limits)
    create = Request.create("t", "c", bytes(7) + b"\1", timeout=40 * DAY // 1000)
    apply_requests(store, "t", [create], now=lambda: NOW, **limits)
    assert store.kept == [NOW + (40 + 60) * DAY]
    late = writer(store, now=lambda: NOW + 80 * DAY)
    ended = late.expire(store.chains["t"])
    assert store.kept[1:] == [NOW + (80 + 60) * DAY]
    assert store.chains["t"] == ended
    assert ended.marks_until == store.kept[-1]
