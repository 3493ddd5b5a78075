"""`xorack redrive` and the library behind it, over moto in process."""

import base64
import gzip
import io
import json
import re
import sys
from unittest.mock import Mock

import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError
from botocore.validate import ParamValidator
from moto.sqs.models import sqs_backends

from xorack.core.errors import SendFailed
from xorack.core.message import pack, parse
from xorack.core.request import Request
from xorack.ops import dead_letters, redrive


class MoveTasks:
    """SQS's message move tasks, which moto lacks, as SQS's API reference describes them.

    Each ListMessageMoveTasks moves one message between moto's queues. Requests and responses are
    checked against botocore's model.
    """

    def __init__(self):
        self.error = "UnsupportedOperation"
        self.fails_after = None
        self.calls = []
        self.before = {}
        self.tasks = []

    def perform(self, client, operation, arguments):
        shapes = client.meta.service_model.operation_model(operation)
        assert not ParamValidator().validate(arguments, shapes.input_shape).has_errors()
        response = getattr(self, operation)(**arguments)
        assert not ParamValidator().validate(response, shapes.output_shape).has_errors()
        return response

    def StartMessageMoveTask(self, SourceArn, DestinationArn):
        queues = queues_by_arn()
        if self.error or any(task["Status"] == "RUNNING" for task in self.tasks):
            raise client_error(self.error or "UnsupportedOperation", "StartMessageMoveTask")
        sources = [(q.redrive_policy or {}).get("deadLetterTargetArn") for q in queues.values()]
        if SourceArn not in sources or DestinationArn not in queues:
            raise client_error("ResourceNotFoundException", "StartMessageMoveTask")
        task = {
            "TaskHandle": f"task-{len(self.tasks)}",
            "Status": "RUNNING",
            "SourceArn": SourceArn,
            "DestinationArn": DestinationArn,
            "ApproximateNumberOfMessagesMoved": 0,
            "ApproximateNumberOfMessagesToMove": len(queues[SourceArn].messages),
            "StartedTimestamp": 1,
        }
        self.tasks.insert(0, task)
        return {"TaskHandle": task["TaskHandle"]}

    def ListMessageMoveTasks(self, SourceArn, MaxResults=1):
        tasks = [task for task in self.tasks if task["SourceArn"] == SourceArn]
        for task in tasks:
            if task["Status"] == "RUNNING":
                self.move_one(task)
        return {"Results": [dict(task) for task in tasks[:MaxResults]]}

    def CancelMessageMoveTask(self, TaskHandle):
        (task,) = [task for task in self.tasks if task.get("TaskHandle") == TaskHandle]
        self.end(task, "CANCELLED")
        return {"ApproximateNumberOfMessagesMoved": task["ApproximateNumberOfMessagesMoved"]}

    def move_one(self, task):
        queues = queues_by_arn()
        source, target = queues[task["SourceArn"]], queues[task["DestinationArn"]]
        if self.fails_after == task["ApproximateNumberOfMessagesMoved"]:
            self.end(task, "FAILED", FailureReason="the key is gone")
        elif not source.messages:
            self.end(task, "COMPLETED")
        else:
            message = source.messages[0]
            source._messages.remove(message)
            target._messages.append(message)
            task["ApproximateNumberOfMessagesMoved"] += 1

    def end(self, task, status, **fields):
        del task["TaskHandle"]
        task.update(Status=status, **fields)


def queues_by_arn():
    return {
        queue.queue_arn: queue
        for queue in sqs_backends["123456789012"]["us-east-1"].queues.values()
    }


def client_error(code, operation):
    return ClientError({"Error": {"Code": code, "Message": "no"}}, operation)


