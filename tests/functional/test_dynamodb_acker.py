"""The direct API over a table: the calls of the npm package ``xor-ack-dynamodb``, and more."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from botocore.exceptions import ClientError

from tests.support.faults import counted_calls, failing, lost_responses
from tests.support.threads import in_threads
from xorack import DynamoDBAcker, Stamp, errors, xor
from xorack.aws.client import CONFIG
from xorack.aws.retry import RetryPolicy
from xorack.client.token import Keys, Token
from xorack.core.ports import DEFAULT_RETENTION_MS

A, B, C = b"\x29" * 64, b"\x25" * 64, b"\xa9" * 64


@pytest.fixture
def client(aws):
    return aws.client("dynamodb", config=CONFIG)


@pytest.fixture
def make_acker(aws, client):
    def make_acker(**options):
        policy = RetryPolicy(base_seconds=0.001, cap_seconds=0.01, **options)
        return DynamoDBAcker(aws.table_name, client=client, policy=policy)

    return make_acker


@pytest.fixture
def acker(make_acker):
    return make_acker()


def test_the_example_of_the_npm_package(aws, acker):
    tag = "database/file13"
    stamp = acker.create(tag, A)
    assert (stamp, stamp.acked) == (A, False)
    stamp = acker.stamp(tag, xor(A, B, C))
    assert (stamp, stamp.acked) == (xor(B, C), False)
    assert isinstance(stamp, Stamp)
    assert not acker.stamp(tag, B).acked
    assert acker.stamp(tag, C).acked
    # A tombstone; the sweeper publishes its event.
    tombstone = aws.item(tag)
    assert (tombstone["status"], tombstone["event_pending"]) == ({"S": "acked"}, {"N": "1"})
    ended_at, expires_at = (int(tombstone[name]["N"]) for name in ("ended_at", "expires_at"))
    assert expires_at * 1000 > ended_at + 29 * 86_400_000
    assert "due_shard" in tombstone
    assert acker.stamp(tag, B).acked
    assert aws.item(tag) == tombstone


def test_invalid_calls_raise_and_write_nothing(aws, client, acker):
    acker.create("t", A)
    tags = ("", "x" * 1025, 5, "a\0b", None)
    calls = [
        (acker.create, "t", B, errors.TagExists, "t"),
        (acker.stamp, "nobody", A, errors.TagNotFound, "nobody"),
        (acker.stamp, "t", b"\1", errors.BufferLengthsUnequal, "1 bytes"),
    ]
    for call in (acker.create, acker.stamp):
        calls += [(call, tag, A, errors.ArgumentError, "tag") for tag in tags]
        calls += [(call, "u", "text", errors.ArgumentError, "stamp")]
        calls += [(call, "u", bytes(64), errors.ZeroBufferNoOp, "zero")]
    for call, tag, stamp, error, named in calls:
        with pytest.raises(error, match=named) as caught:
            call(tag, stamp)
        assert caught.value.code == error.__name__
    assert aws.item("u") is None
    assert acker.stamp("t", A).acked
    for table, key, named in (
        (aws.table_name, "stamp", "partition_key: 'stamp'"),
        (aws.table_name, "", "partition_key: ''"),
        ("", "tag", "table_name"),
    ):
        with pytest.raises(errors.ArgumentError, match=named):
            DynamoDBAcker(table, key, client)


def test_delete_frees_the_tag(aws, acker):
    with pytest.raises(errors.TagNotFound):
        acker.delete("t")
    acker.create("t", A)
    with lost_responses("DeleteItem"):
        acker.delete("t")
    assert aws.item("t") is None
    with pytest.raises(errors.TagNotFound):
        acker.stamp("t", A)
    acker.create("t", B)
    assert acker.stamp("t", B).acked
    acker.delete("t", force=True)


def put_as_the_npm_package(aws, stamp):
    item = {"tag": {"S": "t"}, "stamp": {"B": stamp}}
    aws.client("dynamodb").put_item(TableName=aws.table_name, Item=item)


def test_the_first_request_adopts_an_item_of_the_npm_package(aws, acker):
    put_as_the_npm_package(aws, A)
    with pytest.raises(errors.TagExists):
        acker.create("t", B)
    acker.stamp("t", xor(A, B), finished=1, started=2)  # the counts miss the root
    assert aws.item("t")["version"] == {"N": "1"}
    assert acker.stamp("t", B).acked
    assert aws.item("t")["status"] == {"S": "acked"}


def test_the_write_that_adopts_an_item_keeps_the_last_stamp_of_the_npm_package(
    aws, acker, monkeypatch
):
    write = acker.store.write
    put_as_the_npm_package(aws, A)

    def race(before, after):
        monkeypatch.setattr(acker.store, "write", write)
        put_as_the_npm_package(aws, xor(A, C))
        write(before, after)

    monkeypatch.setattr(acker.store, "write", race)
    assert acker.stamp("t", B) == xor(A, B, C)


def test_a_chain_can_be_a_unit_of_another(aws, acker):
    token = Token(7, ("p",), "plain")
    acker.create("c", A, parent=token)
    assert acker.stamp("c", A).acked
    item = aws.item("c")
    assert json.loads(item["parents"]["S"]) == [
        {"unit": f"{7:016x}", "tags": ["p"], "kind": "plain"}
    ]
    assert item["parents_pending"] == {"N": "1"}


def test_a_forged_parent_is_refused_if_the_environment_has_a_key(aws, acker, monkeypatch):
    monkeypatch.setenv("XORACK_TOKEN_KEY", "k" * 16)
    forged = Token(7, ("p",), "plain")
    with pytest.raises(errors.ArgumentError, match="token mac: missing"):
        acker.create("c", A, parent=forged)
    assert aws.item("c") is None
    acker.create("c", A, parent=Keys().sign(forged))


def test_delete_waits_for_no_event_if_no_sweeper_watches_the_table(aws, client):
    client.create_table(
        TableName="unwatched",
        AttributeDefinitions=[{"AttributeName": "tag", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "tag", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    watched, unwatched = (
        DynamoDBAcker(name, client=client) for name in (aws.table_name, "unwatched")
    )
    for acker in (watched, unwatched):
        acker.create("t", A)
        assert acker.stamp("t", A).acked
    unwatched.delete("t")
    unwatched.create("t", B)
    with pytest.raises(errors.StateError):
        watched.delete("t")
    with failing("DescribeTable", "AccessDeniedException"), pytest.raises(errors.StateError):
        unwatched.stamp("t", B) and unwatched.delete("t")


def test_a_permanent_error_is_raised_at_once(acker, client):
    with (
        failing("GetItem", "AccessDeniedException") as left,
        pytest.raises(ClientError, match="AccessDenied"),
    ):
        acker.stamp("t", A)
    assert left == [98]
    with pytest.raises(ClientError, match="ResourceNotFound"):
        DynamoDBAcker("no-such-table", client=client).create("t", A)


def test_a_stamp_takes_one_call_and_eight_marks_are_spilled_in_another(aws, acker, client):
    with counted_calls(client) as calls:
        acker.create("t", A)
        for number in range(1, 71):
            acker.stamp("t", number.to_bytes(64, "big"))
    # The runs of eights grow seven times; then they move up, to two buckets. None is looked up.
    assert calls == {"UpdateItem": 71 + 7 + 2, "GetItem": 1}
    chain = aws.item("t")
    assert len(chain["marks"]["B"]) == (71 - 64) * 16
    assert chain["spilled"] == {"N": "64"}
    items = client.scan(TableName=aws.table_name)["Items"]
    buckets = [item for item in items if "spilled_marks" in item]
    assert sorted(len(bucket["spilled_marks"]["BS"]) for bucket in buckets)[2] == 56
    assert sum(len(bucket["spilled_marks"]["BS"]) for bucket in buckets) == 56 + 64
    # A chain without a deadline moves their end with its writes.
    left_seconds = int(buckets[0]["expires_at"]["N"]) - time.time()
    assert left_seconds > DEFAULT_RETENTION_MS / 1000


def test_a_repeated_id_applies_once_also_in_a_write_with_new_ones(aws, acker, monkeypatch):
    acker.create("t", A)
    acker.stamp("t", B, request_id="mine")
    for number in range(1, 71):
        acker.stamp("t", number.to_bytes(64, "big"))
    before, apply = aws.item("t")["stamp"]["B"], acker._writer.apply
    queued, go_on = Event(), Event()

    def wait(*arguments, **options):
        queued.set()
        go_on.wait()
        return apply(*arguments, **options)

    monkeypatch.setattr(acker._writer, "apply", wait)
    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(acker.stamp, "t", A)]
        queued.wait()
        calls += [pool.submit(acker.stamp, "t", B, request_id="mine")]
        calls += [pool.submit(acker.stamp, "t", C)]
        while len(acker._queues["t", True].calls) < 3:
            time.sleep(0.001)
        go_on.set()
    assert [call.exception() for call in calls] == [None] * 3
    assert aws.item("t")["stamp"]["B"] == xor(before, A, C)


def test_threads_that_share_an_acker_share_writes(aws, acker, client, monkeypatch):
    acker.create("t", A)
    stamps = [(1 << 8 * n).to_bytes(64, "big") for n in range(32)]  # no part cancels out
    apply, awaited = acker._writer.apply, [len(stamps)]

    def work(stamp):
        return acker.stamp("t", stamp).acked

    def wait(*arguments, **options):  # the first write, until all others wait for it
        while awaited and len(acker._queues["t", True].calls) < awaited[0]:
            time.sleep(0.001)
        awaited.clear()
        return apply(*arguments, **options)

    monkeypatch.setattr(acker._writer, "apply", wait)
    with counted_calls(client) as calls:
        assert not any(in_threads(work, stamps))
    assert calls["UpdateItem"] <= 2
    assert aws.item("t")["stamp"]["B"] == xor(A, *stamps)
    # Of the threads that end the chain together, one acks it.
    assert sum(in_threads(work, [xor(A, stamps[0]), *stamps[1:]])) == 1
    assert aws.item("t")["status"] == {"S": "acked"}


def test_a_chain_is_remembered_for_minutes_only(make_acker, client, monkeypatch):
    acker = make_acker()
    acker.create("t", A)
    now = acker._writer.now()
    for minutes, calls in ((4, {"UpdateItem": 1}), (10, {"GetItem": 1, "UpdateItem": 1})):
        monkeypatch.setattr(acker._writer, "now", lambda m=minutes: now + m * 60_000)
        with counted_calls(client) as counted:
            acker.stamp("t", B)
        assert counted == calls


def test_a_call_of_unknown_outcome_can_be_repeated(make_acker, aws):
    acker, later = make_acker(attempts=3), make_acker()
    outage = failing("GetItem", "InternalServerError", status=500)
    with lost_responses("UpdateItem", 9), outage, pytest.raises(ClientError):
        acker.create("t", A, request_id="mine")
    for repeats in (acker, later):
        assert repeats.create("t", A, request_id="mine") == A
    with pytest.raises(errors.TagExists):
        later.create("t", A)
    with pytest.raises(errors.RequestIdReused):
        later.stamp("t", B, request_id="mine")
    for caller in (later, acker, later, acker):
        assert caller.stamp("t", B, started=1, request_id="s") == xor(A, B)
    assert aws.item("t")["started"] == {"N": "1"}
    with pytest.raises(errors.ArgumentError, match="id: ''"):
        acker.stamp("t", B, request_id="")
