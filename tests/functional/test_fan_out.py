"""Fan-out to SQS, Kinesis and Kafka: each message has its child's token, and none is lost."""

import base64
import json
from types import SimpleNamespace

import pytest

from tests.functional.test_fan_in import nothing
from tests.support.functions import Context
from xorack import Tracker, fan_in, fan_out, token_of
from xorack.aws import kinesis
from xorack.aws.client import CONFIG
from xorack.aws.retry import RetryPolicy
from xorack.aws.sqs import message_group_id
from xorack.core.errors import ArgumentError, SendError
from xorack.core.hashing import child_id, unit_id

MESSAGES = {"a": {"n": 1}, ("b", 2): {"n": 2}}
UNITS = [child_id(unit_id("t"), "a"), child_id(unit_id("t"), "b", 2)]


@pytest.fixture
def tracker(aws):
    return Tracker(aws.queue_url, aws.client("sqs", config=CONFIG))


class Stream:
    """A client of Kinesis that does not accept the first record of some calls."""

    def __init__(self, rejects=0):
        self.rejects, self.calls = rejects, []

    def put_records(self, Records, StreamName):
        self.calls.append(Records)
        answers = [{"SequenceNumber": str(n), "ShardId": "shardId-0"} for n in range(len(Records))]
        if self.rejects:
            self.rejects -= 1
            answers[0] = {"ErrorCode": "ProvisionedThroughputExceededException"}
        return {"FailedRecordCount": 1, "Records": answers}


class Producer:
    """A producer of confluent-kafka; it keeps what it has not delivered."""

    def __init__(self, error=None, full=0, lost=0, only_errors=False):
        self.error, self.full, self.lost, self.sent, self.queue = error, full, lost, [], []
        self.only_errors = only_errors

    def produce(self, topic, value, *, key, headers, on_delivery):
        if self.full:
            self.full -= 1
            raise BufferError("Local: Queue full")
        self.queue.append(on_delivery)
        self.sent.append((topic, value, key, headers))

    def poll(self, seconds):
        return 0

    def flush(self, seconds):
        for delivered in self.queue[self.lost :]:
            if self.error or not self.only_errors:
                delivered(self.error, None)
        return self.lost


def test_a_fan_out_sends_text_as_it_is_other_bodies_as_json_and_all_in_one_group(tracker):
    calls = []
    client = SimpleNamespace(send_message_batch=lambda **call: calls.append(call) or {})
    with tracker.step(tracker.start("t")) as step:
        messages = [("a", "text"), (("b", 1), {"n": 1}), *((n, "") for n in range(10))]
        assert fan_out(step, messages, "https://work", client, group="t 1") == 12
        again = [step.tokens[0].unit, "b", 1]
    entries = [entry for call in calls for entry in call["Entries"]]
    assert [len(call["Entries"]) for call in calls] == [10, 2]
    assert [entry["MessageBody"] for entry in entries[:3]] == ["text", '{"n": 1}', ""]
    assert {entry["MessageGroupId"] for entry in entries} == {message_group_id("t 1")}
    token = json.loads(entries[1]["MessageAttributes"]["xorack"]["StringValue"])
    assert int(token["unit"], 16) == child_id(*again)


@pytest.mark.parametrize("place", ["StreamName", "StreamARN"])
def test_what_kinesis_accepts_finishes_its_unit(tracker, functions, aws, place):
    client = aws.client("kinesis", config=CONFIG)
    client.create_stream(StreamName="work", ShardCount=1)
    stream = client.describe_stream(StreamName="work")["StreamDescription"][place]
    with tracker.step(tracker.start("t")) as step:
        fan_out(step, MESSAGES, stream=stream, client=client, group="one key")
    shard = client.get_shard_iterator(
        StreamName="work", ShardId="shardId-000000000000", ShardIteratorType="TRIM_HORIZON"
    )
    found = client.get_records(ShardIterator=shard["ShardIterator"])["Records"]
    assert {one["PartitionKey"] for one in found} == {"one key"}
    records = [
        {
            "eventSource": "aws:kinesis",
            "eventID": f"shardId-0:{one['SequenceNumber']}",
            "kinesis": {"data": base64.b64encode(one["Data"]).decode()},
        }
        for one in found
    ]
    fan_in(tracker, bodies=True, required=True)(nothing)({"Records": records}, Context())
    functions.deliver()
    assert functions.events()["t"]["finished"] == 3


