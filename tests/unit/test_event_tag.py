"""Tokens and tags of events, in each form in which they arrive."""

import json
import re

import pytest

from xorack import Tracker, event_tag, step_of, token_of
from xorack.core.errors import ArgumentError
from xorack.core.request import validate_tag

S3 = {
    "eventSource": "aws:s3",
    "s3": {
        "bucket": {"name": "files"},
        "object": {"key": "in+box/caf%C3%A9%2B.txt", "sequencer": "0055AED6DCD90281E5"},
    },
}
OBJECT = {
    "id": "e-1",
    "source": "aws.s3",
    "detail-type": "Object Created",
    "detail": {
        "bucket": {"name": "files"},
        "object": {"key": "in box/café+.txt", "sequencer": "0055AED6DCD90281E5"},
    },
}
S3_TAG = "files/in box/café+.txt/0055AED6DCD90281E5"


def event(**detail):
    return {"id": "e-1", "source": "my.shop", "detail-type": "order", "detail": detail}


def sqs(body, **attributes):
    attributes = {name: {"stringValue": text} for name, text in attributes.items()}
    body = body if isinstance(body, str) else json.dumps(body)
    return {"messageId": "m-1", "receiptHandle": "r", "body": body, "messageAttributes": attributes}


def received(body, **attributes):
    attributes = {name: {"StringValue": text} for name, text in attributes.items()}
    return {"MessageId": "m-1", "ReceiptHandle": "r", "Body": body, "MessageAttributes": attributes}


def envelope(message, **attributes):
    attributes = {name: {"Type": "String", "Value": text} for name, text in attributes.items()}
    message = message if isinstance(message, str) else json.dumps(message)
    return {
        "Type": "Notification",
        "MessageId": "n-1",
        "Message": message,
        "MessageAttributes": attributes,
    }


def records(*entries):
    return {"Records": list(entries)}


def sns(message, **attributes):
    return {"EventSource": "aws:sns", "Sns": envelope(message, **attributes)}


@pytest.mark.parametrize(
    ("message", "tag"),
    [
        (S3, S3_TAG),
        (sqs(OBJECT), S3_TAG),
        (records(sqs(envelope(records(S3)))), S3_TAG),
        # What a function of SNS could not handle, by its dead-letter queue.
        (records(sqs(records(sns(records(S3))))), S3_TAG),
        ({**OBJECT, "detail": {**OBJECT["detail"], "object": {"key": "k"}}}, "aws.s3/e-1"),
        *(
            ({**OBJECT, "detail": detail}, "aws.s3/e-1")
            for detail in ({"eventName": "PutObject"}, {"object": 5}, {"object": {}}, {}, None)
        ),
        (sqs(event(order=1)), "my.shop/e-1"),
        (records(sns("text")), "sns/n-1"),
        (sqs(envelope("text")), "sns/n-1"),
        *(
            (sqs(one), "sqs/m-1")
            for one in ("text", {"order": 1}, {"detail-type": "gift"}, {"s3": {}})
        ),
        (sqs({"s3": {"object": 5}}), "sqs/m-1"),
        # Two messages with one tag would be one chain.
        *(
            (sqs({"detail-type": "gift", "source": "my.shop", "id": one}), "sqs/m-1")
            for one in (None, 5, ["e-1"])
        ),
        (sqs('{"detail-type": 1, "source": "\\ud800", "id": 1}'), "sqs/m-1"),
        (sqs(records(S3, S3)), "sqs/m-1"),  # a chain for all of its records
        (received("text"), "sqs/m-1"),
        ({"eventSource": "aws:sqs", "messageId": "m-1", "body": "text"}, "sqs/m-1"),
    ],
)
def test_the_tag_names_the_innermost_event(message, tag):
    assert event_tag(message) == tag


def test_a_long_key_leaves_a_tag_of_its_own():
    def tag(key):
        entry = {"key": key, "sequencer": "00AF"}
        return event_tag({**OBJECT, "detail": {"bucket": {"name": "b" * 63}, "object": entry}})

    key = "é" * 512  # S3's limit in bytes
    tags = {tag(key), tag(key[:-1] + "e"), tag("e" + key[1:])}
    assert len(tags) == 3
    for one in tags:
        assert len(validate_tag(one).encode()) in (1023, 1024)


TEST_EVENT = {
    "Service": "Amazon S3",
    "Event": "s3:TestEvent",
    "Time": "2026-01-31T12:00:00.000Z",
    "Bucket": "orders",
    "RequestId": "5582815E1AEA5ADF",
    "HostId": "8cLeGAmw098X5cv4Zkwcmo8vvZa3eH3eKxsPzbB9wrR",
}


@pytest.mark.parametrize("wrap", [lambda one: one, sqs, envelope, lambda one: sqs(envelope(one))])
def test_the_event_by_which_s3_tests_a_notification_starts_no_chain(wrap):
    assert event_tag(wrap(TEST_EVENT)) is None


@pytest.fixture(scope="module")
def token():
    tracker = Tracker("https://queue")
    tracker._send = lambda *requests: None
    return tracker.start("t")


ATTRIBUTES = [
    lambda token: received("text", xorack=str(token)),
    lambda token: sqs({"xorack": "not looked at"}, xorack=str(token)),
    lambda token: records(sns("text", xorack=str(token))),
]
BODIES = [
    lambda token: received(json.dumps({"xorack": str(token)})),
    lambda token: records(sns({"xorack": token.to_json()})),
    lambda token: sqs(envelope("text", xorack=str(token))),
    lambda token: event(order=1, xorack=token.to_json()),
    lambda token: sqs(envelope(event(xorack=str(token)))),
    lambda token: sqs(records(sns("text", xorack=str(token)))),
    lambda token: {"xorack": token.to_json()},
]


@pytest.mark.parametrize("form", [*ATTRIBUTES, *BODIES])
def test_a_token_is_found_in_the_attribute_or_where_the_caller_asks_for_it_in_the_body(token, form):
    assert token_of(form(token), bodies=True) == token
    assert token_of(form(token)) == (token if form in ATTRIBUTES else None)


def test_a_message_that_was_received_without_its_attributes_says_what_to_add(caplog):
    """receive_message gives no attribute by default: then each message seems to have no token."""
    message = {"MessageId": "m", "ReceiptHandle": "r", "Body": "text"}
    tracker = Tracker("https://queue")
    with step_of(tracker, message) as step:
        assert step is None
    hint = r'receive_message gives it with MessageAttributeNames=\["xorack"\]'
    assert re.search(hint, caplog.text)
    with pytest.raises(ArgumentError, match=hint):
        step_of(tracker, message, required=True)
    caplog.clear()
    step_of(tracker, {**message, "MessageAttributes": {}})
    assert "not tracked" in caplog.text
    assert "receive_message" not in caplog.text
