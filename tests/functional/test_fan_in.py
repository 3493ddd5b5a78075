"""Fan-in: a batch of messages finishes its units once, wherever its function is killed."""

import json
from collections import Counter
from contextlib import suppress

import pytest
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, SqsFifoPartialProcessor
from aws_lambda_powertools.utilities.batch.exceptions import BatchProcessingError

from tests.functional.test_handlers import advance_clock
from tests.support.faults import counted_calls, failing
from tests.support.functions import Context
from xorack import Tracker, fan_in, fan_out, names_of, step_of
from xorack.aws.client import CONFIG
from xorack.aws.retry import RetryPolicy
from xorack.core.errors import ArgumentError, SendError

ATTRIBUTES = {"stringValue": "StringValue", "dataType": "DataType"}


class Killed(BaseException):
    """The end of the process: no handler of exceptions sees it."""


class Work:
    """A queue of work with visibility time-outs that never end by themselves, and its producer."""

    def __init__(self, aws):
        self.sqs = aws.client("sqs", config=CONFIG)
        self.tracker = Tracker(
            aws.queue_url, self.sqs, policy=RetryPolicy(attempts=2, sleep=lambda seconds: None)
        )
        self.url = self.sqs.create_queue(QueueName="work")["QueueUrl"]

    def start(self, *names, tag="t"):
        """Start a chain, and send a message for each of its children."""
        with self.tracker.step(self.tracker.start(tag, timeout=60)) as step:
            fan_out(step, {name: {"name": name} for name in names}, self.url, self.sqs)

    def receive(self):
        """Take all messages off the queue: an event as Lambda gets it, ordered by name."""
        records = []
        while batch := self.sqs.receive_message(
            QueueUrl=self.url, MaxNumberOfMessages=10, MessageAttributeNames=["All"]
        ).get("Messages"):
            records += map(record_of, batch)
        return {"Records": sorted(records, key=lambda record: record["body"])}


def record_of(message):
    """Return a message as Lambda gives it to a function."""
    attributes = {
        name: {key: attribute[other] for key, other in ATTRIBUTES.items()}
        for name, attribute in message.get("MessageAttributes", {}).items()
    }
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "messageAttributes": attributes,
        "attributes": {"MessageGroupId": "g"},
        "eventSource": "aws:sqs",
    }


@pytest.fixture
def work(aws):
    return Work(aws)


def handler_of(work, handle, **options):
    """The Lambda handler of a function of one message."""
    return fan_in(work.tracker, **options)(handle)


def nothing(record, step):
    """Succeed."""


def failures(response):
    return [entry["itemIdentifier"] for entry in response["batchItemFailures"]]


def redelivered(event, response):
    """The event with the failed messages, as Lambda delivers it again."""
    return {"Records": [one for one in event["Records"] if one["messageId"] in failures(response)]}


def acked(functions, tag="t"):
    """Deliver all messages to the acker; return how many units of an acked chain are finished."""
    functions.deliver()
    assert functions.aws.dead_letters() == []
    event = functions.events().get(tag)
    return event and event["status"] == "acked" and event["finished"]


@pytest.mark.parametrize("messages", [1, 10])
def test_one_message_to_the_acker_finishes_a_batch(work, functions, messages):
    work.start(*range(messages))
    functions.deliver()
    event, done = work.receive(), []
    handler = handler_of(work, lambda record, step: done.append(record.json_body["name"]))
    with counted_calls(work.sqs) as calls:
        assert handler(event, Context()) == {"batchItemFailures": []}
    assert calls == Counter(SendMessageBatch=1)
    assert sorted(done) == [*range(messages)]
    assert len(functions.deliver()) == 1
    assert functions.events()["t"]["finished"] == messages + 1


def test_a_message_that_fails_stays_outstanding_and_comes_again(work, functions):
    work.start("a", "b", "c")
    attempts = Counter()

    def handle(record, step):
        attempts[name := record.json_body["name"]] += 1
        if name == "b" and attempts[name] == 1:
            raise OSError("a bad day")

    handler, event = handler_of(work, handle), work.receive()
    response = handler(event, Context())
    assert failures(response) == [event["Records"][1]["messageId"]]
    assert not acked(functions)
    assert handler(redelivered(event, response), Context()) == {"batchItemFailures": []}
    assert acked(functions) == 4
    assert attempts == {"a": 1, "b": 2, "c": 1}


def test_a_function_that_is_killed_between_work_and_send_repeats_the_batch(work, functions):
    work.start("a", "b")
    event = work.receive()
    handler = handler_of(work, nothing)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work.sqs, "send_message_batch", kill)
        with pytest.raises(Killed):
            handler(event, Context())
    assert not acked(functions)
    handler(event, Context())
    assert acked(functions) == 3


def kill(**_):
    raise Killed