def test_records_that_kinesis_does_not_accept_are_sent_again_alone(monkeypatch, tracker):
    policy = RetryPolicy(attempts=3, sleep=lambda seconds: None)
    monkeypatch.setattr(kinesis, "RetryPolicy", lambda attempts: policy)
    client = Stream(rejects=1)
    assert fan_out(None, MESSAGES, stream="work", client=client) == 2
    assert [len(call) for call in client.calls] == [2, 1]
    with pytest.raises(SendError, match="stream work: 1 records not sent: ProvisionedThroughput"):
        fan_out(None, MESSAGES, stream="work", client=Stream(rejects=9))


def test_calls_of_kinesis_keep_within_its_limits():
    client = Stream()
    assert fan_out(None, ((n, {"n": n}) for n in range(501)), stream="s", client=client) == 501
    assert [len(call) for call in client.calls] == [500, 1]
    assert [one["PartitionKey"] for one in client.calls[0][:2]] == ["0", "1"]
    client = Stream()
    fan_out(None, ((n, {"n": "x" * 1_000_000}) for n in range(6)), stream="s", client=client)
    assert [len(call) for call in client.calls] == [5, 1]


def test_messages_of_kafka_have_their_token_in_a_header(tracker):
    producer = Producer(full=2)
    with tracker.step(tracker.start("t")) as step:
        assert fan_out(step, MESSAGES, topic="work", client=producer, group="key") == 2
    assert [(topic, json.loads(value), key) for topic, value, key, _ in producer.sent] == [
        ("work", {"n": 1}, "key"),
        ("work", {"n": 2}, "key"),
    ]
    tokens = [
        token_of({"topic": "work", "headers": [{"xorack": [*headers["xorack"]]}]})
        for *_, headers in producer.sent
    ]
    assert [token.unit for token in tokens] == UNITS
    silent = Producer(only_errors=True)
    assert fan_out(None, {"a": 1, "b": 2}, topic="work", client=silent) == 2
    fan_out(None, {"a": "text"}, topic="work", client=producer)
    assert producer.sent[-1] == ("work", b"text", None, None)


@pytest.mark.parametrize(
    ("producer", "why"),
    [
        (Producer(error="Broker: Message size too large"), "2 of 2 .* Message size too large"),
        (Producer(lost=1), "1 of 2 messages not sent: no answer in 60 seconds"),
        (Producer(lost=1, only_errors=True), "1 of 2 messages not sent: no answer in 60 seconds"),
        (Producer(error="Broker: x", only_errors=True), "2 of 2 messages not sent: Broker: x"),
    ],
)
def test_messages_that_kafka_does_not_accept_stop_the_fan_out(tracker, functions, producer, why):
    with (
        pytest.raises(SendError, match=f"topic work: {why}"),
        tracker.step(tracker.start("t")) as step,
    ):
        fan_out(step, MESSAGES, topic="work", client=producer)
    functions.deliver()
    assert functions.item("t")["started"] == {"N": "1"}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "queue_url: .*expected one of queue_url, stream and topic"),
        ({"queue_url": "https://q", "topic": "t"}, "expected one of queue_url, stream and topic"),
        ({"topic": "t"}, "client: None, expected a Producer of confluent-kafka"),
        ({"stream": "s", "client": Stream()}, "messages: 'text', expected a mapping"),
    ],
)
def test_a_place_that_cannot_take_messages_is_refused_in_words(arguments, why):
    with pytest.raises(ArgumentError, match=why):
        fan_out(None, {"a": "text"}, **arguments)
