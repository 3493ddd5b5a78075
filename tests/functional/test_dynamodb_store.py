"""The DynamoDB store over embedded DynamoDB: pages, batches and unprocessed entries."""

import pytest

from tests.support.faults import counted_calls
from xorack.aws.client import CONFIG
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.chain import Chain
from xorack.core.errors import NotAChain
from xorack.core.ports import Unavailable


@pytest.fixture
def store(aws):
    store = DynamoDBStore(aws.table_name, client=aws.client("dynamodb", config=CONFIG))
    for number in range(3):
        store.write(None, Chain(f"t{number}", b"\1", "open", version=1, due_at=1000 - number))
    return store


def test_chains_are_read_in_batches(store):
    with counted_calls(store.client) as calls:
        chains = store.read([f"t{n}" for n in range(201)])
    assert calls == {"BatchGetItem": 3}
    assert sorted(chains) == ["t0", "t1", "t2"]


def test_unprocessed_keys_and_items_are_retried_some_times(store, monkeypatch):
    batch_get = store.client.batch_get_item
    calls = []

    def one_at_a_time(RequestItems):
        ((table, request),) = RequestItems.items()
        first, *rest = request["Keys"]
        calls.append(len(rest))
        response = batch_get(RequestItems={table: {**request, "Keys": [first]}})
        return response | {"UnprocessedKeys": {table: {"Keys": rest}} if rest else {}}

    def none(RequestItems):
        calls.append(1)
        left = {"UnprocessedKeys": RequestItems, "UnprocessedItems": RequestItems}
        return {"Responses": {}, **left}

    monkeypatch.setattr(store.client, "batch_get_item", one_at_a_time)
    assert sorted(store.read([f"t{n}" for n in range(8)])) == ["t0", "t1", "t2"]
    assert calls == list(range(7, -1, -1))
    for name in ("batch_get_item", "batch_write_item"):
        monkeypatch.setattr(store.client, name, none)
    calls.clear()
    with pytest.raises(Unavailable, match="2 keys"):
        store.read(["t0", "t1"])
    with pytest.raises(Unavailable, match="3 keys"):
        store.put_spilled_marks(Chain("t0"), bytes(48), 0)
    assert len(calls) == 8


def test_due_chains_are_read_from_the_index(store):
    assert sorted(tag for page in store.due_pages(999) for tag in page) == ["t1", "t2"]
    assert store.first_due(2) == (["t2", "t1"], True)
    assert store.first_due(3) == (["t2", "t1", "t0"], False)


def test_a_scan_reports_items_that_are_not_chains(store, aws):
    store.put_spilled_marks(Chain("t0"), bytes(16), 0)
    evil = {"tag": {"S": "evil"}, "stamp": {"S": "text"}}
    store.client.put_item(TableName=aws.table_name, Item=evil)
    invalid = []
    assert sorted(chain.tag for chain in store.scan(invalid.append)) == ["t0", "t1", "t2"]
    assert [error.tag for error in invalid] == ["evil"]
    with pytest.raises(NotAChain):
        list(store.scan())
