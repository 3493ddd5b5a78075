"""The events that Lambda makes from messages, and a wait for a condition."""

import time

from tests.support.functions import message
from xorack.core.request import Request
from xorack.core.stamp import traced

ATTRIBUTES = {"stringValue": "StringValue", "dataType": "DataType"}


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


def event(*bodies):
    records = [{"messageId": f"m{n}", "body": body} for n, body in enumerate(bodies)]
    return {"Records": records}


def creates(*tags):
    return [message(Request.create(tag, "c", traced(1))) for tag in tags]


def eventually(condition, seconds=600):
    """Poll until the condition holds, for a long time because machines may be busy."""
    deadline = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return holds
