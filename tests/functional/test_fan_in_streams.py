"""Fan-in over events as AWS's services send them: what fails blocks what is behind it."""

import base64
import copy
import json
from pathlib import Path

import pytest

from tests.functional.test_fan_in import acked, failures, nothing
from tests.support.faults import failing
from tests.support.functions import Context
from xorack import Tracker, fan_in, step_of, token_of
from xorack.aws.client import CONFIG
from xorack.aws.retry import RetryPolicy
from xorack.core.errors import ArgumentError

EVENTS = Path(__file__).parents[1] / "data" / "events"
ORDERED = ["kinesis", "dynamodb", "msk", "fifo"]
ALL = [*ORDERED, "kafka", "sqs"]


@pytest.fixture
def tracker(aws):
    policy = RetryPolicy(attempts=2, sleep=lambda seconds: None)
    return Tracker(aws.queue_url, aws.client("sqs", config=CONFIG), policy=policy)


def records_in(event):
    if "Records" in event:
        return event["Records"]
    return [record for partition in event["records"].values() for record in partition]


def with_token(record, token):
    """Put a token where a record of its service has it."""
    text = str(token)
    if "kinesis" in record:
        data = json.loads(base64.b64decode(record["kinesis"]["data"]))
        body = json.dumps(data | {"xorack": token.to_json()})
        record["kinesis"]["data"] = base64.b64encode(body.encode()).decode()
    elif "dynamodb" in record:
        record["dynamodb"]["NewImage"]["xorack"] = {"S": text}
    elif "topic" in record:
        # Java's bytes have a sign.
        numbers = [byte - 256 if byte > 127 else byte for byte in text.encode()]
        record["headers"].append({"xorack": numbers})
    else:
        record["messageAttributes"]["xorack"] = {"stringValue": text, "dataType": "String"}


def id_of(record):
    """Return the name that a service knows a record by."""
    if "kinesis" in record:
        return record["kinesis"]["sequenceNumber"]
    if "dynamodb" in record:
        return record["dynamodb"]["SequenceNumber"]
    if "topic" in record:
        return {"partition": f"{record['topic']}-{record['partition']}", "offset": record["offset"]}
    return record["messageId"]


def started(tracker, service, tag="é/t"):
    """Return a service's event, with the children of a chain's root as its tokens."""
    event = json.loads((EVENTS / f"{service}.json").read_text(encoding="utf-8"))
    with tracker.step(tracker.start(tag, timeout=60)) as step:
        for number, record in enumerate(records_in(event)):
            with_token(record, step.child(number))
    return event


def redelivered(event, response):
    """Return what Lambda sends again: of a queue what failed, of a shard all from there on."""
    failed = [entry["itemIdentifier"] for entry in response["batchItemFailures"]]
    again = copy.deepcopy(event)

    def left(records):
        first = next((n for n, one in enumerate(records) if id_of(one) in failed), len(records))
        return records[first:]

    if "records" in again:
        again["records"] = {name: left(part) for name, part in again["records"].items()}
    elif event["Records"][0]["eventSource"] == "aws:sqs":
        again["Records"] = [one for one in again["Records"] if id_of(one) in failed]
    else:
        again["Records"] = left(again["Records"])
    return again


class Worker:
    """Remembers the records that it saw; the first attempt of some fails."""

    def __init__(self, tracker, service, failing=()):
        self.seen, self.failing = [], [*failing]
        bodies = service == "kinesis"
        self.handler = fan_in(tracker, bodies=bodies)(self.handle)

    def handle(self, record, step):
        assert step is not None
        self.seen.append(id_of(record.raw_event))
        if self.seen[-1] in self.failing:
            self.failing.remove(self.seen[-1])
            raise OSError("a bad day")

    def __call__(self, event):
        return self.handler(event, Context())


@pytest.mark.parametrize("service", ALL)
def test_what_fails_blocks_what_is_behind_it_and_counts_once(tracker, functions, service):
    event = started(tracker, service)
    first, second, third = map(id_of, records_in(event))
    # Records of Kafka block those of their partition, messages of a standard queue none.
    behind = [third] if service in ORDERED else []
    worker = Worker(tracker, service, failing=[second])
    response = worker(event)
    assert failures(response) == [second, *behind]
    assert worker.seen == [first, second, *([third] if not behind else [])]
    assert not acked(functions, "é/t")
    assert functions.item("é/t")["finished"] == {"N": str(3 - len(behind))}
    assert worker(redelivered(event, response)) == {"batchItemFailures": []}
    assert worker.seen[len(worker.seen) - 1 - len(behind) :] == [second, *behind]
    worker(event)  # a shard is read again from its checkpoint: what was done counts once
    assert acked(functions, "é/t") == 4


