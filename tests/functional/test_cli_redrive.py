"""`xorack redrive` and the service behind it, over moto in process."""

import base64
import gzip
import io
import json
import sys

import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError
from botocore.validate import ParamValidator

from tests.functional.test_cli import stack, xorack  # noqa: F401 - fixtures
from xorack.aws.sqs import DeadLetterQueue
from xorack.core.errors import SendFailed
from xorack.core.message import Rejected, pack, parse
from xorack.core.request import Request
from xorack.core.retry import RetryPolicy
from xorack.ops import dead_letters as service


class Sqs:
    """What SQS does besides what moto knows: moving letters by itself, as its API reference has it.

    Neither moto nor ministack has move tasks. This one moves what is in moto's queues, a letter at
    each look, as new messages that keep their attributes; what it is asked and what it answers is
    held to botocore's model of the operations.
    """

    def __init__(self):
        self.refuses = "UnsupportedOperation"
        self.fails_after = None
        self.calls = []
        self.before = {}
        self.tasks = []

    def perform(self, client, operation, arguments):
        shapes = client.meta.service_model.operation_model(operation)
        assert not ParamValidator().validate(arguments, shapes.input_shape).has_errors()
        answer = getattr(self, operation)(client, **arguments)
        assert not ParamValidator().validate(answer, shapes.output_shape).has_errors()
        return answer

    def StartMessageMoveTask(self, client, SourceArn, DestinationArn):
        queues = {queue.queue_arn: queue for queue in backend().queues.values()}
        running = [task for task in self.tasks if task["Status"] == "RUNNING"]
        if self.refuses or running:
            raise refusal(self.refuses or "UnsupportedOperation", "StartMessageMoveTask")
        letters_of = [(q.redrive_policy or {}).get("deadLetterTargetArn") for q in queues.values()]
        if SourceArn not in letters_of or DestinationArn not in queues:
            raise refusal("ResourceNotFoundException", "StartMessageMoveTask")
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

    def ListMessageMoveTasks(self, client, SourceArn, MaxResults=1):
        tasks = [task for task in self.tasks if task["SourceArn"] == SourceArn]
        for task in tasks:
            if task["Status"] == "RUNNING":
                self.move_one(client, task)
        return {"Results": [dict(task) for task in tasks[:MaxResults]]}

    def CancelMessageMoveTask(self, client, TaskHandle):
        (task,) = [task for task in self.tasks if task.get("TaskHandle") == TaskHandle]
        del task["TaskHandle"]
        task["Status"] = "CANCELLED"
        return {"ApproximateNumberOfMessagesMoved": task["ApproximateNumberOfMessagesMoved"]}

    def move_one(self, client, task):
        if self.fails_after == task["ApproximateNumberOfMessagesMoved"]:
            del task["TaskHandle"]
            task.update(Status="FAILED", FailureReason="the key is gone")
            return
        source, target = (
            client.get_queue_url(QueueName=task[name].rsplit(":", 1)[1])["QueueUrl"]
            for name in ("SourceArn", "DestinationArn")
        )
        received = client.receive_message(QueueUrl=source, MessageAttributeNames=["All"])
        if not (messages := received.get("Messages")):
            del task["TaskHandle"]
            task["Status"] = "COMPLETED"
            return
        (letter,) = messages
        client.send_message(
            QueueUrl=target,
            MessageBody=letter["Body"],
            MessageAttributes=letter.get("MessageAttributes", {}),
        )
        client.delete_message(QueueUrl=source, ReceiptHandle=letter["ReceiptHandle"])
        task["ApproximateNumberOfMessagesMoved"] += 1


def backend():
    from moto.sqs.models import sqs_backends

    return sqs_backends["123456789012"]["us-east-1"]


def refusal(code, operation):
    return ClientError({"Error": {"Code": code, "Message": "no"}}, operation)


