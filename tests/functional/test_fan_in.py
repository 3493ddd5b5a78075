"""Fan-in: a batch of messages finishes its units once, wherever its function is killed."""

import sys
from collections import Counter
from threading import Barrier
from types import SimpleNamespace

import pytest

from tests.support.events import record_of
from tests.support.fakes import FakeQueue
from tests.support.faults import counted_calls, failing
from tests.support.functions import Context
from tests.support.threads import in_threads
from xorack import Token, Tracker, fan_in, fan_out
from xorack.aws.client import CONFIG
from xorack.aws.retry import RetryPolicy
from xorack.core.errors import ArgumentError


class Killed(BaseException):
    """The end of the process: no handler of exceptions sees it."""


class Work:
    """A queue of work with visibility time-outs that never end by themselves, and its producer."""

    def __init__(self, aws):
        self.sqs = aws.client("sqs", config=CONFIG)
        self.tracker = Tracker(
            aws.queue_url, self.sqs, policy=RetryPolicy(attempts=2, sleep=lambda seconds: None)
        )
        self.table_name = self.tracker.table_name = aws.table_name
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


def acked(functions, tag="t"):
    """Deliver all messages to the acker; return how many units of an acked chain are finished."""
    functions.deliver()
    assert functions.aws.dead_letters() == []
    event = functions.events().get(tag)
    return event and event["status"] == "acked" and event["finished"]


def test_one_message_to_the_acker_finishes_a_batch(work, functions):
    work.start(*range(10))
    functions.deliver()
    event, done = work.receive(), []
    handler = handler_of(work, lambda record, step: done.append(record.json_body["name"]))
    with counted_calls(work.sqs) as calls:
        assert handler(event, Context()) == {"batchItemFailures": []}
    assert calls == Counter(SendMessageBatch=1)
    assert sorted(done) == [*range(10)]
    assert len(functions.deliver()) == 1
    assert functions.events()["t"]["finished"] == 11


def test_records_without_a_token_fail_if_their_requests_cannot_be_sent(work, functions):
    """A notification that starts a chain is gone otherwise, with its create."""
    work.start("tracked")
    event = work.receive()
    of_s3, silent, raises = (
        {**event["Records"][0], "messageId": name, "messageAttributes": {}, "body": name}
        for name in ("of S3", "silent", "raises")
    )
    batch = {"Records": [of_s3, silent, *event["Records"], raises]}

    def handle(record, step):
        if step is None and record.message_id != "silent":
            with work.tracker.step(work.tracker.start(record.message_id, timeout=60)):
                pass
        if record.message_id == "raises":
            raise OSError

    handler = handler_of(work, handle)
    with failing("SendMessageBatch", "AccessDenied", status=403):
        failed = failures(handler(batch, Context()))
    assert sorted(failed) == sorted(["of S3", event["Records"][0]["messageId"], "raises"])
    assert failures(handler(batch, Context())) == ["raises"]
    functions.deliver()
    assert functions.events().keys() == {"of S3", "t", "raises"}


@pytest.mark.parametrize("messages", [["a"], "ab", [("a", 1, 2)], {"a"}])
def test_messages_without_names_are_refused_in_words(work, messages):
    with pytest.raises(ArgumentError, match=r"messages: .*expected .*pairs"):
        fan_out(None, messages, work.url, work.sqs)


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


@pytest.fixture
def clock(monkeypatch):
    """The clock of what is known of ended chains, in seconds."""
    fake = SimpleNamespace(now=0.0)
    fake.monotonic = lambda: fake.now
    monkeypatch.setattr("xorack.client.fan_in.time", fake)
    return fake


def test_a_message_of_several_chains_is_skipped_when_all_have_ended(work, functions, clock):
    roots = [work.tracker.start(tag, timeout=60) for tag in ("one", "two")]
    with work.tracker.step(*roots) as step:
        fan_out(step, {"a": "text"}, work.url, work.sqs)
    work.tracker.fail(roots[0], "no more")
    functions.deliver()
    event, handled = work.receive(), []
    handler = handler_of(work, lambda *_: handled.append(clock.now), skip_ended=True)
    handler(event, Context())
    functions.deliver()
    for clock.now in (9, 11):
        handler(event, Context())
    assert handled == [0, 9], "what was read counts for ten seconds"


@pytest.mark.parametrize("operation", ["DescribeTable", "GetItem"])
def test_a_table_that_does_not_answer_holds_up_no_work(work, functions, clock, operation):
    work.start(*"abc")
    functions.deliver()
    handler = handler_of(work, nothing, skip_ended=True)
    with failing(operation, "ThrottlingException") as left:
        assert failures(handler(work.receive(), Context())) == []
    assert left == [97], "two attempts of the first message; the others do not ask"
    assert acked(functions) == 4


def test_threads_share_a_handler_and_each_call_answers_for_its_own_event():
    together, sent = Barrier(2), FakeQueue()

    def handle(record, step):
        together.wait(600)
        if record.message_id.endswith(record.body):
            raise ValueError

    handler = fan_in(Tracker("queue", sent))(handle)

    def call(last):
        token = str(Token(last + 1, ("t",)))
        records = [
            record_of(
                {
                    "MessageId": f"{last}-{number}{number % 3}",
                    "ReceiptHandle": "r",
                    "Body": str(last),
                    "MessageAttributes": {"xorack": {"StringValue": token, "DataType": "String"}},
                }
            )
            for number in range(60)
        ]
        return failures(handler({"Records": records}, Context()))

    expected = [[f"{last}-{n}{last}" for n in range(last, 60, 3)] for last in (0, 1)]
    assert in_threads(call, (0, 1)) == expected
    assert Counter(request["id"][-1] for request in sent.requests) == {"1": 40, "2": 40}


def test_without_powertools_the_decorator_says_what_to_install(work, monkeypatch):
    monkeypatch.setitem(sys.modules, "aws_lambda_powertools.utilities.batch", None)
    with pytest.raises(ModuleNotFoundError, match="with the extra fan-in"):
        fan_in(work.tracker)
