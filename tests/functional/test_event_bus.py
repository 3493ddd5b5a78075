"""Publishing over embedded EventBridge."""

from dataclasses import replace

import pytest

from tests.support.faults import answers_lost, refused
from xorack.aws.client import CONFIG
from xorack.aws.eventbridge import EventBus
from xorack.core.chain import Chain
from xorack.core.event import event_id
from xorack.core.retry import RetryPolicy

DONE = Chain(
    "t",
    b"\0",
    "acked",
    1,
    1,
    first_seen_at=1000,
    created_at=1000,
    ended_at=61_500,
    event_pending=True,
)
FAST = RetryPolicy(attempts=4, base=0.001)


@pytest.fixture
def bus(aws):
    return EventBus(aws.bus_name, aws.client("events", config=CONFIG), policy=FAST)


def test_events_arrive(aws, bus):
    chains = [replace(DONE, tag=f"t{n}", detail=f'{{"n":{n}}}') for n in range(23)]
    assert bus.publish(chains) == {}
    events = aws.events()
    assert {e["detail"]["tag"]: e["detail"]["detail"] for e in events} == {
        f"t{n}": {"n": n} for n in range(23)
    }
    (first,) = (e for e in events if e["detail"]["tag"] == "t0")
    assert first["detail-type"] == "acked"
    assert first["source"] == "xorack"
    assert first["detail"]["duration_ms"] == 60_500
    assert first["detail"]["created_at"] == "1970-01-01T00:00:01.000Z"


def test_copies_have_one_id_and_other_chains_another():
    assert event_id(DONE) == event_id(replace(DONE, event_pending=False, version=9))
    others = [
        replace(DONE, tag="u"),
        replace(DONE, first_seen_at=2000),
        replace(DONE, status="failed"),
    ]
    assert len({event_id(chain) for chain in (DONE, *others)}) == 4


def test_failed_entries_of_an_answer_of_200_are_sent_again(aws, bus):
    real = bus.client.put_events
    asked = []

    def some_fail(Entries):
        asked.append(len(Entries))
        if len(asked) == 1:
            answer = real(Entries=Entries[:1])
            return {
                "FailedEntryCount": 2,
                "Entries": [*answer["Entries"], *[{"ErrorCode": "ThrottlingException"}] * 2],
            }
        return real(Entries=Entries)

    bus.client.put_events = some_fail
    assert bus.publish([replace(DONE, tag=f"t{n}") for n in range(3)]) == {}
    assert asked == [3, 2]
    assert len(aws.events()) == 3


def test_entries_that_are_never_taken_are_told(bus):
    def all_fail(Entries):
        entries = [{"ErrorCode": "InternalFailure", "ErrorMessage": "m"} for _ in Entries]
        return {"FailedEntryCount": len(entries), "Entries": entries}

    bus.client.put_events = all_fail
    assert bus.publish([DONE]) == {"t": "InternalFailure: m"}


def test_a_bus_that_refuses_or_is_away_is_told(aws, bus):
    with refused("PutEvents", "AccessDeniedException", times=99):
        assert "AccessDenied" in bus.publish([DONE])["t"]
    with refused("PutEvents", "InternalFailure", times=99, status=500) as left:
        assert "InternalFailure" in bus.publish([DONE])["t"]
        assert left[0] <= 99 - 4
    with answers_lost("PutEvents", 1):
        assert bus.publish([DONE]) == {}
    first, second = aws.events()
    assert first["detail"] == second["detail"]