@pytest.fixture
def sqs(monkeypatch):
    """Every SQS call, noted; the move tasks done here."""
    monkeypatch.setattr(service, "_WAIT_SECONDS", 0)
    monkeypatch.setattr(service, "_POLL_SECONDS", 0)
    told, original = Sqs(), BaseClient._make_api_call

    def call(client, operation, arguments):
        told.calls.append((operation, arguments))
        if operation in told.before:
            told.before[operation](arguments)
        if hasattr(told, operation):
            return told.perform(client, operation, arguments)
        return original(client, operation, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", call)
    return told


def request(number, tag=None):
    return Request("stamp", tag or f"books/{number}", f"id-{number}", b"\1" * 8, 1)


def put(aws, body, error=None, **more):
    attributes = {} if error is None else {"error": error, **more}
    aws.client("sqs").send_message(
        QueueUrl=aws.dead_letter_queue_url,
        MessageBody=body,
        MessageAttributes={
            name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()
        },
    )


def put_failed(aws, *numbers):
    for number in numbers:
        put(aws, *pack([request(number)]))


def put_refused(aws, *numbers):
    letters = [
        Rejected(*pack([request(number)]), f"tag: 'books/{number}' already exists")
        for number in numbers
    ]
    assert not DeadLetterQueue(aws.dead_letter_queue_url, aws.client("sqs")).send(letters)


def put_malformed(aws):
    put(aws, '{"version": 7}', error="version: 7, expected 1")


def take(aws, url):
    return sorted(message["Body"] for message in aws.receive_all(url))


def bodies(*numbers):
    return sorted(body for number in numbers for body in pack([request(number)]))


def test_what_failed_goes_back_and_the_rest_stays(stack, xorack, sqs):  # noqa: F811
    put_failed(stack, 1, 2, 3)
    put_refused(stack, 4, 5)
    put_malformed(stack)
    status, out, err = xorack("redrive", "--yes")
    assert (status, err) == (0, [])
    assert out[0].split() == ["LETTERS", "REASON", "FOR", "EXAMPLE"]
    assert out[1].split()[:3] == ["3", "goes", "back"]
    assert out[2].split()[:2] == ["2", "stays"]
    assert "tag: '…' already exists" in out[2]
    assert "books/" in out[2]
    assert "--all" in out[4]
    assert "--force" in out[5]
    assert out[-1] == "3 dead letters sent back; 3 dead letters stay"
    assert "StartMessageMoveTask" not in [operation for operation, _ in sqs.calls]
    assert take(stack, stack.queue_url) == bodies(1, 2, 3)
    # They are not hidden any more, and have their reasons still.
    left = stack.dead_letters()
    assert len(left) == 3
    assert all("error" in letter["MessageAttributes"] for letter in left)


@pytest.mark.parametrize(("option", "moved"), [("--all", 2), ("--force", 3)])
def test_more_goes_back_if_it_is_asked_for(stack, xorack, sqs, option, moved):  # noqa: F811
    put_failed(stack, 1)
    put_refused(stack, 2)
    put_malformed(stack)
    status, out, _ = xorack("redrive", "--yes", "--json", option)
    told = json.loads(out[0])
    assert (status, told["moved"], told["by"]) == (0, moved, "hand")
    assert len(take(stack, stack.queue_url)) == moved
    assert len(stack.dead_letters()) == 3 - moved


def test_only_refused_letters_are_explained_and_left(stack, xorack, sqs):  # noqa: F811
    put_refused(stack, 1)
    status, out, _ = xorack("redrive")
    assert (status, out[-1]) == (0, "nothing to send back")
    assert out[-2].startswith("1 dead letter is refused for how their chains were")
    assert take(stack, stack.queue_url) == []


def test_no_letters(stack, xorack, sqs):  # noqa: F811
    assert xorack("redrive") == (0, ["no dead letters"], [])
    status, out, _ = xorack("redrive", "--json")
    assert (status, json.loads(out[0])["letters"]) == (0, 0)


@pytest.mark.parametrize(
    ("answer", "status", "said", "moved"),
    [("y\n", 0, "1 dead letter sent back", 1), ("n\n", 1, "nothing was moved", 0)],
)
def test_it_asks(stack, xorack, sqs, monkeypatch, answer, status, said, moved):  # noqa: F811
    put_failed(stack, 1)
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    done, out, err = xorack("redrive")
    assert (done, err) == (status, [])
    assert "Send 1 dead letter back to the queue? [y/N]" in "\n".join(out)
    assert out[-1].endswith(said)
    assert len(take(stack, stack.queue_url)) == moved


def test_where_nobody_can_answer_nothing_moves(stack, xorack, sqs, monkeypatch):  # noqa: F811
    put_failed(stack, 1)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    status, _, err = xorack("redrive")
    assert (status, err) == (1, ["error: nobody to ask, nothing was moved: --yes does not ask"])
    status, out, _ = xorack("redrive", "--json")
    assert (status, json.loads(out[0])["moved"]) == (0, 0)
    assert xorack("redrive", "--look")[0] == 0
    assert take(stack, stack.queue_url) == []
    assert len(stack.dead_letters()) == 1


def test_sqs_moves_them_itself_where_all_go(stack, xorack, sqs):  # noqa: F811
    sqs.refuses = None
    put_failed(stack, 1, 2, 3)
    status, out, _ = xorack("redrive", "--yes", "--json")
    told = json.loads(out[0])
    assert (status, told["by"], told["moved"]) == (0, "task", 3)
    assert take(stack, stack.queue_url) == bodies(1, 2, 3)
    assert stack.dead_letters() == []
    # And again, once there are new ones: what is listed first is the newest task.
    put_failed(stack, 4)
    assert json.loads(xorack("redrive", "--yes", "--json")[1][0])["moved"] == 1


def test_beyond_those_that_were_seen_sqs_moves_all_of_whatever_kind(stack, sqs):  # noqa: F811
    sqs.refuses = None
    put_failed(stack, *range(10))
    put_refused(stack, 10, 11)
    put_malformed(stack)
    client = stack.client("sqs")
    found = service.survey(stack.dead_letter_queue_url, client, limit=10)
    assert (found.seen, found.count(["failed"]), found.complete) == (10, 10, False)
    urls = (stack.dead_letter_queue_url, stack.queue_url)
    done = service.move(*urls, ["failed"], found, client, sleep=lambda _: None)
    assert (done.by, done.moved) == ("task", 13)
    assert stack.dead_letters() == []


def test_while_sqs_is_moving_them_already_they_go_one_by_one(stack, xorack, sqs):  # noqa: F811
    sqs.refuses = None
    put_failed(stack, 1)
    client = stack.client("sqs")
    service._start_task(client, stack.dead_letter_queue_url, stack.queue_url)
    status, out, _ = xorack("redrive", "--yes")
    assert status == 0
    assert out[-2] == "one by one: SQS does not move them itself (UnsupportedOperation)"
    assert take(stack, stack.queue_url) == bodies(1)


def test_a_move_of_sqs_that_fails_is_one_line(stack, xorack, sqs):  # noqa: F811
    sqs.refuses, sqs.fails_after = None, 1
    put_failed(stack, 1, 2)
    status, _, err = xorack("redrive", "--yes")
    assert (status, err) == (
        1,
        ["error: SQS moved 1 letter and stopped (FAILED): the key is gone"],
    )
    assert len(stack.dead_letters()) == 1


def test_a_move_of_sqs_is_cancelled_with_us(stack, xorack, sqs):  # noqa: F811
    sqs.refuses = None
    put_failed(stack, 1, 2, 3)

    def interrupt(_):
        if [call for call, _ in sqs.calls].count("ListMessageMoveTasks") == 3:
            raise KeyboardInterrupt

    sqs.before["ListMessageMoveTasks"] = interrupt
    assert xorack("redrive", "--yes")[0] == 130
    assert sqs.tasks[0]["Status"] == "CANCELLED"
    assert len(stack.dead_letters()) == 1


def test_where_sqs_does_not_move_them_they_go_one_by_one(stack, xorack, sqs):  # noqa: F811
    put_failed(stack, *range(25))
    status, out, _ = xorack("redrive", "--yes")
    assert status == 0
    assert out[-2:] == [
        "one by one: SQS does not move them itself (UnsupportedOperation)",
        "25 dead letters sent back",
    ]
    assert take(stack, stack.queue_url) == bodies(*range(25))
    assert stack.dead_letters() == []


def test_who_dies_before_deleting_loses_nothing(stack, xorack, sqs):  # noqa: F811
    put_failed(stack, 1, 2)

    def die(_):
        raise KeyboardInterrupt

    sqs.before["DeleteMessageBatch"] = die
    assert xorack("redrive", "--yes")[0] == 130
    assert take(stack, stack.queue_url) == bodies(1, 2)
    dead = stack.client("sqs").get_queue_attributes(
        QueueUrl=stack.dead_letter_queue_url,
        AttributeNames=["ApproximateNumberOfMessagesNotVisible"],
    )
    assert dead["Attributes"]["ApproximateNumberOfMessagesNotVisible"] == "2"


def test_what_the_queue_does_not_take_stays(stack, sqs):  # noqa: F811
    put_failed(stack, 1, 2)
    client = stack.client("sqs")
    found = service.survey(stack.dead_letter_queue_url, client)

    def refuse(_):
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "SendMessageBatch")

    sqs.before["SendMessageBatch"] = refuse
    with pytest.raises(SendFailed, match="AccessDenied"):
        service.move(
            stack.dead_letter_queue_url,
            stack.queue_url,
            ["failed"],
            found,
            client,
            policy=RetryPolicy(attempts=1),
        )
    assert len(stack.dead_letters()) == 2


