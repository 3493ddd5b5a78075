"""`xorack redrive` and the library behind it, over moto in process."""

import base64
import gzip
import json
import re
from unittest.mock import Mock

import pytest
from botocore.exceptions import ClientError
from moto.sqs.models import sqs_backends

from tests.support.cli import TAG, start
from tests.support.dead_letters import bodies, put, put_messages, request, string_attributes
from xorack.aws.clock import milliseconds
from xorack.core.errors import SendError
from xorack.core.message import MAX_BODY_BYTES, pack, parse
from xorack.ops import dead_letters, redrive
from xorack.ops.backlog import depth
from xorack.ops.dead_letters import KINDS


def dead_letter_queue():
    """Moto's queue."""
    queues = sqs_backends["123456789012"]["us-east-1"].queues
    (queue,) = (queue for name, queue in queues.items() if name.endswith("-dead"))
    return queue


def queues(aws):
    return redrive.Redrive(aws.dead_letter_queue_url, aws.queue_url, aws.client("sqs"))


def take(aws):
    return sorted(message["Body"] for message in aws.receive_all(aws.queue_url))


def test_failed_messages_go_back_and_the_others_stay(stack, xorack, sqs):
    put_messages(stack, failed=(1, 2, 3), rejected=(4, 5), malformed=(7,))
    status, out, err = xorack("redrive", "--yes")
    assert (status, err) == (0, [])
    assert out[0].split() == ["MESSAGES", "KIND", "REASON", "FOR", "EXAMPLE"]
    assert out[1].split()[:4] == ["3", "failed", "goes", "back"]
    assert re.match(r" +2  rejected +stays +tag: '…' already exists +books/", out[2])
    assert out[4].startswith(
        "2 messages are rejected, and will be rejected again while the chain exists"
    )
    assert ("--all" in out[4], "dead-letters send" in out[5]) == (True, True)
    assert out[-1] == "3 messages sent back; 3 stay"
    assert take(stack) == bodies(1, 2, 3)
    # The others are visible again, and keep their reasons.
    left = stack.dead_letters()
    assert len(left) == 3
    assert all("error" in message["MessageAttributes"] for message in left)


def test_a_message_keeps_its_group(stack, sqs):
    queue = {"QueueUrl": stack.dead_letter_queue_url}
    for number, group in ((1, {"MessageGroupId": "run"}), (2, {})):
        stack.client("sqs").send_message(**queue, MessageBody=bodies(number)[0], **group)
    moving = queues(stack)
    assert moving.move(("failed",), moving.survey()).moved == 2
    received = stack.receive_all(stack.queue_url)
    groups = {message["Body"]: message["Attributes"].get("MessageGroupId") for message in received}
    assert groups == {bodies(1)[0]: "run", bodies(2)[0]: None}


def test_more_goes_back_on_request(stack, xorack, sqs):
    put_messages(stack, failed=(1,), rejected=(2,), malformed=(7,))
    for option, moved, left in (
        ("--all", 2, 1),
        ("--reason=version", 0, 1),  # a condition restricts the kinds that go back by default
        ("--kind=malformed", 1, 0),
        ("--all", 0, 0),
    ):
        status, out, _ = xorack("redrive", "--yes", "--json", option)
        result = json.loads(out[0])
        assert (status, result["moved"]) == (0, moved)
        assert (result["messages"], len(take(stack))) == (moved + left, moved)
    assert stack.dead_letters() == []


@pytest.mark.parametrize(
    ("text", "status", "last", "moved"),
    [("y\n", 0, "1 message sent back", 1), ("n\n", 1, "nothing was sent back", 0)],
)
def test_it_asks(stack, xorack, sqs, answer, text, status, last, moved):
    put_messages(stack, failed=(1,))
    answer(text)
    ended, out, err = xorack("redrive")
    assert (ended, err) == (status, [])
    assert "Send 1 message back to the queue? [y/N]" in "\n".join(out)
    assert out[-1].endswith(last)
    assert len(take(stack)) == moved
    put_messages(stack, failed=(2,))
    answer("")
    line = "error: stdin has no answer, so nothing was changed; use --yes to skip the question"
    status, _, err = xorack("redrive")
    assert (status, err, take(stack)) == (1, [line], [])


