"""Events over embedded EventBridge."""

from dataclasses import replace

import pytest

from tests.support.faults import failing, lost_responses
from xorack.aws.client import CONFIG
from xorack.aws.eventbridge import EventBus
from xorack.core.chain import Chain
from xorack.core.event import event_detail, event_id
from xorack.core.retry import RetryPolicy

ACKED = Chain("t", b"\0", "acked", 1, 1, first_seen_at=1000, created_at=1000, ended_at=61_500)


@pytest.fixture
def bus(aws):
    policy = RetryPolicy(attempts=4, sleep=lambda seconds: None)
    return EventBus(aws.bus_name, aws.client("events", config=CONFIG), policy=policy)


def test_events_arrive(aws, bus):
    chains = [replace(ACKED, tag=f"t{n}", detail=f'{{"n":{n}}}') for n in range(23)]
    assert [bus.publish(chains[at : at + 10]) for at in (0, 10, 20)] == [{}] * 3
    events = {event["detail"]["tag"]: event for event in aws.events()}
    assert len(events) == 23
    assert all(events[f"t{n}"]["detail"]["detail"] == {"n": n} for n in range(23))
    first = events["t0"]
    assert (first["source"], first["detail-type"]) == ("xorack", "acked")
    assert first["detail"]["duration_ms"] == 60_500
    assert first["detail"]["created_at"] == "1970-01-01T00:00:01.000Z"


def test_an_event_id_identifies_the_chain_and_its_end():
    assert event_id(ACKED) == event_id(replace(ACKED, event_pending=True, version=9))
    changes = {"tag": "u"}, {"first_seen_at": 2000}, {"status": "failed"}
    others = {event_id(replace(ACKED, **change)) for change in changes}
    assert len({event_id(ACKED), *others}) == 4


@pytest.mark.parametrize(
    ("started", "stamp", "outstanding"),
    [
        (2, b"\5" + bytes(7), (["0000000000000005"], True)),
        (3, b"\5" + bytes(7), ([], False)),
        (2, bytes(8), ([], True)),
        (2, b"\5", ("absent", "absent")),
    ],
)
def test_a_plain_stamp_names_its_unit_if_the_counts_leave_one(started, stamp, outstanding):
    chain = replace(ACKED, status="failed", reason="r", stamp=stamp, started=started, finished=1)
    detail = event_detail(chain)
    names = ("outstanding", "outstanding_complete")
    assert tuple(detail.get(name, "absent") for name in names) == outstanding


@pytest.mark.parametrize(
    ("status", "reason", "created_at", "duration"),
    [
        ("acked", None, None, None),
        ("failed", "never created", "1970-01-01T00:00:01.000Z", 60_500),
    ],
)
def test_the_creation_time_of_a_chain_without_a_create(status, reason, created_at, duration):
    detail = event_detail(replace(ACKED, created_at=None, status=status, reason=reason))
    assert (detail["created_at"], detail["duration_ms"]) == (created_at, duration)


@pytest.mark.parametrize(("failures", "calls"), [(1, [3, 2]), (9, [3, 3, 3, 3])])
def test_failed_entries_of_a_response_are_sent_again(aws, bus, failures, calls):
    real = bus.client.put_events
    sizes = []

    def some_fail(Entries):
        sizes.append(len(Entries))
        if len(sizes) > failures:
            return real(Entries=Entries)
        accepted = real(Entries=Entries[:1])["Entries"] if failures == 1 else []
        failed = [{"ErrorCode": "Busy", "ErrorMessage": "m"}] * (len(Entries) - len(accepted))
        return {"FailedEntryCount": len(failed), "Entries": [*accepted, *failed]}

    bus.client.put_events = some_fail
    left = bus.publish([replace(ACKED, tag=f"t{n}") for n in range(3)])
    assert left == ({} if failures == 1 else dict.fromkeys(("t0", "t1", "t2"), "Busy: m"))
    assert sizes == calls
    assert len(aws.events()) == (3 if failures == 1 else 0)


def test_a_failed_call_is_returned_and_a_lost_response_repeats_the_event(aws, bus):
    with failing("PutEvents", "AccessDeniedException") as left:
        assert "AccessDenied" in bus.publish([ACKED])["t"]
        assert left == [98]
    with failing("PutEvents", "InternalFailure", status=500) as left:
        assert "InternalFailure" in bus.publish([ACKED])["t"]
        assert left[0] <= 99 - 4
    with lost_responses("PutEvents"):
        assert bus.publish([ACKED]) == {}
    first, second = aws.events()
    assert first["detail"] == second["detail"]