def test_what_is_refused_again_does_not_go_round_in_circles(stack, sqs):  # noqa: F811
    client = stack.client("sqs")
    put_refused(stack, *range(12))
    found = service.survey(stack.dead_letter_queue_url, client)
    # The queue's clock is not ours: what comes later is known by SQS's own time.
    original = service._server_time

    def earlier(*arguments):
        return original(*arguments) + 1000

    rounds = []

    def consume_at_once(_, __):
        rounds.append(1)
        assert len(rounds) < 10
        for body in take(stack, stack.queue_url):
            (one,) = parse(body).requests
            again = {"DataType": "String", "StringValue": "tag: 'x' already exists"}
            client.send_message(
                QueueUrl=stack.dead_letter_queue_url,
                MessageBody=body,
                MessageAttributes={"error": again},
            )
            later(one.id)

    def later(_):
        (queue,) = (q for q in backend().queues.values() if q.name.endswith("-dead"))
        queue._messages[-1].sent_timestamp = earlier(client, stack.queue_url) + 5000

    done = service.move(
        stack.dead_letter_queue_url,
        stack.queue_url,
        ["failed", "rejected"],
        found,
        client,
        progress=consume_at_once,
    )
    assert done.moved == 12


def test_a_packed_letter_is_unpacked(stack, xorack, sqs):  # noqa: F811
    (body,) = pack([request(1)])
    packed = base64.b64encode(gzip.compress(body.encode())).decode()
    put(stack, packed, error="tag: 'books/1' already exists", encoding="gzip+base64")
    put(stack, "rubbish", error="body: no", encoding="gzip+base64")
    status, out, _ = xorack("redrive", "--yes", "--all")
    assert status == 0
    assert out[-1] == "1 dead letter sent back; 1 dead letter stays"
    (message,) = stack.receive_all(stack.queue_url)
    assert message["Body"] == body
    assert "MessageAttributes" not in message


