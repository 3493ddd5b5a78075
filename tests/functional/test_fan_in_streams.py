"""Fan-in over events as AWS's services send them: a failed record blocks the records behind it."""

import base64
import json
from pathlib import Path

import pytest

from tests.functional.test_fan_in import failures, nothing
from tests.support.faults import failing
from tests.support.functions import Context
from xorack import Tracker, fan_in, token_of
from xorack.aws.client import CONFIG
from xorack.aws.retry import RetryPolicy
from xorack.core.errors import ArgumentError

EVENTS = Path(__file__).parents[1] / "data" / "events"
ORDERED = ["kinesis", "dynamodb", "msk", "fifo"]


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


@pytest.mark.parametrize("service", ORDERED)
def test_steps_that_cannot_be_sent_take_what_is_behind_them_along(tracker, functions, service):
    """A record without a request fails, too: it must not succeed before those in front of it."""
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


def test_the_data_of_a_stream_is_a_body(tracker):
    """By default, data that a customer may have written holds no token."""
    with pytest.raises(
        ArgumentError, match="bodies: False, expected True, because a Kinesis record"
    ):
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