def test_a_group_of_a_fifo_queue_does_not_block_another(tracker):
    event = started(tracker, "fifo")
    records_in(event)[1]["attributes"]["MessageGroupId"] = "2"
    ids = [*map(id_of, records_in(event))]
    assert failures(Worker(tracker, "fifo", failing=ids[:1])(event)) == [ids[0], ids[2]]


@pytest.mark.parametrize("service", ORDERED)
def test_steps_that_cannot_be_sent_take_what_is_behind_them_along(tracker, functions, service):
    """Also what made no request: it must not be done with before what is in front of it."""
    event = started(tracker, service)
    with_token_at = records_in(event)[1]
    for record in (records_in(event)[0], records_in(event)[2]):
        record.pop("messageAttributes", None)
        record.get("dynamodb", {}).get("NewImage", {}).pop("xorack", None)
        if "headers" in record:
            record["headers"].pop()
        if "kinesis" in record:
            record["kinesis"]["data"] = base64.b64encode(b"no JSON").decode()
    handler = fan_in(tracker, bodies=service == "kinesis")(nothing)
    with failing("SendMessageBatch", "AccessDenied", status=403):
        response = handler(event, Context())
    assert failures(response) == [id_of(one) for one in records_in(event)[1:]]
    assert failures(response)[0] == id_of(with_token_at)


@pytest.mark.parametrize("service", ALL)
def test_each_record_has_its_token_for_a_worker_of_another_kind(tracker, service):
    event = started(tracker, service)
    for number, record in enumerate(records_in(event)):
        token = token_of(record, bodies=service == "kinesis")
        with step_of(tracker, record, bodies=service == "kinesis", required=True) as step:
            assert step.tokens == (token,)
        assert token == tracker.step(tracker.start("é/t")).child(number)


def test_the_data_of_a_stream_is_a_body(tracker):
    """By default what a customer may have written holds no token."""
    with pytest.raises(ArgumentError, match="bodies: False, expected True: a record of Kinesis"):
        fan_in(tracker)(nothing)(started(tracker, "kinesis"), Context())
    (record, *_) = records_in(started(tracker, "msk"))
    token = token_of(record)
    assert token.tags == ("é/t",)
    record["headers"] = []
    body = json.dumps({"xorack": token.to_json()}).encode()
    record["value"] = base64.b64encode(body).decode()
    assert token_of(record) is None
    assert token_of(record, bodies=True) == token


@pytest.mark.parametrize("value", ["text", [300.5], [], [123, 125], {"a": 1}])
def test_a_header_that_holds_no_token_fails_its_record(tracker, value):
    event = started(tracker, "msk")
    records_in(event)[2]["headers"].append({"xorack": value})
    response = fan_in(tracker)(nothing)(event, Context())
    assert failures(response) == [id_of(records_in(event)[2])]


def test_a_removed_item_finishes_nothing(tracker):
    event = started(tracker, "dynamodb")
    change = records_in(event)[0]["dynamodb"]
    change["OldImage"] = change.pop("NewImage")
    assert token_of(records_in(event)[0]) is None


def test_a_pipe_gives_its_records_alone(tracker, functions):
    """EventBridge Pipes call a function with an array, and read the same answer."""
    for kind in ("sqs", "dynamodb"):
        tokens = [tracker.start(f"{kind}/{n}", timeout=60) for n in range(2)]
        event = json.loads((EVENTS / f"{kind}.json").read_text(encoding="utf-8"))
        records = [copy.deepcopy(event["Records"][0]) for _ in tokens]
        for number, (record, token) in enumerate(zip(records, tokens, strict=True)):
            with_token(record, token)
            record.get("dynamodb", record)["SequenceNumber"] = record["messageId"] = str(number)

        def first_fails(record, step):
            if step.tokens[0].tags[0].endswith("/1"):
                raise ValueError

        assert failures(fan_in(tracker)(first_fails)(records, Context())) == ["1"]
        assert acked(functions, f"{kind}/0") == 1


@pytest.mark.parametrize("records", [[], [{"eventSource": "aws:kinesis", "data": ""}], ["a"]])
def test_another_array_is_refused_in_words(tracker, records):
    with pytest.raises(ArgumentError, match="or a pipe's records of SQS"):
        fan_in(tracker)(nothing)(records, Context())
