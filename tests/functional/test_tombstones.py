"""Retentions that change, and deletions; the simulation tests the other laws of ended chains."""

import time

import pytest
from botocore.exceptions import ClientError

from lambda_src import environment
from tests.support.faults import failing
from tests.support.functions import Context, acked, chain, message
from xorack.acker.chain_writer import ChainWriter
from xorack.aws import dynamodb_store
from xorack.core.errors import UnavailableError

DAY = 86_400_000
NOW = int(time.time()) * 1000


@pytest.fixture
def clock(monkeypatch):
    """The time of the functions, in days from now."""

    class Clock:
        days = 0.0

        def now(self):
            return NOW + int(self.days * DAY)

    clock = Clock()
    monkeypatch.setitem(ChainWriter.__init__.__kwdefaults__, "clock", clock.now)
    monkeypatch.setattr(dynamodb_store, "milliseconds", clock.now)
    return clock


@pytest.fixture
def consumer(functions, clock, aws):
    """Hand a message, sent some days from now, to the consumer, after TTL did its work."""
    from lambda_src.consumer import handler

    def consume(body, sent):
        client = aws.client("dynamodb")
        for item in client.scan(TableName=aws.table_name)["Items"]:
            if int(item.get("expires_at", {}).get("N", clock.now())) * 1000 < clock.now():
                client.delete_item(TableName=aws.table_name, Key={"tag": item["tag"]})
        attributes = {"SentTimestamp": str(NOW + int(sent * DAY))}
        record = {"messageId": "m", "body": body, "attributes": attributes}
        return handler({"Records": [record]}, Context())

    return consume


BODY = message(*chain("t", 2))


def test_a_raised_retention_does_not_admit_what_the_older_one_forgot(
    functions, consumer, clock, monkeypatch
):
    monkeypatch.setenv("RETENTION_SECONDS", str(2 * 86_400))
    consumer(BODY, sent=0)
    functions.events()
    clock.days = 5  # the tombstone is gone
    monkeypatch.setenv("RETENTION_SECONDS", str(30 * 86_400))
    for sent in (0, 1, 2.9):
        consumer(BODY, sent)
        assert functions.item("t") is None
    assert functions.aws.dead_letters()
    # A repeat that is sent until the older retention has passed since the change.
    clock.days = 9.1
    consumer(BODY, sent=6.9)
    assert functions.item("t") is None
    consumer(BODY, sent=7.2)
    assert functions.events().keys() == {"t"}
    clock.days = 30
    consumer(message(*acked("u")), sent=7.1)
    assert functions.events().keys() == {"u"}


def test_retentions_that_change_often_count_each_for_what_ended_under_it(clock, aws):
    def earlier(days):
        client = aws.client("dynamodb")
        store = dynamodb_store.DynamoDBStore(aws.table_name, client=client, retention_ms=days * DAY)
        found, known = store.earlier_retentions()
        recorded = store.earlier_retentions(record=True)
        assert store.earlier_retentions() == recorded == (found, True)
        seen.append(known)
        return [((until - NOW) / DAY, ms / DAY) for until, ms in found]

    seen = []

    assert earlier(10) == earlier(10) == []
    clock.days = 1
    assert earlier(3) == [(11, 10)]
    clock.days = 2
    assert earlier(40) == earlier(40) == [(11, 10), (5, 3)]
    assert seen == [False, True, False, False, True]


@pytest.mark.parametrize("code", ["ThrottlingException", "AccessDeniedException"])
def test_an_unreadable_retention_fails_the_invocation(functions, monkeypatch, code):
    """With a guess, an old message would start an ended chain again."""
    monkeypatch.setattr(environment, "_process", None)
    with failing("GetItem", code), pytest.raises((ClientError, UnavailableError)):
        functions.consume(BODY)
    assert functions.item("t") is None
    assert functions.consume(BODY) == []