def test_a_function_that_is_killed_in_the_midst_of_a_batch_repeats_it(work, functions):
    work.start("a", "b", "c")
    event = work.receive()

    def die(record, step):
        if record.json_body["name"] == "b":
            raise Killed

    with pytest.raises(Killed):
        handler_of(work, die)(event, Context())
    assert not acked(functions)
    handler_of(work, nothing)(event, Context())
    assert acked(functions) == 4


def test_a_batch_whose_response_was_lost_counts_once(work, functions):
    work.start("a", "b")
    event = work.receive()
    handler = handler_of(work, nothing)
    handler(event, Context())  # sent, and killed before the response
    handler(event, Context())
    assert acked(functions) == 3
    handler({"Records": event["Records"][1:]}, Context())
    functions.deliver()
    assert functions.events() == {}


def test_a_message_that_comes_twice_in_a_batch_counts_once(work, functions):
    work.start("a", "b")
    records = work.receive()["Records"]
    handler = handler_of(work, nothing)
    assert failures(handler({"Records": [records[0], records[0]]}, Context())) == []
    assert not acked(functions)
    assert failures(handler({"Records": [*records, records[1]]}, Context())) == []
    assert acked(functions) == 3


def test_messages_whose_steps_cannot_be_sent_fail(work, functions):
    work.start("a", "b")
    event = work.receive()
    untracked = {**event["Records"][0], "messageId": "untracked", "messageAttributes": {}}
    event["Records"].append(untracked)
    handler = handler_of(work, nothing)
    with failing("SendMessageBatch", "AccessDenied", status=403):
        response = handler(event, Context())
    assert failures(response) == [one["messageId"] for one in event["Records"][:2]]
    assert not acked(functions)
    handler(redelivered(event, response), Context())
    assert acked(functions) == 3


def test_steps_that_were_sent_in_part_come_again_and_count_once(work, functions, monkeypatch):
    work.start("a", tag="one/t")
    work.start("b", tag="two/t")
    event, send = work.receive(), work.sqs.send_message_batch

    def send_first(*, QueueUrl, Entries):
        send(QueueUrl=QueueUrl, Entries=Entries[:1])
        rejected = [{"Id": one["Id"], "SenderFault": True} for one in Entries[1:]]
        return {"Failed": rejected}

    handler = handler_of(work, nothing)
    with monkeypatch.context() as patch:
        patch.setattr(work.sqs, "send_message_batch", send_first)
        with pytest.raises(BatchProcessingError):
            handler(event, Context())
    functions.deliver()
    assert functions.events().keys() == {"one/t"}
    assert handler(event, Context()) == {"batchItemFailures": []}
    assert acked(functions, "two/t") == 2


def test_a_batch_that_fails_as_a_whole_raises(work, functions):
    """Lambda counts an error then, and an alarm can see it."""
    work.start("a", "b")
    event = work.receive()
    handler = handler_of(work, nothing)
    broken = failing("SendMessageBatch", "AccessDenied", status=403)
    with broken, pytest.raises(BatchProcessingError) as raised:
        handler(event, Context())
    assert {kind for kind, *_ in raised.value.child_exceptions} == {SendError}
    processor = BatchProcessor(EventType.SQS, raise_on_entire_batch_failure=False)
    with failing("SendMessageBatch", "AccessDenied", status=403):
        response = handler_of(work, nothing, processor=processor)(event, Context())
    assert len(failures(response)) == 2
    handler(event, Context())
    assert acked(functions) == 3


def test_a_fifo_queue_keeps_its_order_when_steps_cannot_be_sent(work, functions):
    work.start("a", "b", "c")
    event, done = work.receive(), []

    def handle(record, step):
        done.append(name := record.json_body["name"])
        if name == "c" and done.count(name) == 1:
            raise OSError

    handler = handler_of(work, handle, processor=SqsFifoPartialProcessor())
    with failing("SendMessageBatch", "AccessDenied", status=403), suppress(BatchProcessingError):
        assert len(failures(handler(event, Context()))) == 3
    handler(event, Context())
    assert done == ["a", "b", "c"] * 2
    assert acked(functions) == 4


def test_children_that_a_handler_starts_belong_to_the_chain(work, functions):
    work.start("a", "b")

    def handle(record, step):
        if record.json_body.get("deep"):
            return
        fan_out(step, {("deep", n): {"deep": n + 1} for n in range(12)}, work.url, work.sqs)

    handler = handler_of(work, handle)
    assert failures(handler(work.receive(), Context())) == []
    assert not acked(functions)
    assert failures(handler(work.receive(), Context())) == []
    assert acked(functions) == 27


def test_a_fan_out_that_is_killed_midway_runs_again_and_counts_once(work, functions):
    with pytest.raises(Killed), work.tracker.step(work.tracker.start("t", timeout=60)) as step:
        fan_out(step, cut_off(15), work.url, work.sqs)
    handler, first = handler_of(work, nothing), work.receive()
    assert len(first["Records"]) == 10
    handler(first, Context())
    assert not acked(functions)
    work.start(*range(15))
    assert not acked(functions)
    handler(work.receive(), Context())
    assert acked(functions) == 16


