"""Events over embedded EventBridge."""

import json
from dataclasses import replace
from unittest.mock import patch

import pytest
from botocore.exceptions import ClientError

from lambda_src import environment
from tests.support.chains import changed, make_chain
from tests.support.functions import acked, message
from tests.support.subscriber import subscribe
from xorack import traced, xor
from xorack.acker.chain_writer import ChainWriter
from xorack.aws.client import CONFIG
from xorack.aws.clock import milliseconds
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.eventbridge import BusCheck, EventBus
from xorack.aws.retry import RetryPolicy
from xorack.core.event import event_detail, event_id
from xorack.core.hashing import xxh64_long_inverse
from xorack.core.request import Request

ACKED = make_chain("t", b"\0", "acked", 1, 1, first_seen_at=1000, created_at=1000, ended_at=61_500)


@pytest.fixture
def bus(aws):
    policy = RetryPolicy(attempts=4, sleep=lambda seconds: None)
    return EventBus(aws.bus_name, aws.client("events", config=CONFIG), policy=policy)


def test_an_event_id_identifies_the_chain_and_its_end():
    assert event_id(ACKED) == event_id(changed(ACKED, event_pending=True, version=9))
    changes = {"tag": "u"}, {"first_seen_at": 2000}, {"status": "failed"}
    others = {event_id(changed(ACKED, **change)) for change in changes}
    assert len({event_id(ACKED), *others}) == 4


# The stamps of three ids whose hashes share the low bits have the stamp of a fourth as their sum.
*THREE, FOURTH = (xxh64_long_inverse(n << 20 | 0xABCDE) for n in (1, 2, 4, 7))
HUNDRED = [f"{unit:016x}" for unit in range(1, 101)]


@pytest.mark.parametrize(
    ("stamp", "counts", "outstanding"),
    [
        (bytes(8), (2, 1), ([], 1, 0, False)),
        (traced(5), (826, 0), ([f"{5:016x}"], 826, 1, False)),
        (xor(*map(traced, THREE)), (4, 1), ([f"{FOURTH:016x}"], 3, 1, False)),
        (xor(*(traced(u, 256) for u in range(1, 251))), (1, 1), (HUNDRED, None, 250, True)),
    ],
)
def test_stamp_and_counts_tell_what_is_outstanding(stamp, counts, outstanding):
    """The simulation judges all events; these stamps name less, or more, than is outstanding."""
    started, finished = counts
    failed = changed(ACKED, status="failed", reason="r", stamp=stamp)
    detail = event_detail(changed(failed, started=started, finished=finished))
    names = ("outstanding", "outstanding_units", "outstanding_named", "outstanding_complete")
    assert tuple(detail[name] for name in names) == outstanding


def test_an_event_names_the_table(aws):
    asked = []
    bus = EventBus("bus", aws.client("events"), find_table=lambda: asked.append(1) or "arn")
    assert [bus.entry(ACKED)["Resources"] for _ in range(2)] == [["arn"]] * 2
    assert asked == [1]
    table = DynamoDBStore(aws.table_name, client=aws.client("dynamodb")).table
    assert table.find_arn().endswith(f":table/{aws.table_name}")


WORST_TEXT = {"control characters": "\1", "2 bytes": "\u00e9", "4 bytes": "\U0001f600"}


