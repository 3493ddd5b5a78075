"""Old and new code side by side on one table and one queue.

tests/data/format-N.json holds items as the code of format N wrote them, and messages of that time.
Never write such a file again once it is released: production cannot either.
docs/operations.md has the rule for a change of the format.
"""

import base64
import json
from pathlib import Path

import pytest

from tests.support.fakes import FakeBus
from tests.support.functions import chain
from tests.support.services import World
from xorack.aws import schema
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.chain import EVENT
from xorack.core.message import pack

FORMATS = sorted((Path(__file__).parents[1] / "data").glob("format-*.json"))
HOUR = 3_600_000


@pytest.fixture(autouse=True)
def _all_shards(monkeypatch):
    """Stored items lie in all partitions of the index; the other tests over moto have three."""
    monkeypatch.setattr(schema, "DUE_SHARDS", 40)


def value_of(kind, stored):
    """A value of a file as boto3 takes it."""
    if kind == "BS":
        return [base64.b64decode(one) for one in stored]
    return base64.b64decode(stored) if kind == "B" else stored


def put(aws, stored):
    typed = {
        name: {kind: value_of(kind, value)}
        for name, attribute in stored.items()
        for kind, value in attribute.items()
    }
    aws.client("dynamodb").put_item(TableName=aws.table_name, Item=typed)


def test_there_is_a_file_for_today():
    assert f"format-{schema.FORMAT}.json" in [path.name for path in FORMATS]


@pytest.mark.parametrize("path", FORMATS, ids=lambda path: path.stem)
def test_chains_of_every_format_are_finished(aws, path):
    data = json.loads(path.read_text(encoding="utf-8"))
    for stored in data["items"]:
        put(aws, stored)
    bus = FakeBus()
    store = DynamoDBStore(aws.table_name, client=aws.client("dynamodb"))
    code = World(store, bus, data["now"] + HOUR)
    # Twice: the marks of that time tell what was applied.
    for body in data["messages"] * 2:
        assert code.consume(body).failed == {}
    assert code.sweep().problems == 0
    assert code.dead_letters.letters == []
    shown = ("id", "status", "reason", "started", "finished", "detail", "outstanding")
    events = {
        event["tag"]: {name: event[name] for name in shown if event.get(name)}
        for event in bus.events
    }
    generations = {stored["tag"]["S"] for stored in data["items"] if "first_seen_at" in stored}
    for new in data["ends"].keys() - generations:  # today's code gave it a random half
        assert events[new].pop("id") != data["ends"][new].pop("id")
    assert events == data["ends"]
    assert len(bus.events) == len(events)


class NewerStore(DynamoDBStore):
    """The store of a later version: it writes an attribute that today's code does not know."""

    def __init__(self, *args, format, **options):
        super().__init__(*args, **options)
        self.format = format

    def _encode(self, chain):
        more = {"format": {"N": str(self.format)}, "flavour": {"S": f"of {chain.version}"}}
        return {**super()._encode(chain), **more}

    def _decode(self, stored):
        assert int(stored.get("format", {"N": "0"})["N"]) <= self.format
        return super()._decode({**stored, "format": {"N": "1"}})


def versions(aws, format):
    """Today's code and later code over one table and one bus."""
    bus, client = FakeBus(), aws.client("dynamodb")
    stores = (
        DynamoDBStore(aws.table_name, client=client),
        NewerStore(aws.table_name, client=client, format=format),
    )
    return (*(World(store, bus, 1_800_000_000_000) for store in stores), bus)


def test_attributes_of_later_code_survive_todays_writes(aws):
    old, new, bus = versions(aws, schema.FORMAT)
    create, split, done = chain("t", 1)
    assert new.consume(*pack([create])).failed == {}
    flavour = aws.item("t")["flavour"]
    for request in (split, done):
        assert old.consume(*pack([request])).failed == {}
        assert aws.item("t")["flavour"] == flavour
    assert [event["status"] for event in bus.events] == ["acked"]


def test_a_chain_of_a_newer_format_holds_up_no_other(aws):
    old, new, bus = versions(aws, schema.FORMAT + 1)
    create, *rest = chain("new", 1)
    assert new.consume(*pack([create])).failed == {}
    stored = aws.item("new")
    shared, own = next(pack([*rest, *chain("old", 2)])), next(pack(chain("own", 1)))
    for _ in range(2):
        assert list(old.consume(shared, own).failed) == ["m0"]
        assert old.sweep().ended == {}
        assert aws.item("new") == stored
    assert {event["tag"]: event["status"] for event in bus.events} == {
        "old": "acked",
        "own": "acked",
    }
    assert new.consume(shared).failed == {}
    assert [event["tag"] for event in bus.events][2:] == ["new"]
    assert old.dead_letters.letters == []


def test_more_partitions_of_the_index_hide_no_chain(aws, monkeypatch):
    """Chains of before are open, pending, or ended with reports that nobody has taken yet."""
    monkeypatch.setattr(schema, "DUE_SHARDS", 3)
    bus, callbacks = FakeBus(), FakeBus()
    store = DynamoDBStore(aws.table_name, client=aws.client("dynamodb"))
    code = World(store, {EVENT: bus, "lambda": callbacks}, 1_800_000_000_000)
    tags = [
        f"{state}/{number}"
        for state in ("open", "pending", "ended", "called back")
        for number in range(6)
    ]
    bus.rejects, callbacks.rejects = {*tags}, {*tags}
    for tag in tags:
        callback = {"resume": {"lambda": "id"}} if tag.startswith("called") else {}
        create, split, done = chain(tag, 1, timeout=60, **callback)
        requests = {"open": [create, split], "pending": [split]}
        body = next(pack(requests.get(tag.partition("/")[0], [create, split, done])))
        assert code.consume(body).failed == {}
    monkeypatch.setattr(schema, "DUE_SHARDS", 7)
    bus.rejects, callbacks.rejects = set(), set()
    code.now += 60 * 24 * HOUR
    for _ in range(3):
        assert code.sweep().problems == 0
    ends = {event["tag"]: event["status"] for event in bus.events}
    early = ("open", "pending")
    assert ends == {tag: "failed" if tag.startswith(early) else "acked" for tag in tags}
    assert len(bus.events) == len(tags)
    assert {event["tag"] for event in callbacks.events} == {*tags[-6:]}
    assert all("due_at" not in aws.item(tag) for tag in tags)
