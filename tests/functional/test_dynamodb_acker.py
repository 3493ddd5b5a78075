"""The direct API over a table: the npm package ``xor-ack-dynamodb``, and what goes beyond it."""

import threading

import pytest
from botocore.exceptions import ClientError

from tests.support.faults import answers_lost, counted, refused
from xorack import DynamoDBAcker, Stamp, errors, xor
from xorack.aws.client import CONFIG
from xorack.core.retry import RetryPolicy


@pytest.fixture
def client(aws):
    return aws.client("dynamodb", config=CONFIG)


@pytest.fixture
def acker(aws, client):
    policy = RetryPolicy(base=0.001, cap=0.01)
    return DynamoDBAcker(aws.table_name, client=client, policy=policy)


@pytest.fixture
def item(aws, client):
    def item(tag):
        answer = client.get_item(TableName=aws.table_name, Key={"tag": {"S": tag}})
        return answer.get("Item")

    return item


A, B, C = b"\x29" * 64, b"\x25" * 64, b"\xa9" * 64


def test_the_seeds_walk(acker, item):
    stamp = acker.create("database/file13", A)
    assert stamp == A
    assert not stamp.acked
    stamp = acker.stamp("database/file13", xor(A, B, C))
    assert stamp == xor(B, C)
    assert isinstance(stamp, Stamp)
    assert not stamp.acked
    assert not acker.stamp("database/file13", B).acked
    assert acker.stamp("database/file13", C).acked
    # A tombstone, and its event owed to whoever publishes.
    left = item("database/file13")
    assert left["status"] == {"S": "acked"}
    assert left["event_pending"] == {"N": "1"}
    assert int(left["expires_at"]["N"]) * 1000 > int(left["ended_at"]["N"]) + 29 * 86_400_000
    assert "due_shard" in left
    assert acker.stamp("database/file13", B).acked
    assert item("database/file13") == left


def test_create_refuses(acker, item):
    acker.create("t", A)
    with pytest.raises(errors.TagExists, match="t"):
        acker.create("t", B)
    with pytest.raises(errors.ZeroBufferNoOp):
        acker.create("u", bytes(64))
    for tag in ("", "x" * 1025, 5, "a\0b", None):
        with pytest.raises(errors.InvalidRequest, match="tag"):
            acker.create(tag, A)
    with pytest.raises(errors.InvalidRequest, match="stamp"):
        acker.create("u", "text")
    assert item("u") is None


def test_stamp_refuses(acker):
    with pytest.raises(errors.TagNotFound, match="nobody") as caught:
        acker.stamp("nobody", A)
    assert caught.value.code == "TagNotFound"
    acker.create("t", A)
    with pytest.raises(errors.ZeroBufferNoOp):
        acker.stamp("t", bytes(64))
    with pytest.raises(errors.BufferLengthsUnequal):
        acker.stamp("t", b"\1")
    assert acker.stamp("t", A).acked


def test_delete(acker, item):
    with pytest.raises(errors.TagNotFound):
        acker.delete("t")
    acker.create("t", A)
    acker.delete("t")
    assert item("t") is None
    with pytest.raises(errors.TagNotFound):
        acker.stamp("t", A)
    acker.create("t", B)
    assert acker.stamp("t", B).acked
    acker.delete("t")


def test_every_other_attribute_is_kept(aws, acker, client, item):
    acker.create("t", A)
    client.update_item(
        TableName=aws.table_name,
        Key={"tag": {"S": "t"}},
        UpdateExpression="SET mine = :m",
        ExpressionAttributeValues={":m": {"M": {"any": {"L": [{"N": "5"}]}}}},
    )
    acker.stamp("t", B)
    acker.stamp("t", xor(A, B))
    assert item("t")["mine"] == {"M": {"any": {"L": [{"N": "5"}]}}}
    assert item("t")["status"] == {"S": "acked"}


def npm_create(aws, client, tag, stamp):
    client.put_item(
        TableName=aws.table_name,
        Item={"tag": {"S": tag}, "stamp": {"B": stamp}},
        ConditionExpression="attribute_not_exists(#tag)",
        ExpressionAttributeNames={"#tag": "tag"},
    )


