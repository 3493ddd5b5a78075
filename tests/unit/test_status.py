"""The status of a chain."""

import pytest

from tests.support.chains import make_chain
from xorack.cli import screen
from xorack.ops.status import ChainStatus

NOW = 1_000_000


def status(**fields):
    defaults = {"status": "open", "first_seen_at": 1000, "created_at": 2000}
    return ChainStatus(make_chain("t", **defaults | fields), NOW)


@pytest.mark.parametrize(
    ("started", "finished", "percent"),
    [
        (0, 0, None),
        (3, 0, 0.0),
        (3, 1, 33.3),
        (3, 2, 66.6),
        (10_000, 9_999, 99.9),
        (3, 3, 99.9),
        (1, 5, None),
    ],
)
def test_progress_is_rounded_down_and_below_100(started, finished, percent):
    assert status(started=started, finished=finished).percent == percent
    assert status(status="acked", started=started, ended_at=5000).percent == 100.0


def test_the_deadline_is_the_nearer_of_the_two():
    assert status().deadline is None
    assert status(deadline=9000).deadline == 9000
    assert status(deadline=9000, idle_timeout=500, last_stamp_at=3000).deadline == 3500
    assert status(status="failed", ended_at=4000, deadline=9000).deadline is None


def test_what_came_after_the_end_is_shown():
    chain = status(status="acked", ended_at=5000, repeated=1, late=3, last_late_at=6000)
    assert chain.after_end == "1 repeated create, 3 late requests"
    counts = {"repeated": 1, "late": 3, "last_late_at": "1970-01-01T00:00:06.000Z"}
    assert counts.items() <= chain.to_dict().items()
    assert "3 late requests" in screen.cells(chain)["REASON"]
    assert status().after_end == ""


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ({"resume": '{"lambda":"i"}'}, None),
        ({"resume": '{"lambda":"i"}', "resume_pending": True}, "pending"),
        (
            {"resume": '{"lambda":"i"}', "resume_pending": True, "refused_at": 0},
            "pending, refused since 1970-01-01T00:00:00.000Z",
        ),
        (
            {"resume": '{"lambda":"i"}', "resume_sent_at": 5, "status": "open", "ended_at": None},
            "waits, by the create sent 1970-01-01T00:00:00.005Z",
        ),
        ({"resumed_at": 5, "refused_at": 0}, "done, 1970-01-01T00:00:00.005Z"),
        ({"resume_failed": "AccessDenied\x1b", "refused_at": 0}, "failed: AccessDenied\\x1b"),
    ],
)
def test_the_state_of_a_callback_is_shown(capsys, state, shown):
    ended = ChainStatus(make_chain("t", b"\0", **{"status": "acked", "ended_at": 1, **state}), 2)
    screen.print_properties(screen.properties_of(ended, {}))
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert dict(line for line in lines if len(line) == 2).get("resume") == shown
