"""`xorack status`, over moto in process."""

import json

from tests.support.cli import TAG, apply, finish, named_lines, start
from tests.support.dead_letters import put_messages
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
    assert shown["queue"] == ["1 message not applied yet"]
    assert shown["dead letters"] == ["2  xorack dead-letters list"]
    assert shown["cause"][0] == "6 failed of run run: row … is bad"
    assert shown["last hour"][0] == "8 created, 1 acked, 6 failed"
    assert shown["last hour"][1].endswith("█| at most 1 a minute")
    assert TAG in out[-1]  # the nearest deadline
    # A consumer that takes nothing, and a chain past its deadline.
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