def npm_stamp(aws, client, tag, stamp):
    """What xor-ack-dynamodb does."""
    key = {"tag": {"S": tag}}
    found = client.get_item(TableName=aws.table_name, Key=key, ConsistentRead=True)["Item"]
    current = found["stamp"]["B"]
    updated = xor(stamp, current)
    condition = {
        "ConditionExpression": "attribute_exists(#tag) and #stamp = :stamp",
        "ExpressionAttributeNames": {"#tag": "tag", "#stamp": "stamp"},
        "ExpressionAttributeValues": {":stamp": {"B": current}},
    }
    if updated.acked:
        client.delete_item(TableName=aws.table_name, Key=key, **condition)
    else:
        client.put_item(
            TableName=aws.table_name, Item={**key, "stamp": {"B": updated}}, **condition
        )
    return updated


def test_a_chain_of_the_npm_package_is_finished_here(aws, acker, client, item):
    npm_create(aws, client, "t", A)
    with pytest.raises(errors.TagExists):
        acker.create("t", B)
    acker.stamp("t", xor(A, B))
    npm_stamp(aws, client, "t", C)
    assert not acker.stamp("t", C).acked
    assert acker.stamp("t", B).acked
    assert item("t")["status"] == {"S": "acked"}


def test_a_chain_from_here_is_finished_by_the_npm_package(aws, acker, client, item):
    acker.create("t", A)
    acker.stamp("t", xor(A, B))
    with pytest.raises(client.exceptions.ConditionalCheckFailedException):
        npm_create(aws, client, "t", C)
    assert npm_stamp(aws, client, "t", B).acked
    assert item("t") is None


def test_another_partition_key(aws, client):
    from tests.support.in_process import create_resources

    other = create_resources(aws.aws, partition_key="tagID")
    acker = DynamoDBAcker(other.table_name, "tagID", client)
    acker.create("t", A)
    assert acker.stamp("t", A).acked
    with pytest.raises(errors.InvalidRequest, match="partition_key: 'stamp'"):
        DynamoDBAcker(other.table_name, "stamp", client)
    with pytest.raises(errors.InvalidRequest, match="table_name"):
        DynamoDBAcker("", client=client)


def test_counts_where_they_are_counted(acker):
    acker.create("t", A, started=1)
    zero = acker.stamp("t", A)
    assert zero == bytes(64)
    assert not zero.acked
    acker.stamp("t", B, finished=1)
    assert acker.stamp("t", B).acked


def test_an_answer_lost_after_the_write_landed_applies_once(acker, item):
    for times in (1, 2, 3):  # three are all tries of one call: then it is read again
        tag = f"t{times}"
        with answers_lost("UpdateItem", times) as left:
            acker.create(tag, A)
            assert left == [0]
        with answers_lost("UpdateItem", times) as left:
            assert acker.stamp(tag, xor(A, B)) == B
            assert left == [0]
        with answers_lost("UpdateItem", times):
            assert acker.stamp(tag, B).acked
        assert item(tag)["status"] == {"S": "acked"}
    with answers_lost("DeleteItem", 3):
        acker.delete("t1")


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("ProvisionedThroughputExceededException", 400),
        ("ThrottlingException", 400),
        ("TransactionConflictException", 400),
        ("RequestLimitExceeded", 400),
        ("InternalServerError", 500),
        ("ServiceUnavailable", 503),
    ],
)
def test_what_passes_is_tried_again(acker, code, status):
    acker.create("t", A)
    with refused("UpdateItem", code, times=7, status=status) as left:
        assert acker.stamp("t", A).acked
        assert left == [0]


def test_what_stays_wrong_is_said_at_once(aws, acker, client):
    with (
        refused("GetItem", "AccessDeniedException", times=99) as left,
        pytest.raises(ClientError, match="AccessDenied"),
    ):
        acker.stamp("t", A)
    assert left == [98]
    with pytest.raises(ClientError, match="ResourceNotFound"):
        DynamoDBAcker("no-such-table", client=client).create("t", A)


def test_retries_are_spent(aws, client):
    acker = DynamoDBAcker(aws.table_name, client=client, policy=RetryPolicy(attempts=3, base=0.001))
    acker.create("t", A)

    def meddle(**_):
        client.update_item(
            TableName=aws.table_name,
            Key={"tag": {"S": "t"}},
            UpdateExpression="ADD version :one",
            ExpressionAttributeValues={":one": {"N": "1"}},
        )

    real = acker.store.write

    def write(before, after):
        meddle()
        real(before, after)

    acker.store.write = write
    with pytest.raises(errors.StaleLocalData) as caught:
        acker.stamp("t", B)
    assert caught.value.code == "StaleLocalData"
    acker.store.write = real
    assert acker.stamp("t", A).acked