DAY = 86_400_000


def days_ago(days):
    return str(milliseconds() - int(days * DAY))


def sent_at(message):
    return message["MessageAttributes"]["sent_at"]["StringValue"]


def test_messages_older_than_finished_chains_are_kept_stay(stack, xorack, sqs):
    for number, days in enumerate((29, 31, 400)):
        put(stack, *bodies(number), sent_at=days_ago(days))
    put(stack, *bodies(3), error="tag: 'books/3' already exists", sent_at=days_ago(31))
    put(stack, "{}", error="version: None, expected 1", sent_at=days_ago(31))
    status, out, err = xorack("redrive", "--yes", "--all")
    assert (status, err) == (0, [])
    (line,) = (line for line in out if "older than" in line)
    assert line.startswith("4 messages are older than the 30 days for")
    assert out[-1] == "1 message sent back; 4 stay"
    assert take(stack) == bodies(0)
    assert len(stack.dead_letters()) == 4


def test_the_time_of_the_first_send_survives_every_redrive(stack, xorack, sqs):
    first = days_ago(0.4)  # moto hides no message for longer than half a day
    put_messages(stack, failed=(1, 2))
    one, two = dead_letter_queue()._messages
    one.sent_timestamp = two.sent_timestamp = int(first)
    put(stack, *bodies(3), error="tag: 'books/3' already exists", sent_at=first)
    urls = stack.dead_letter_queue_url, stack.queue_url
    short = redrive.Redrive(*urls, stack.client("sqs"), retention_ms=DAY // 4)
    assert short.survey().count("expired") == 3
    for _ in range(2):
        assert xorack("redrive", "--yes", "--all")[1][-1] == "3 messages sent back"
        messages = stack.receive_all(stack.queue_url)
        assert {sent_at(message) for message in messages} == {first}
        # The consumer fails, or rejects them: both keep the time.
        for message in messages:
            put(stack, message["Body"], sent_at=sent_at(message))
    assert short.move(KINDS, short.survey()) == (0, 3, 0)


@pytest.mark.parametrize("stack", [{"RetentionSeconds": str(60 * 86_400)}], indirect=True)
def test_a_chain_that_fails_here_is_kept_for_twice_the_stacks_retention(stack, xorack):
    start(stack)
    assert xorack("fail", TAG, "--reason", "withdrawn")[0] == 0
    item = stack.item(TAG)
    assert int(item["expires_at"]["N"]) == int(item["ended_at"]["N"]) // 1000 + 120 * 86_400 + 1


def test_a_message_at_the_limit_is_split_to_leave_room_for_its_time(stack, xorack, sqs):
    requests = [request(n, "t" * 900) for n in range(900)]
    raw = [*(one.to_json() for one in requests), {"op": "invalid"}]
    body = json.dumps({"version": 1, "requests": raw}).ljust(MAX_BODY_BYTES)
    put(stack, body)
    put(stack, "x" * MAX_BODY_BYTES)
    # What cannot be split stays: without its time it would be a new message.
    kinds = ("--kind", "failed", "--kind", "malformed")
    assert xorack("redrive", "--yes", *kinds)[1][-1] == "1 message sent back; 1 stay"
    parts = stack.receive_all(stack.queue_url)
    assert all("sent_at" in part["MessageAttributes"] for part in parts)
    parsed = [parse(part["Body"]) for part in parts]
    sent = [one for requests, _ in parsed for one in requests]
    assert sorted(sent, key=lambda one: int(one.id[3:])) == requests
    reasons = sorted(entry.reason[:18] for _, rejected in parsed for entry in rejected)
    assert reasons == ["requests[0].op: 'i"]


def test_a_crash_before_the_delete_loses_nothing(stack, xorack, sqs):
    put_messages(stack, failed=(1, 2))
    sqs.before["DeleteMessageBatch"] = Mock(side_effect=KeyboardInterrupt)
    assert xorack("redrive", "--yes")[0] == 130
    sqs.before.clear()
    assert take(stack) == bodies(1, 2)
    assert depth(stack.client("sqs"), stack.dead_letter_queue_url) == 2  # hidden for a while


def test_messages_that_the_queue_rejects_stay(stack, sqs):
    put_messages(stack, failed=(1, 2))
    survey = queues(stack).survey()
    denied = ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "Send")
    sqs.before["SendMessageBatch"] = Mock(side_effect=denied)
    with pytest.raises(SendError, match="AccessDenied"):
        queues(stack).move(["failed"], survey)
    assert len(stack.dead_letters()) == 2