def cut_off(count):
    for n in range(count):
        yield n, {"name": n}
    raise Killed


def test_messages_that_the_queue_rejects_stop_the_fan_out(work, functions):
    token = work.tracker.start("t", timeout=60)
    broken = failing("SendMessageBatch", "AccessDenied", times=1, status=403)
    with broken, pytest.raises(SendError), work.tracker.step(token) as step:
        fan_out(step, {"a": "1"}, work.url, work.sqs)
    functions.deliver()
    assert functions.item("t")["started"] == {"N": "1"}
    work.start("a")
    handler_of(work, nothing)(work.receive(), Context())
    assert acked(functions) == 2


def test_an_untracked_message_is_handled_without_a_step(work, functions):
    fan_out(None, {"a": "text", "b": {"json": 1}}, work.url, work.sqs)
    event, steps = work.receive(), []
    handler = handler_of(work, lambda record, step: steps.append(step))
    with counted_calls(work.sqs) as calls:
        assert failures(handler(event, Context())) == []
    assert steps == [None, None]
    assert calls == {}


def test_a_message_without_a_required_token_fails_alone(work, functions):
    work.start("a")
    event = work.receive()
    event["Records"].append({**event["Records"][0], "messageId": "m", "messageAttributes": {}})
    response = handler_of(work, nothing, required=True)(event, Context())
    assert failures(response) == ["m"]
    assert acked(functions) == 2


@pytest.mark.parametrize("token", ["", "no token", '{"v": 2}', '{"v": 1, "unit": "0"}'])
def test_an_invalid_token_fails_its_message_alone(work, functions, token):
    work.start("a")
    event, handled = work.receive(), []
    attribute = {"stringValue": token, "dataType": "String"}
    body = event["Records"][0]["body"]
    invalid = {"body": body, "messageId": "m", "messageAttributes": {"xorack": attribute}}
    event["Records"].append({**event["Records"][0], **invalid})
    processor = BatchProcessor(EventType.SQS)
    handler = handler_of(work, lambda *_: handled.append(1), processor=processor)
    assert failures(handler(event, Context())) == ["m"]
    assert [kind for kind, *_ in processor.exceptions] == [ArgumentError]
    assert handled == [1]
    assert acked(functions) == 2


@pytest.mark.parametrize(
    "event",
    [
        None,
        {},
        {"Records": [{"EventSource": "aws:sns", "Sns": {}}]},
        {"Records": [{"eventSource": "aws:s3", "s3": {}}]},
        {"Records": [None]},
    ],
)
def test_an_event_that_ignores_failures_is_rejected(work, event):
    with pytest.raises(ArgumentError, match="expected an SQS event"):
        handler_of(work, nothing)(event, Context())


def test_a_processor_with_a_model_is_rejected(work):
    with pytest.raises(ArgumentError, match="processor"):
        fan_in(work.tracker, processor=BatchProcessor(EventType.SQS, model=object))


def test_a_worker_deletes_what_it_finished(work, functions):
    """The loop of docs/fan-in.md."""
    work.start("a", "b", "c")
    seen = Counter()

    def poll():
        received = work.sqs.receive_message(
            QueueUrl=work.url, MaxNumberOfMessages=10, MessageAttributeNames=["xorack"]
        )
        done = []
        with work.tracker.batch():
            for message in received.get("Messages", []):
                with suppress(OSError), step_of(work.tracker, message):
                    seen[name := json.loads(message["Body"])["name"]] += 1
                    if name == "b" and seen[name] == 1:
                        raise OSError("a bad day")
                    done.append(message)
        for message in done:
            work.sqs.delete_message(QueueUrl=work.url, ReceiptHandle=message["ReceiptHandle"])
        for message in received.get("Messages", []):
            if message not in done:
                work.sqs.change_message_visibility(
                    QueueUrl=work.url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
                )

    poll()
    assert not acked(functions)
    poll()
    assert acked(functions) == 4
    assert seen == {"a": 1, "b": 2, "c": 1}


def test_the_event_names_the_message_that_was_lost(work, functions, monkeypatch):
    work.start(*(f"line {n}" for n in range(50)))

    def handle(record, step):
        if record.json_body["name"] == "line 17":
            raise OSError

    handler_of(work, handle)(work.receive(), Context())
    functions.deliver()
    advance_clock(monkeypatch, 100)
    functions.sweep()
    detail = functions.events()["t"]
    assert (detail["status"], detail["outstanding_complete"]) == ("failed", True)
    names = names_of(detail, (f"line {n}" for n in range(50)))
    assert [*names.values()] == ["line 17"]