def test_a_packed_letter_too_large_for_a_message_becomes_several():
    requests = [request(n, "t" * 900) for n in range(1300)]
    body = json.dumps({"version": 1, "requests": [one.to_json() for one in requests]}, indent=1)
    assert len(body) > 1024 * 1024
    letter = service._letter(
        {
            "MessageId": "m",
            "ReceiptHandle": "r",
            "Body": base64.b64encode(gzip.compress(body.encode())).decode(),
            "MessageAttributes": {
                "error": {"StringValue": "Buffer lengths are not equal"},
                "encoding": {"StringValue": "gzip+base64"},
            },
        }
    )
    assert letter.kind == "rejected"
    assert len(letter.bodies) > 1
    assert [r for part in letter.bodies for r in parse(part).requests] == requests


def test_a_bomb_is_not_unpacked():
    bomb = base64.b64encode(gzip.compress(b" " * (9 * 1024 * 1024))).decode()
    assert service._unpacked(bomb) is None
    assert service._unpacked(base64.b64encode(gzip.compress(b"x" * 1000)[:-9]).decode()) is None


def test_a_look_is_bounded_and_leaves_all(stack, sqs):  # noqa: F811
    put_failed(stack, *range(30))
    found = service.survey(stack.dead_letter_queue_url, stack.client("sqs"), limit=15)
    assert (found.seen, found.about, found.complete) == (20, 30, False)
    assert len(stack.dead_letters()) == 30


