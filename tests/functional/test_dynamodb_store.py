"""The DynamoDB store over embedded DynamoDB: pages, batches and unprocessed entries."""

from dataclasses import replace

import pytest

from tests.support.chains import make_chain
from tests.support.fakes import NO_WAIT
from tests.support.faults import counted_calls, error_response, on_the_wire
from xorack.aws import mark_buckets
from xorack.aws.client import CONFIG, config_of
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.item import due_shard
from xorack.aws.retry import RetryPolicy
from xorack.core.budget import TimeOuts
from xorack.core.errors import NotAChainError
from xorack.core.marks import END_CONTENT, all_buckets, end_marks_of, mark_key
from xorack.core.transitions import mark_reported
from xorack.errors import UnavailableError

DAY = 86_400_000


def _store(aws, **options):
    store = DynamoDBStore(aws.table_name, client=aws.client("dynamodb", config=CONFIG), **options)
    for number in range(3):
        store.write(None, make_chain(f"t{number}", b"\1", "open", version=1, due_at=1000 - number))
    return store


@pytest.fixture
def store(aws):
    return _store(aws)


def test_the_last_writer_decides_how_long_a_finished_chain_is_kept(aws, store):
    """The stack's sweeper, if a client with another retention ended the chain."""
    ended = make_chain("t", b"\0", "acked", version=1, ended_at=DAY, event_pending=True)
    DynamoDBStore(aws.table_name, client=store.table.client, retention_ms=DAY).write(None, ended)
    store.write(ended, mark_reported(ended, ["event"], now=1))
    assert aws.item("t")["expires_at"] == {"N": str(61 * DAY // 1000 + 1)}


def test_chains_are_read_in_batches(store):
    with counted_calls(store.table.client) as calls:
        chains = store.read([f"t{n}" for n in range(201)])
    assert calls == {"BatchGetItem": 3}
    assert sorted(chains) == ["t0", "t1", "t2"]


def test_unprocessed_keys_are_retried_some_times_with_back_off(aws, monkeypatch):
    waits = []
    policy = RetryPolicy(attempts=4, sleep=waits.append, draw=lambda: 1.0)
    store = _store(aws, policy=policy)
    batch_get = store.table.client.batch_get_item
    calls = []

    def one_at_a_time(RequestItems):
        ((table, request),) = RequestItems.items()
        first, *rest = request["Keys"]
        calls.append(len(rest))
        response = batch_get(RequestItems={table: {**request, "Keys": [first]}})
        return response | {"UnprocessedKeys": {table: {"Keys": rest}} if rest else {}}

    def none(RequestItems):
        calls.append(1)
        return {"Responses": {}, "UnprocessedKeys": RequestItems}

    monkeypatch.setattr(store.table.client, "batch_get_item", one_at_a_time)
    assert sorted(store.read([f"t{n}" for n in range(8)])) == ["t0", "t1", "t2"]
    assert (calls, waits) == (list(range(7, -1, -1)), [])
    monkeypatch.setattr(store.table.client, "batch_get_item", none)
    calls.clear()
    with pytest.raises(UnavailableError, match="2 keys"):
        store.read(["t0", "t1"])
    assert (len(calls), waits) == (4, [0.01, 0.02, 0.04])


def marks(first, count):
    return b"".join(mark_key(f"{n}") + b"%04d" % n for n in range(first, first + count))


def test_the_life_of_spilled_marks_is_only_prolonged(store, aws):
    def ends():
        items = store.table.client.scan(TableName=aws.table_name)["Items"]
        return {int(i["expires_at"]["N"]) for i in items if "spilled_marks" in i}

    chain = make_chain("t", first_seen_at=1, spilled=600)
    store.put_spilled_marks(chain, marks(0, 104), 10_000)
    assert ends() == {11}
    store.put_spilled_marks(chain, marks(100, 104), 5_000)
    assert ends() == {11}
    chain = replace(chain, spilled=704)
    assert len(store.get_spilled_marks(chain, [mark_key(f"{n}") for n in range(204)])) == 204
    store.keep_spilled_marks(chain, 90_000)
    assert ends() == {91}
    store.keep_spilled_marks(chain, 20_000)
    assert ends() == {91}
    assert len(all_buckets(10**9 * 8)) <= 9_363
    # A bucket that does not exist is not created.
    store.keep_spilled_marks(make_chain("u", first_seen_at=1, spilled=600), 90_000)
    items = store.table.client.scan(TableName=aws.table_name)["Items"]
    assert not [i for i in items if i["tag"]["S"].startswith("u")]


def test_a_page_that_fails_is_read_again_and_not_those_before_it(aws):
    """Of 40 queries one fails nearly always while the table is under stress."""
    client = aws.client("dynamodb", config=config_of(TimeOuts(1, 1)))
    store = DynamoDBStore(aws.table_name, client=client, policy=NO_WAIT)
    calls = []

    def throttle_every_second(operation, deliver, request):
        calls.append(operation)
        return error_response(request, "ThrottlingException") if len(calls) % 2 else deliver()

    with on_the_wire(throttle_every_second):
        assert [store.due_page(999, shard).tags for shard in (0, 1)] == [[], []]
    assert calls == ["Query"] * 4
    with (
        on_the_wire(lambda operation, deliver, request: error_response(request, "SlowDown")),
        pytest.raises(UnavailableError),
    ):
        store.due_page(999, 0)


def test_due_chains_are_read_and_counted_page_by_page(store, monkeypatch):
    tags = [f"due/{number}" for number in range(300)]
    shard = due_shard(make_chain(tags[0]))
    mine = [tag for tag in tags if due_shard(make_chain(tag)) == shard]
    for number, tag in enumerate(mine):
        store.write(None, make_chain(tag, b"\1", "open", version=1, due_at=10 + number))
    first = store.due_page(500, shard)
    assert (first.tags, store.due_page(9, shard).tags) == (mine[:20], [])
    assert store.count_due(500, shard) == (len(mine), 10)
    assert store.count_due(500, shard, first.after) == (len(mine) - 20, 30)
    assert store.due_page(500, shard, first.after).tags == mine[20:40]


def test_a_read_without_marks_writes_the_chain_with_them(aws, store):
    before = make_chain("m", b"\1", "acked", version=1, marks=bytes(16), event_pending=True)
    store.write(None, before)
    read = store.read(["m"], marks=False)["m"]
    assert read == replace(before, marks=b"")
    store.write(read, mark_reported(read, ["event"], now=1))
    assert aws.item("m")["marks"] == {"B": bytes(16)}


def test_marks_of_ends_go_to_the_bucket_of_their_time_while_it_has_room(store, monkeypatch):
    monkeypatch.setattr(mark_buckets, "_MOST_END_MARKS", 100)
    chain = make_chain("p", first_seen_at=1, end_levels=1)

    def put(first):
        marks = [n.to_bytes(12, "big") + END_CONTENT for n in range(first, first + 60)]
        return store.put_end_marks(chain, end_marks_of(marks).by_bucket, 10_000)

    assert put(0) == put(0) == []  # safe to repeat
    assert put(60) == []
    assert len(put(120)) == 60  # the bucket has 120 marks
    keys = [n.to_bytes(12, "big") for n in range(180)]
    assert sorted(store.get_spilled_marks(chain, keys)) == keys[:120]


def test_a_scan_and_a_read_report_items_that_are_not_chains(store, aws):
    store.put_spilled_marks(make_chain("t0"), bytes(128), 0)
    store.delete("t1")
    evil = {"tag": {"S": "evil"}, "stamp": {"S": "text"}}
    store.table.client.put_item(TableName=aws.table_name, Item=evil)
    invalid = []
    assert sorted(chain.tag for chain in store.scan(invalid.append)) == ["t0", "t2"]
    assert [error.tag for error in invalid] == ["evil"]
    assert [*store.read(["t2", "evil", "t0"], invalid.append)] == ["t2", "t0"]
    assert [error.tag for error in invalid] == ["evil"] * 2
    with pytest.raises(NotAChainError):
        store.read(["t0", "evil"])
    with pytest.raises(NotAChainError):
        list(store.scan())