@pytest.mark.parametrize("character", WORST_TEXT.values(), ids=WORST_TEXT)
def test_the_largest_event_is_below_28_kib(aws, bus, character):
    text = character * (1024 // len(character.encode()))
    fill = {"x": character * (4000 // len(json.dumps(character, ensure_ascii=False).encode()))}
    create = Request.create(text, "c", traced(1), detail=fill)
    chain = changed(
        ACKED,
        tag=create.tag,
        status="failed",
        reason=Request.fail(text, "f", text).reason,
        detail=json.dumps(create.detail),
        note=Request("note", "t", "n", text=text, missing=range(1, 101)).note,
        stamp=xor(*(traced(unit, 1024) for unit in range(1, 1001))),
        started=2**63 - 1,
        finished=2**63 - 1,
    )
    assert len(bus.entry(chain)["Detail"].encode()) < 28 * 1024
    assert bus.publish([chain]) == {}
    (event,) = aws.events()
    assert (event["source"], event["detail-type"]) == ("xorack", "failed")
    assert (event["detail"]["tag"], event["detail"]["detail"]) == (text, fill)


class Described:
    """A client that counts its looks at the bus, and denies them or not."""

    def __init__(self, code=None):
        self.looks, self.code = 0, code

    def describe_event_bus(self, Name):
        self.looks += 1
        if self.code:
            raise ClientError({"Error": {"Code": self.code}}, "DescribeEventBus")

    def put_events(self, Entries):
        return {}


def test_an_end_stays_pending_while_the_bus_does_not_exist(functions, aws, monkeypatch):
    """AWS answers success for such a bus, and drops the event."""
    client = aws.client("events")
    arn = client.describe_event_bus(Name=aws.bus_name)["Arn"]
    (rule,) = client.list_rules(EventBusName=aws.bus_name)["Rules"]
    targets = client.list_targets_by_rule(Rule=rule["Name"], EventBusName=aws.bus_name)["Targets"]
    client.remove_targets(
        Rule=rule["Name"], EventBusName=aws.bus_name, Ids=[one["Id"] for one in targets]
    )
    client.delete_rule(Name=rule["Name"], EventBusName=aws.bus_name)
    client.delete_event_bus(Name=aws.bus_name)
    entry = {"EventBusName": aws.bus_name, "Source": "s", "DetailType": "d", "Detail": "{}"}
    assert client.put_events(Entries=[entry])["FailedEntryCount"] == 0
    assert functions.consume(message(*acked("t"))) == []
    assert functions.item("t")["event_pending"] == {"N": "1"}
    clock = ChainWriter.__init__.__kwdefaults__
    at = milliseconds() + 100_000
    with patch.dict(clock, {"clock": lambda: at}):
        assert functions.sweep()["EventsPending"] == 1
    client.create_event_bus(Name=aws.bus_name)
    subscribed = replace(aws, events_queue_url=subscribe(aws))
    assert client.describe_event_bus(Name=aws.bus_name)["Arn"] == arn
    monkeypatch.setattr(environment, "_process", None)  # its circuit is open for 30 s
    later = at + 100_000
    with patch.dict(clock, {"clock": lambda: later}):
        assert functions.sweep()["EventsPublished"] == 1
    assert [event["detail"]["tag"] for event in subscribed.events()] == ["t"]
    assert "event_pending" not in functions.item("t")


def test_a_bus_that_exists_is_asked_for_once_a_minute():
    now, client = [0.0], Described()
    check = BusCheck(clock=lambda: now[0])
    for now[0] in (0.0, 59.9, 60.0, 61.0):
        assert EventBus("bus", client, check=check).publish([ACKED]) == {}
    assert client.looks == 2


@pytest.mark.parametrize(
    ("code", "name", "is_delivered"),
    [
        ("ResourceNotFoundException", "bus", False),
        ("AccessDeniedException", "bus", False),
        # A bus of another account: it answers PutEvents by its policy.
        ("AccessDeniedException", "arn:aws:events:eu-west-1:222222222222:event-bus/all", True),
        ("ResourceNotFoundException", "arn:aws:events:eu-west-1:1:event-bus/all", False),
    ],
)
def test_without_an_answer_about_the_bus_nothing_is_delivered(code, name, is_delivered):
    client = Described(code)
    failures = EventBus(name, client, policy=RetryPolicy(attempts=1)).publish([ACKED])
    assert (failures == {}) is is_delivered
    assert all(code in failure.reason for failure in failures.values())
    assert [failure.kind for failure in failures.values()] == ["outage"] * (not is_delivered)
