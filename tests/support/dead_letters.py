"""Messages in the dead-letter queue of a test."""

from collections.abc import Iterable

from tests.support.in_process import Resources
from xorack.core.message import pack
from xorack.core.request import Request


class Calls:
    """The calls of SQS, by name; what runs before a call may raise."""

    def __init__(self):
        self.names = []
        self.before = {}


def request(number, tag=None):
    return Request("stamp", tag or f"books/{number}", f"id-{number}", b"\1" * 8, 1)


def bodies(*numbers):
    return sorted(body for number in numbers for body in pack([request(number)]))


def string_attributes(**values):
    return {n: {"DataType": "String", "StringValue": value} for n, value in values.items()}


def put(aws: Resources, body: str, **attributes: str) -> str:
    """Send a message to the dead-letter queue; return its id."""
    url, values = aws.dead_letter_queue_url, string_attributes(**attributes)
    sent = aws.client("sqs").send_message(QueueUrl=url, MessageBody=body, MessageAttributes=values)
    return sent["MessageId"]


def put_messages(
    aws: Resources,
    *,
    failed: Iterable[int] = (),
    rejected: Iterable[int] = (),
    malformed: Iterable[int] = (),
) -> None:
    """Put messages of each kind: request numbers, or the invalid versions of the malformed."""
    for body in bodies(*failed):
        put(aws, body)
    for number in rejected:
        put(aws, *bodies(number), error=f"tag: 'books/{number}' already exists")
    for version in malformed:
        put(aws, "{}", error=f"version: {version}, expected 1")