def test_messages_that_are_rejected_again_do_not_go_round_in_circles(stack, sqs, monkeypatch):
    put_messages(stack, rejected=range(12))
    rounds, by_tens = [], redrive._by_tens

    def reject_at_once(work, messages):
        by_tens(work, messages)
        rounds.append(1)
        assert len(rounds) < 10
        for body in take(stack):
            put(stack, body, error="tag: 'x' already exists")
            # By the queue's clock, which is not ours.
            dead_letter_queue()._messages[-1].sent_timestamp = queues(stack)._server_time() + 6000

    survey = queues(stack).survey()
    monkeypatch.setattr(redrive, "_by_tens", reject_at_once)
    assert queues(stack).move(["failed", "rejected"], survey).moved == 12
    assert rounds


def packed(text):
    return base64.b64encode(gzip.compress(text.encode())).decode()


def test_a_packed_message_is_unpacked(stack, xorack, sqs):
    (body,) = pack([request(1)])
    put(stack, packed(body), error="tag: 'books/1' already exists", encoding="gzip+base64")
    put(stack, "rubbish", error="body: no", encoding="gzip+base64")
    status, out, _ = xorack("redrive", "--yes", "--all")
    assert (status, out[-1]) == (0, "1 message sent back; 1 stay")
    (message,) = stack.receive_all(stack.queue_url)
    assert message["Body"] == body
    assert set(message["MessageAttributes"]) == {"sent_at"}


@pytest.mark.parametrize("moved", [False, True])
def test_attributes_are_believed_unless_sqs_moved_the_message(moved):
    """A sender to the queue can set them, too, and have the message fail until SQS moves it."""
    names = {"error": "tag: no", "sender": "AROA:victim", "message_id": "other"}
    attributes = string_attributes(**names, encoding="gzip+base64", sent_at="5")
    system = {"SentTimestamp": "9", "SenderId": "AROA:attacker", "DeadLetterQueueSourceArn": "arn"}
    (body,) = pack([request(1)])
    received = {"MessageId": "m", "ReceiptHandle": "r", "MessageAttributes": attributes}
    received |= {"Body": body if moved else packed(body), "Attributes": system}
    if not moved:
        del system["DeadLetterQueueSourceArn"]
    message = dead_letters.DeadMessage.read(received)
    assert (message.body, message.sent_at, message.queued_at) == (body, 5, 9)
    found = (message.kind, message.error, message.sender, message.message_id, message.rejected_at)
    assert found == (
        ("failed", None, "AROA:attacker", "m", None)
        if moved
        else ("rejected", "tag: no", "AROA:victim", "other", 9)
    )


def test_a_compression_bomb_is_not_unpacked():
    assert dead_letters._unpack(packed(" " * (9 * 1024 * 1024))) is None
    cut = base64.b64encode(gzip.compress(b"x" * 1000)[:-9]).decode()
    assert dead_letters._unpack(cut) is None