def test_an_engine_that_does_not_send_the_item_is_read(acker, aws, client):
    other = DynamoDBAcker(aws.table_name, client=client)
    acker.create("t", A)
    other.stamp("t", B)

    def strip(parsed, **_):
        parsed.pop("Item", None)

    client.meta.events.register("after-call.dynamodb.UpdateItem", strip)
    try:
        # What it remembers is old: the write fails without an item, and a read tells.
        assert acker.stamp("t", A) == B
        with pytest.raises(errors.TagExists):
            acker.create("t", A)
    finally:
        client.meta.events.unregister("after-call.dynamodb.UpdateItem", strip)


def test_one_round_trip_a_stamp_without_contention(acker, client):
    with counted(client) as calls:
        acker.create("t", A)
        for _ in range(10):
            acker.stamp("t", B)
    assert calls == {"UpdateItem": 11}


def test_past_the_marks_in_the_item_too(acker, client):
    acker.create("t", A)
    with counted(client) as calls:
        for number in range(1, 201):
            acker.stamp("t", number.to_bytes(64, "big"))
    # Each mark that leaves the item is copied, 25 a call; none is looked up.
    assert calls == {"UpdateItem": 200, "BatchWriteItem": 9}


def test_many_threads_and_ackers_on_one_chain(aws, client, item):
    ackers = [DynamoDBAcker(aws.table_name, client=client) for _ in range(8)]
    ackers[0].create("t", A)
    last = []

    def work(number):
        for turn in range(10):
            stamp = bytes([number + 1, turn + 1]) * 32
            ackers[number].stamp("t", stamp)
            if ackers[number].stamp("t", stamp).acked:
                last.append("too early")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert last == []
    assert item("t")["stamp"]["B"] == A
    assert ackers[3].stamp("t", A).acked


def test_a_chain_of_thousands_of_stamps_stays_small_and_exact(aws, acker, client, item):
    acker.create("t", A)
    for number in range(300):
        acker.stamp("t", number.to_bytes(64, "big", signed=False) or A) if number else None
    left = item("t")
    assert len(left["marks"]["B"]) <= 64 * 16
    assert int(left["spilled"]["N"]) == 300 - len(left["marks"]["B"]) // 16
    marks = [i for i in client.scan(TableName=aws.table_name)["Items"] if "mark" in i]
    assert len(marks) == int(left["spilled"]["N"])
    assert all("expires_at" in mark and mark["tag"]["S"].startswith("t\0") for mark in marks)


def test_threads_that_share_an_acker_write_together(acker, client, item):
    acker.create("t", A)
    stamps = [bytes([n, 1]) * 32 for n in range(1, 49)]
    gate = threading.Barrier(len(stamps))
    told = []

    def work(stamp):
        gate.wait()
        told.append(acker.stamp("t", stamp).acked)

    threads = [threading.Thread(target=work, args=(stamp,)) for stamp in stamps]
    with counted(client) as calls:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert calls["UpdateItem"] <= len(stamps) // 2
    assert item("t")["stamp"]["B"] == xor(A, *stamps)
    assert not any(told)
    # Of many that come together to the end, one alone is told that it acked the chain.
    threads = [
        threading.Thread(target=work, args=(stamp,)) for stamp in (xor(A, stamps[0]), *stamps[1:])
    ]
    told.clear()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert item("t")["status"] == {"S": "acked"}
    assert told.count(True) == 1


def test_an_error_reaches_all_who_wait_together(aws, acker):
    with refused("GetItem", "AccessDeniedException", times=99):
        errors_seen = []

        def work():
            try:
                acker.stamp("nobody", A)
            except ClientError as error:
                errors_seen.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(errors_seen) == 8


def test_one_wrong_length_is_refused_among_those_who_wait_together(acker):
    acker.create("t", A)
    results = {}

    def work(stamp):
        try:
            results[stamp] = acker.stamp("t", stamp)
        except errors.BufferLengthsUnequal as error:
            results[stamp] = error

    stamps = [B, b"\1", C]
    threads = [threading.Thread(target=work, args=(stamp,)) for stamp in stamps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert isinstance(results[b"\1"], errors.BufferLengthsUnequal)
    assert not isinstance(results[B], Exception)
    assert acker.stamp("t", xor(A, B, C)).acked
