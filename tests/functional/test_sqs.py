"""Requests and dead letters over embedded SQS."""

import json
from threading import Barrier
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from botocore.exceptions import ClientError

from tests.support.faults import failing
from tests.support.functions import receive_bodies
from xorack.acker.parallel import Workers
from xorack.aws.client import CONFIG, BoundedClient
from xorack.aws.retry import RetryPolicy
from xorack.aws.sqs import make_message, send, send_messages, send_rejected
from xorack.core.budget import Budget
from xorack.core.errors import ArgumentError, SendError
from xorack.core.message import Rejected, parse
from xorack.core.request import Request
from xorack.core.stamp import traced

FAST = RetryPolicy(attempts=6, sleep=lambda seconds: None)


@pytest.fixture
def client(aws):
    return aws.client("sqs", config=CONFIG)


def stamps(count):
    return [Request.stamp_("t", f"s{n}", traced(n + 1), started=1) for n in range(count)]


@pytest.mark.parametrize(("size", "calls"), [(1 << 19, [2, 1]), ((1 << 19) + 1, [1, 1, 1])])
def test_the_messages_of_a_call_have_at_most_one_mebibyte(size, calls):
    client = SimpleNamespace(batches=[])
    client.send_message_batch = lambda QueueUrl, Entries: client.batches.append(Entries) or {}
    report = send_messages("url", [make_message("x" * size)] * 3, client)
    assert (report.messages, report.bytes) == (3, 3 * size)
    assert [len(batch) for batch in client.batches] == calls


def test_nothing_to_send_makes_no_call(aws, client):
    with failing("SendMessageBatch", "AccessDenied", times=9) as left:
        assert send(aws.queue_url, [], client).messages == 0
        assert send_rejected(aws.dead_letter_queue_url, client, []) == []
        assert left == [9]


@pytest.mark.parametrize(("senders_fault", "calls"), [(False, [5, 4, 3]), (True, [5])])
def test_failed_entries_are_sent_again_unless_they_are_invalid(aws, client, senders_fault, calls):
    real = client.send_message_batch
    sizes = []

    def some_fail(QueueUrl, Entries):
        sizes.append(len(Entries))
        if len(sizes) > 2:
            return real(QueueUrl=QueueUrl, Entries=Entries)
        failed = {"Code": "Fault", "Message": "m", "SenderFault": senders_fault}
        response = real(QueueUrl=QueueUrl, Entries=Entries[:1])
        return response | {"Failed": [{**failed, "Id": entry["Id"]} for entry in Entries[1:]]}

    client.send_message_batch = some_fail
    arguments = {"max_bytes": 4000, "policy": FAST}
    if senders_fault:
        with pytest.raises(SendError, match="Fault: m") as caught:
            send(aws.queue_url, stamps(20), client, **arguments)
        unsent = [request for body in caught.value.unsent for request in parse(body).requests]
        assert unsent == stamps(20)[-len(unsent) :]
        assert len(caught.value.unsent) == 4
    else:
        assert send(aws.queue_url, stamps(20), client, **arguments).messages == 5
    assert sizes == calls
    assert len(receive_bodies(aws, aws.queue_url)) == (1 if senders_fault else 5)


THROTTLED = [
    "KMS.ThrottlingException",
    "KmsThrottled",
    "RequestThrottled",
    "AWS.SimpleQueueService.RequestThrottled",
    "RequestThrottledException",
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "TooManyRequestsException",
    "SlowDown",
    "RequestLimitExceeded",
    "LimitExceededException",
    "BandwidthLimitExceeded",
    "PriorRequestNotComplete",
    "ServiceUnavailable",
    "InternalError",
    "InternalFailure",
    "RequestTimeout",
]
"""What SQS, the services behind it, and botocore's list of retries call throttling or an outage."""


@pytest.mark.parametrize("code", THROTTLED)
def test_what_is_throttled_is_sent_again_whether_the_call_or_an_entry_fails(code):
    error = ClientError({"Error": {"Code": code, "Message": "m"}}, "SendMessageBatch")
    entry = {"Id": "0", "Code": code, "Message": "m", "SenderFault": True}
    client = MagicMock()
    client.send_message_batch.side_effect = [error, {"Failed": [entry]}, error, {}]
    assert send("url", stamps(1), client, policy=FAST).messages == 1
    assert client.send_message_batch.call_count == 4


def test_the_error_names_an_invalid_queue(client):
    with pytest.raises(SendError, match=r"no-such-queue.*NonExistentQueue"):
        send("https://sqs.eu-west-1.amazonaws.com/1/no-such-queue", stamps(1), client)
    with pytest.raises(ArgumentError, match="queue_url"):
        send("", stamps(1), client)


@pytest.mark.parametrize("wrong", ['{"action": "create"}', {"action": "create"}, 5, [{}], [5]])
def test_what_is_no_request_is_named_and_not_sent(aws, client, wrong):
    with pytest.raises(ArgumentError, match=r"^requests: .*, expected "):
        send(aws.queue_url, wrong, client)
    assert receive_bodies(aws, aws.queue_url) == []


def test_dead_lettered_messages_carry_their_reason_and_their_origin(aws, client):
    origin = {"sent_at": 1_700_000_000_000, "message_id": "m", "sender": "AROA:loader"}
    rejected = [
        Rejected(f'{{"n":{n}}}', f"field{n}: bad é\u2028\n", **(origin if n % 2 else {}))
        for n in range(23)
    ]
    assert send_rejected(aws.dead_letter_queue_url, client, rejected) == []
    messages = aws.dead_letters()
    assert len(messages) == 23
    for message in messages:
        number = json.loads(message["Body"])["n"]
        carried = {n: a["StringValue"] for n, a in message["MessageAttributes"].items()}
        reason = carried.pop("error")
        assert reason.startswith(f"field{number}: bad \\xe9")
        assert reason.isascii()
        assert carried == ({n: str(value) for n, value in origin.items()} if number % 2 else {})


def test_many_dead_lettered_messages_are_sent_side_by_side(aws, client):
    """One after the other, those of 100,000 malformed requests would take minutes."""
    rejected = [Rejected(f'{{"n":{n}}}', "bad") for n in range(55)]
    rejected.append(Rejected("x" * 1_000_000, "large"))
    together = Barrier(3)  # of the calls: each waits for two others
    wait = MagicMock(wraps=client)

    def send_together(**arguments):
        together.wait(600)
        return client.send_message_batch(**arguments)

    wait.send_message_batch = send_together
    call_all = Workers(3).map
    assert send_rejected(aws.dead_letter_queue_url, wait, rejected, FAST, call_all) == []
    assert len(aws.dead_letters()) == 56


def test_rejected_requests_for_which_no_time_is_left_are_returned(aws, client):
    left = iter([1.0, 0.5, 0.0, 0.0, -1.0, -1.0])  # of a call, and before another attempt
    bounded = BoundedClient(lambda: client, Budget(lambda: next(left)))
    rejected = [Rejected(f'{{"n":{n}}}', "bad") for n in range(35)]
    assert send_rejected(aws.dead_letter_queue_url, bounded, rejected) == list(range(20, 35))
    assert len(aws.dead_letters()) == 20


def test_rejected_requests_that_cannot_be_sent_are_returned(aws, client):
    rejected = [Rejected("a", "r"), Rejected("b", "r")]
    assert send_rejected(aws.dead_letter_queue_url + "x", client, rejected, FAST) == [0, 1]