@pytest.fixture
def sqs(monkeypatch):
    """SQS with move tasks; it records every call."""
    monkeypatch.setattr(redrive, "_WAIT_SECONDS", 0)
    monkeypatch.setattr(redrive, "_POLL_SECONDS", 0)
    tasks, original = MoveTasks(), BaseClient._make_api_call

    def call(client, operation, arguments):
        tasks.calls.append(operation)
        if operation in tasks.before:
            tasks.before[operation](arguments)
        if hasattr(tasks, operation):
            return tasks.perform(client, operation, arguments)
        return original(client, operation, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", call)
    return tasks


def request(number, tag=None):
    return Request("stamp", tag or f"books/{number}", f"id-{number}", b"\1" * 8, 1)


def string_attributes(**values):
    return {n: {"DataType": "String", "StringValue": value} for n, value in values.items()}


def put(aws, body, **attributes):
    url, values = aws.dead_letter_queue_url, string_attributes(**attributes)
    aws.client("sqs").send_message(QueueUrl=url, MessageBody=body, MessageAttributes=values)


def put_messages(aws, *, failed=(), rejected=(), malformed=()):
    """Put messages of each kind: request numbers, or the invalid versions of the malformed."""
    for body in bodies(*failed):
        put(aws, body)
    for number in rejected:
        put(aws, *bodies(number), error=f"tag: 'books/{number}' already exists")
    for version in malformed:
        put(aws, "{}", error=f"version: {version}, expected 1")


def queues(aws):
    return redrive.Redrive(aws.dead_letter_queue_url, aws.queue_url, aws.client("sqs"))


def take(aws):
    return sorted(message["Body"] for message in aws.receive_all(aws.queue_url))


def bodies(*numbers):
    return sorted(body for number in numbers for body in pack([request(number)]))


def test_failed_messages_go_back_and_the_others_stay(stack, xorack, sqs):
    put_messages(stack, failed=(1, 2, 3), rejected=(4, 5), malformed=(7,))
    status, out, err = xorack("redrive", "--yes")
    assert (status, err) == (0, [])
    assert out[0].split() == ["MESSAGES", "REASON", "FOR", "EXAMPLE"]
    assert out[1].split()[:3] == ["3", "goes", "back"]
    assert re.match(r" +2  stays +tag: '…' already exists +books/", out[2])
    assert ("--all" in out[4], "--force" in out[5]) == (True, True)
    assert out[-1] == "3 messages sent back; 3 stay"
    assert "StartMessageMoveTask" not in sqs.calls
    assert take(stack) == bodies(1, 2, 3)
    # The others are visible again, and keep their reasons.
    left = stack.dead_letters()
    assert len(left) == 3
    assert all("error" in message["MessageAttributes"] for message in left)


def test_more_goes_back_on_request(stack, xorack, sqs):
    put_messages(stack, failed=(1,), rejected=(2,), malformed=(7,))
    for option, moved, left in (("--all", 2, 1), ("--force", 1, 0)):
        status, out, _ = xorack("redrive", "--yes", "--json", option)
        result = json.loads(out[0])
        assert (status, result["moved"], result["by"]) == (0, moved, "hand")
        assert (result["letters"], len(take(stack))) == (moved + left, moved)
    assert stack.dead_letters() == []


def test_rejected_messages_alone_are_explained_and_left(stack, xorack, sqs):
    put_messages(stack, rejected=(1,))
    status, out, _ = xorack("redrive")
    assert (status, out[-1]) == (0, "nothing to send back")
    assert out[-2].startswith("1 message is rejected: the chain was in the wrong state.")
    assert take(stack) == []


def test_no_messages(stack, xorack, sqs):
    assert xorack("redrive") == (0, ["no dead-lettered messages"], [])
    assert json.loads(xorack("redrive", "--json")[1][0])["letters"] == 0


@pytest.mark.parametrize(
    ("answer", "status", "last", "moved"),
    [("y\n", 0, "1 message sent back", 1), ("n\n", 1, "nothing was moved", 0)],
)
def test_it_asks(stack, xorack, sqs, monkeypatch, answer, status, last, moved):
    put_messages(stack, failed=(1,))
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    ended, out, err = xorack("redrive")
    assert (ended, err) == (status, [])
    assert "Send 1 message back to the queue? [y/N]" in "\n".join(out)
    assert out[-1].endswith(last)
    assert len(take(stack)) == moved


def test_nothing_moves_if_nobody_can_answer(stack, xorack, sqs, monkeypatch):
    put_messages(stack, failed=(1,))
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    status, _, err = xorack("redrive")
    line = "error: nobody can answer, nothing was moved: --yes does not ask"
    assert (status, err) == (1, [line])
    status, out, _ = xorack("redrive", "--json")
    assert (status, json.loads(out[0])["moved"]) == (0, 0)
    assert xorack("redrive", "--look")[0] == 0
    assert take(stack) == []
    assert len(stack.dead_letters()) == 1


def test_sqs_moves_the_messages_itself_if_all_go(stack, xorack, sqs):
    sqs.error = None
    put_messages(stack, failed=(1, 2, 3))
    status, out, _ = xorack("redrive", "--yes", "--json")
    result = json.loads(out[0])
    assert (status, result["by"], result["moved"]) == (0, "task", 3)
    assert take(stack) == bodies(1, 2, 3)
    assert stack.dead_letters() == []
    # And again, with new messages: the newest task is listed first.
    put_messages(stack, failed=(4,))
    assert json.loads(xorack("redrive", "--yes", "--json")[1][0])["moved"] == 1


def test_sqs_moves_messages_beyond_the_survey_whatever_their_kind(stack, sqs):
    sqs.error = None
    put_messages(stack, failed=range(10), rejected=(10, 11), malformed=(7,))
    survey = queues(stack).survey(limit=10)
    assert (survey.seen, survey.count("failed"), survey.total) == (10, 10, 13)
    assert not survey.complete
    result = queues(stack).move(["failed"], survey)
    assert (result.by, result.moved) == ("task", 13)
    assert stack.dead_letters() == []


@pytest.mark.parametrize("moving", [False, True], ids=["unsupported", "another move"])
def test_messages_go_one_by_one_if_sqs_does_not_move_them(stack, xorack, sqs, moving):
    put_messages(stack, failed=range(25))
    if moving:
        sqs.error = None
        queues(stack)._start_task()
    status, out, _ = xorack("redrive", "--yes")
    line = "one by one: SQS does not move them itself (UnsupportedOperation)"
    assert (status, out[-2:]) == (0, [line, "25 messages sent back"])
    assert take(stack) == bodies(*range(25))
    assert stack.dead_letters() == []


def test_a_failed_move_of_sqs_is_one_line(stack, xorack, sqs):
    sqs.error, sqs.fails_after = None, 1
    put_messages(stack, failed=(1, 2))
    line = "error: SQS moved 1 message and stopped (FAILED): the key is gone"
    assert xorack("redrive", "--yes")[::2] == (1, [line])
    assert len(stack.dead_letters()) == 1
    # A second move, whose progress cannot be read.
    put_messages(stack, failed=(3,))
    sqs.before["ListMessageMoveTasks"] = Mock(side_effect=client_error("AccessDenied", "List"))
    status, _, (line,) = xorack("redrive", "--yes")
    assert status == 1
    assert re.match("error: SQS goes on to move them, but .* unknown: .*AccessDenied", line)


def test_ctrl_c_cancels_a_move_of_sqs(stack, xorack, sqs):
    sqs.error = None
    put_messages(stack, failed=(1, 2, 3))

    def interrupt(_):
        if sqs.calls.count("ListMessageMoveTasks") == 3:
            raise KeyboardInterrupt

    sqs.before["ListMessageMoveTasks"] = interrupt
    assert xorack("redrive", "--yes")[0] == 130
    assert sqs.tasks[0]["Status"] == "CANCELLED"
    assert len(stack.dead_letters()) == 1


def test_a_crash_before_the_delete_loses_nothing(stack, xorack, sqs):
    put_messages(stack, failed=(1, 2))
    sqs.before["DeleteMessageBatch"] = Mock(side_effect=KeyboardInterrupt)
    assert xorack("redrive", "--yes")[0] == 130
    assert take(stack) == bodies(1, 2)
    hidden = "ApproximateNumberOfMessagesNotVisible"
    assert queues(stack)._attribute(stack.dead_letter_queue_url, hidden) == "2"


def test_messages_that_the_queue_rejects_stay(stack, sqs):
    put_messages(stack, failed=(1, 2))
    survey = queues(stack).survey()
    sqs.before["SendMessageBatch"] = Mock(side_effect=client_error("AccessDenied", "Send"))
    with pytest.raises(SendFailed, match="AccessDenied"):
        queues(stack).move(["failed"], survey)
    assert len(stack.dead_letters()) == 2


def test_messages_that_are_rejected_again_do_not_go_round_in_circles(stack, sqs):
    put_messages(stack, rejected=range(12))
    rounds = []

    def reject_at_once(*_):
        rounds.append(1)
        assert len(rounds) < 10
        for body in take(stack):
            put(stack, body, error="tag: 'x' already exists")
            (queue,) = (queue for arn, queue in queues_by_arn().items() if arn.endswith("-dead"))
            # By the queue's clock, which is not ours.
            queue._messages[-1].sent_timestamp = queues(stack)._server_time() + 6000

    survey = queues(stack).survey()
    assert queues(stack).move(["failed", "rejected"], survey, reject_at_once).moved == 12


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
    assert "MessageAttributes" not in message


def test_a_packed_message_too_large_for_one_becomes_several():
    requests = [request(n, "t" * 900) for n in range(1300)]
    body = json.dumps({"version": 1, "requests": [one.to_json() for one in requests]}, indent=1)
    assert len(body) > 1024 * 1024
    attributes = string_attributes(error="Buffer lengths are not equal", encoding="gzip+base64")
    received = {"MessageId": "m", "ReceiptHandle": "r", "Body": packed(body)}
    message = dead_letters.DeadMessage.read({**received, "MessageAttributes": attributes})
    assert message.kind == "rejected"
    assert len(message.bodies) > 1
    assert [r for part in message.bodies for r in parse(part).requests] == requests


def test_a_compression_bomb_is_not_unpacked():
    assert dead_letters._unpack(packed(" " * (9 * 1024 * 1024))) is None
    cut = base64.b64encode(gzip.compress(b"x" * 1000)[:-9]).decode()
    assert dead_letters._unpack(cut) is None


def test_cut_values_are_one_reason(stack, sqs):
    for number in range(3):
        body = f"{number}, no JSON: " + "it's <b>" * 30
        put(stack, body, error=parse(body)[1][0].reason)
    (group,) = queues(stack).survey().groups
    assert group.count == 3
    assert group.reason.startswith("body: '…', expected")


def test_the_table_of_reasons_is_bounded(stack, xorack, sqs):
    put_messages(stack, malformed=range(25))
    _, out, _ = xorack("redrive", "--look")
    assert sum("version:" in line for line in out) == 20
    assert "and 5 messages of 5 more reasons: --json lists all" in out
    assert len(json.loads(xorack("redrive", "--look", "--json")[1][0])["groups"]) == 25


def test_queues_by_their_urls(aws, xorack, sqs):
    put_messages(aws, failed=(1,))
    urls = ("--dead-letters", aws.dead_letter_queue_url, "--queue", aws.queue_url)
    assert xorack("redrive", "--yes", *urls)[0] == 0
    assert take(aws) == bodies(1)


def test_queues_that_are_equal_or_swapped_or_do_not_exist(aws, xorack, sqs):
    put_messages(aws, failed=(1,))
    queue, dead, gone = aws.queue_url, aws.dead_letter_queue_url, f"{aws.queue_url}-gone"
    see = "(see: xorack redrive --help)"
    swapped = f"--queue is the dead-letter queue of --dead-letters: are they swapped? {see}"
    absent = f"queue {gone} does not exist in us-east-1"
    for source, target, status, line in (
        (dead, dead, 2, f"--queue is the queue of --dead-letters {see}"),
        (queue, dead, 2, swapped),
        (gone, queue, 1, absent),
        (dead, gone, 1, absent),
        (gone, gone, 1, absent),
    ):
        urls = ("--dead-letters", source, "--queue", target)
        assert xorack("redrive", "--yes", *urls) == (status, [], [f"error: {line}"])
    assert len(aws.dead_letters()) == 1
