"""`xorack status`, over moto in process."""

import json

import pytest

from tests.support.cli import TAG, apply, deliver, finish, named_lines, start
from tests.support.dead_letters import put_messages
from tests.support.functions import chain
from tests.support.services import Message
from xorack.aws.clock import milliseconds
from xorack.core.event import milliseconds_of, rfc3339
from xorack.core.message import pack
from xorack.core.request import Request
from xorack.ops import backlog


def test_the_first_screen_in_a_terminal(stack, xorack, monkeypatch):
    assert named_lines(xorack("status")[1])["chains"] == [
        "none yet: each is counted as soon as its create is applied"
    ]
    start(stack, timeout=3600)
    start(stack, "done")
    finish(stack, "done")
    for number in range(6):
        start(stack, f"run/{number}")
        apply(stack, Request("fail", f"run/{number}", "f", reason=f"row {number} is bad"))
    put_messages(stack, failed=(1, 2))
    stack.client("sqs").send_message(QueueUrl=stack.queue_url, MessageBody="{}")
    status, out, err = xorack("status")
    assert (status, err) == (0, [])
    shown = named_lines(out[: out.index("")])
    assert shown["as of"][0].endswith("Z, stack xorack")
    assert shown["failed"] == ["6  xorack list --status failed"]
    assert shown["overdue"] == ["0"]
    advice = "if it stays, the consumer does not run"
    assert shown["queue"] == [f"1 message not applied yet: {advice}"]
    assert shown["dead letters"] == ["2  xorack dead-letters list"]
    assert shown["cause"][0] == "6 failed of run run: row … is bad"
    assert shown["last hour"][0] == "8 created, 1 acked, 6 failed"
    assert shown["last hour"][1].endswith("█| at most 1 a minute")
    assert (
        TAG in out[-1]
    )  # the nearest deadline A consumer that takes no messages, and a chain past its deadline.
    start(stack, "late", timeout=0.001)
    monkeypatch.setattr(backlog.QueueAge, "_read", lambda *_: 840_000)
    status, out, _ = xorack("status")
    shown = named_lines(out)
    assert status == 1
    assert shown["overdue"] == ["1  the sweeper ends them within a minute"]
    assert shown["consumer"][0].startswith("the consumer takes no messages: 1 message in the queue")
    status, (line,), _ = xorack("status", "--json")
    found = json.loads(line)
    assert (status, found["failed"], found["overdue"], found["waiting"]) == (1, 6, 1, 1)
    assert found["nearest"][0]["tag"] == "late"
    assert found["causes"][0]["reason"] == "row … is bad"


def test_the_table_alone_has_no_queues(stack, xorack):
    shown = named_lines(xorack("status", "--table", stack.table_name)[1])
    assert shown["queue"] == ["unknown; pass --stack"]


def test_every_face_counts_from_when_the_start_was_sent(stack, xorack):
    """The start waits in the queue for ten minutes, with all other requests of its chain."""
    begin = milliseconds() - 600_000
    for number, body in enumerate(pack(chain(TAG, 1, timeout=3600))):
        deliver(stack, [Message(str(number), body, 1, begin)])
    (event,) = stack.events()
    assert 600_000 <= event["detail"]["duration_ms"] < 660_000
    shown = json.loads(xorack("show", TAG, "--json")[1][0])
    assert shown == json.loads(xorack("list", "--json")[1][0]) | shown
    assert 600 <= shown["age_seconds"] < 660
    assert shown["created_at"] == event["detail"]["created_at"] == rfc3339(begin)
    # An ended chain keeps its deadline; the time-out counts from when the start was applied.
    assert milliseconds_of(shown["deadline"]) == pytest.approx(begin + 4_200_000, abs=60_000)
    assert named_lines(xorack("show", TAG)[1])["took"][0].startswith("10 min")
    hour = json.loads(xorack("status", "--json")[1][0])["last_hour"]
    assert [took for took in hour["took_ms"] if took] == [event["detail"]["duration_ms"]]
