"""The generations of a tag: a chain that was deleted, and the next one under its tag."""

import time
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError

from tests.support.faults import counted_calls, failing, lost_responses
from tests.support.services import apply_requests
from xorack import DynamoDBAcker, errors
from xorack.aws.client import CONFIG
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.retry import RetryPolicy
from xorack.compat import dynamodb_acker
from xorack.core.request import Request

A, B, C = b"\x29" * 64, b"\x25" * 64, b"\xa9" * 64
CREATE = Request.create("t", "create", A, started=0)
FIRST = Request.stamp_("t", "first", B)


@pytest.fixture
def store(aws):
    return DynamoDBStore(aws.table_name, client=aws.client("dynamodb", config=CONFIG))


@pytest.fixture
def make_acker(aws, store):
    def make_acker():
        policy = RetryPolicy(attempts=3, base_seconds=0.001)
        return DynamoDBAcker(aws.table_name, client=store.table.client, policy=policy)

    return make_acker


def queued(store, request):
    """Apply a request as the consumer does, which reads the chain first."""
    return apply_requests(store, "t", [request]).outcomes[0].kind


def test_a_remembered_chain_is_not_taken_for_the_next_of_its_tag(make_acker, store, aws):
    remembers, other = make_acker(), make_acker()
    remembers.create("t", A)
    remembers.stamp("t", B)
    other.delete("t")
    time.sleep(0.002)
    # The same units in the next run: version and stamp are those that the first acker remembers.
    assert [queued(store, CREATE), queued(store, FIRST)] == ["applied", "applied"]
    remembers.stamp("t", C)
    # The queue delivers the second run's request again.
    assert queued(store, FIRST) == "duplicate"
    stored = store.read(["t"])["t"]
    assert stored.stamp == bytes(x ^ y ^ z for x, y, z in zip(A, B, C, strict=True))


def test_a_chain_is_remembered_for_minutes_only(make_acker, store, monkeypatch):
    acker = make_acker()
    acker.create("t", A)
    now = acker._writer.now()
    for minutes, calls in ((4, {"UpdateItem": 1}), (10, {"GetItem": 1, "UpdateItem": 1})):
        monkeypatch.setattr(acker._writer, "now", lambda m=minutes: now + m * 60_000)
        with counted_calls(store.table.client) as counted:
            acker.stamp("t", B)
        assert counted == calls


def test_a_call_of_unknown_outcome_can_be_repeated(make_acker, aws):
    acker, later = make_acker(), make_acker()
    outage = failing("GetItem", "InternalServerError", status=500)
    with lost_responses("UpdateItem", 9), outage, pytest.raises(ClientError):
        acker.create("t", A, request_id="mine")
    for repeats in (acker, later):
        assert repeats.create("t", A, request_id="mine") == A
    with pytest.raises(errors.TagExists):
        later.create("t", A)
    with pytest.raises(errors.RequestIdReused):
        later.stamp("t", B, request_id="mine")
    for _ in range(2):
        assert later.stamp("t", B, started=1, request_id="s") == acker.stamp(
            "t", B, started=1, request_id="s"
        )
    assert aws.item("t")["started"] == {"N": "1"}
    with pytest.raises(errors.ArgumentError, match="id: ''"):
        acker.stamp("t", B, request_id="")


@contextmanager
def interposed(acker, operation, before):
    """Call a function before the next call of an operation."""
    table, real = acker.store.table, acker.store.table.call

    def call(called, **arguments):
        if called == operation:
            table.call = real
            before()
        return real(called, **arguments)

    table.call = call
    yield
    table.call = real


class _InterruptedLock(AbstractContextManager):
    def __enter__(self):
        raise KeyboardInterrupt

    def __exit__(self, *_):
        pass


def test_an_interrupt_of_a_waiting_call_blocks_nobody(make_acker, monkeypatch):
    acker = make_acker()
    acker.create("t", A)
    with monkeypatch.context() as patch:
        patch.setattr(dynamodb_acker, "threading", SimpleNamespace(Lock=_InterruptedLock))
        with pytest.raises(KeyboardInterrupt):
            acker.stamp("t", B)
    assert acker.stamp("t", A).acked
