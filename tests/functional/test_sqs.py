"""Sending requests and dead letters over embedded SQS."""

import json

import pytest

from tests.support.faults import answers_lost, refused
from xorack.aws.client import CONFIG
from xorack.aws.sqs import DeadLetterQueue, send
from xorack.core.errors import InvalidRequest, SendFailed
from xorack.core.message import Rejected, parse
from xorack.core.request import Request
from xorack.core.retry import RetryPolicy
from xorack.core.stamp import traced

FAST = RetryPolicy(attempts=6, base=0.001, cap=0.002)


@pytest.fixture
def client(aws):
    return aws.client("sqs", config=CONFIG)


def received(aws, queue_url):
    return [message["Body"] for message in aws.receive_all(queue_url)]


def stamps(count):
    return [Request.stamp_("t", f"s{n}", traced(n + 1), started=1) for n in range(count)]


def test_requests_arrive_packed(aws, client):
    requests = stamps(2000)
    report = send(aws.queue_url, iter(requests), client)
    assert report.requests == 2000
    assert report.messages <= 9
    bodies = received(aws, aws.queue_url)
    assert len(bodies) == report.messages
    arrived = [request for body in bodies for request in parse(body).requests]
    assert sorted(r.id for r in arrived) == sorted(r.id for r in requests)
    assert report.bytes == sum(map(len, bodies))


def test_nothing_to_send_is_no_call(aws, client):
    with refused("SendMessageBatch", "AccessDenied", times=9) as left:
        assert send(aws.queue_url, [], client).messages == 0
        assert left == [9]


def test_failed_entries_are_sent_again(aws, client):
    real = client.send_message_batch
    calls = []

    def some_fail(QueueUrl, Entries):
        calls.append(len(Entries))
        if len(calls) <= 2:
            good, bad = Entries[:1], Entries[1:]
            answer = real(QueueUrl=QueueUrl, Entries=good)
            answer["Failed"] = [
                {"Id": e["Id"], "Code": "InternalError", "Message": "m", "SenderFault": False}
                for e in bad
            ]
            return answer
        return real(QueueUrl=QueueUrl, Entries=Entries)

    client.send_message_batch = some_fail
    report = send(aws.queue_url, stamps(20), client, max_bytes=4000, policy=FAST)
    assert calls[:3] == [5, 4, 3]
    assert len(received(aws, aws.queue_url)) == report.messages == 5


def test_what_is_never_accepted_is_named(aws, client):
    with (
        refused("SendMessageBatch", "ServiceUnavailable", times=99, status=503),
        pytest.raises(SendFailed, match=r"ServiceUnavailable.*") as caught,
    ):
        send(aws.queue_url, stamps(3), client, policy=FAST)
    (body,) = caught.value.unsent
    assert parse(body).requests == stamps(3)


def test_a_queue_that_does_not_exist_is_named(client):
    with pytest.raises(SendFailed, match=r"no-such-queue.*NonExistentQueue"):
        send("https://sqs.eu-west-1.amazonaws.com/1/no-such-queue", stamps(1), client)
    with pytest.raises(InvalidRequest, match="queue_url"):
        send("", stamps(1), client)


def test_an_answer_lost_sends_twice_and_says_so_by_the_same_ids(aws, client):
    with answers_lost("SendMessageBatch", 1):
        send(aws.queue_url, stamps(1), client)
    first, second = received(aws, aws.queue_url)
    assert first == second


def test_dead_letters_carry_their_reason(aws, client):
    letters = [Rejected(f'{{"n":{n}}}', f"field{n}: bad é\u2028\n") for n in range(23)]
    assert DeadLetterQueue(aws.dead_letter_queue_url, client).send(letters) == []
    arrived = aws.dead_letters()
    assert len(arrived) == 23
    for letter in arrived:
        number = json.loads(letter["Body"])["n"]
        reason = letter["MessageAttributes"]["error"]["StringValue"]
        assert reason.startswith(f"field{number}: bad \\xe9")
        assert reason.isascii()


def test_letters_that_there_is_no_time_for_are_told_and_those_before_are_sent(aws, client):
    left = iter([1.0, 0.5, 0.0, -1.0])
    policy = RetryPolicy(time_left=lambda: next(left))
    letters = [Rejected(f'{{"n":{n}}}', "bad") for n in range(35)]
    queue = DeadLetterQueue(aws.dead_letter_queue_url, client, policy=policy)
    assert queue.send(letters) == list(range(20, 35))
    assert len(aws.dead_letters()) == 20


def test_dead_letters_that_cannot_be_sent_are_told(aws, client):
    letters = [Rejected("a", "r"), Rejected("b", "r")]
    gone = DeadLetterQueue(aws.dead_letter_queue_url + "x", client, policy=FAST)
    assert gone.send(letters) == [0, 1]
    assert DeadLetterQueue(aws.dead_letter_queue_url, client).send([]) == []
