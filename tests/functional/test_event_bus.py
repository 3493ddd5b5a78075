"""Events over embedded EventBridge."""

import json

import pytest

from tests.support.chains import changed, make_chain
from xorack import traced, xor
from xorack.aws.client import CONFIG
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.eventbridge import EventBus
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