def test_queues_by_their_urls(aws, xorack, sqs):  # noqa: F811
    put_failed(aws, 1)
    both = ("--dead-letters", aws.dead_letter_queue_url, "--queue", aws.queue_url)
    assert xorack("redrive", "--yes", *both)[0] == 0
    assert take(aws, aws.queue_url) == bodies(1)
    status, _, err = xorack("redrive", *both[:2])
    assert (status, err) == (
        2,
        ["error: --dead-letters and --queue go together (see: xorack redrive --help)"],
    )


def test_mistakes_are_one_line(aws, xorack, sqs):  # noqa: F811
    status, _, err = xorack("redrive", "--stack", "gone")
    assert (status, err) == (
        1,
        ["error: there is no stack gone in us-east-1: name yours with --stack"],
    )
    url = "https://sqs.us-east-1.amazonaws.com/123456789012/gone"
    status, _, err = xorack("redrive", "--dead-letters", url, "--queue", url)
    assert status == 1
    assert len(err) == 1
    assert "does not exist" in err[0]


def test_a_queue_is_not_redriven_into_itself_nor_the_wrong_way_round(aws, xorack, sqs):  # noqa: F811
    put_failed(aws, 1)
    itself = ("--dead-letters", aws.dead_letter_queue_url, "--queue", aws.dead_letter_queue_url)
    swapped = ("--dead-letters", aws.queue_url, "--queue", aws.dead_letter_queue_url)
    for both, said in (
        (itself, "--queue is the queue of --dead-letters"),
        (swapped, "--dead-letters is a queue whose dead letters go to --queue: are they swapped?"),
    ):
        status, out, err = xorack("redrive", "--yes", *both)
        assert (status, out) == (2, [])
        assert err == [f"error: {said} (see: xorack redrive --help)"]
    assert len(aws.dead_letters()) == 1


def test_a_queue_that_is_not_there_is_named(aws, xorack, sqs):  # noqa: F811
    gone = aws.queue_url.rpartition("/")[0] + "/gone"
    for both in ((gone, aws.queue_url), (aws.dead_letter_queue_url, gone)):
        status, out, err = xorack("redrive", "--yes", "--dead-letters", both[0], "--queue", both[1])
        assert (status, out, err) == (1, [], [f"error: queue {gone} does not exist in us-east-1"])


def test_texts_that_were_cut_are_one_reason(stack, sqs):  # noqa: F811
    for number in range(3):
        body = f"{number}, no JSON: " + "it's <b>" * 30
        put(stack, body, error=parse(body).refused[0].reason)
    found = service.survey(stack.dead_letter_queue_url, stack.client("sqs"))
    assert [(group.count, group.reason.partition(", expected")[0]) for group in found.groups] == [
        (3, "body: '…'")
    ]


def test_a_table_of_reasons_has_an_end(stack, xorack, sqs):  # noqa: F811
    for number in range(25):
        put(stack, "{}", error=f"version: {number}, expected 1")
    _, out, _ = xorack("redrive", "--look")
    assert sum("version:" in line for line in out) == 20
    assert "and 5 dead letters of 5 further reasons: --json has all" in out
    _, out, _ = xorack("redrive", "--look", "--json")
    assert len(json.loads(out[0])["groups"]) == 25


def test_who_may_not_look_at_sqs_own_move_is_told_that_it_goes_on(stack, xorack, sqs):  # noqa: F811
    sqs.refuses = None
    put_failed(stack, 1)

    def refuse(_):
        raise refusal("AccessDenied", "ListMessageMoveTasks")

    sqs.before["ListMessageMoveTasks"] = refuse
    status, _, err = xorack("redrive", "--yes")
    assert (status, len(err)) == (1, 1)
    assert err[0].startswith("error: SQS goes on to move them, and does not tell how far it is: ")
    assert "AccessDenied" in err[0]
