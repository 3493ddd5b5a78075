"""The in-process AWS neither loses updates nor delivers messages twice. Bare moto does both."""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import reduce

import boto3
import pytest

from tests.support.in_process import create_resources, definitions_of, locked_aws
from xorack.core.stamp import xor_bytes

WRITERS = 8
WRITES = 10
"""Without the lock, so many by each writer lost some in every run."""


@pytest.fixture
def _eager_switches():
    """Switch threads far more often than usual: a race shows in few writes."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def in_threads(work, count=WRITERS):
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, range(count)))


def loses_updates(*, lock: bool) -> bool:
    """Let many writers XOR into one item, each write conditional on the value that it read."""
    stamps = [[secrets.token_bytes(8) for _ in range(WRITES)] for _ in range(WRITERS)]
    with locked_aws(lock=lock) as started:
        resources = create_resources(started)
        dynamodb = resources.client("dynamodb")
        key = {"tag": {"S": "canary"}}
        dynamodb.put_item(TableName=resources.table_name, Item={**key, "stamp": {"B": bytes(8)}})

        def write(number):
            for stamp in stamps[number]:
                while True:
                    answer = dynamodb.get_item(
                        TableName=resources.table_name, Key=key, ConsistentRead=True
                    )
                    was = answer["Item"]["stamp"]["B"]
                    try:
                        dynamodb.update_item(
                            TableName=resources.table_name,
                            Key=key,
                            UpdateExpression="SET stamp = :new",
                            ConditionExpression="stamp = :old",
                            ExpressionAttributeValues={
                                ":new": {"B": xor_bytes(was, stamp)},
                                ":old": {"B": was},
                            },
                        )
                        break
                    except dynamodb.exceptions.ConditionalCheckFailedException:
                        continue

        in_threads(write)
        item = dynamodb.get_item(TableName=resources.table_name, Key=key)["Item"]
    return item["stamp"]["B"] != reduce(xor_bytes, (stamp for own in stamps for stamp in own))


@pytest.mark.usefixtures("_eager_switches")
def test_canary_no_update_is_lost_with_the_lock():
    assert not loses_updates(lock=True)


@pytest.mark.usefixtures("_eager_switches")
def test_canary_updates_are_lost_without_the_lock():
    # If moto becomes atomic, this fails and the lock can go.
    assert any(loses_updates(lock=False) for _ in range(5))


@pytest.mark.usefixtures("_eager_switches")
def test_every_message_is_received_once_by_many_receivers(aws):
    sent = 200
    sqs = aws.client("sqs")
    for start in range(0, sent, 10):
        entries = [{"Id": str(n), "MessageBody": str(start + n)} for n in range(10)]
        assert not sqs.send_message_batch(QueueUrl=aws.queue_url, Entries=entries).get("Failed")
    received = []

    def receive(_number):
        while True:
            answer = sqs.receive_message(QueueUrl=aws.queue_url, MaxNumberOfMessages=10)
            messages = answer.get("Messages")
            if not messages:
                return
            for message in messages:
                received.append(int(message["Body"]))
                sqs.delete_message(QueueUrl=aws.queue_url, ReceiptHandle=message["ReceiptHandle"])

    in_threads(receive)
    assert sorted(received) == list(range(sent))


def test_a_long_poll_ends_and_lets_others_send(aws):
    sqs = aws.client("sqs")
    bodies = []

    def poll():
        answer = sqs.receive_message(QueueUrl=aws.queue_url, WaitTimeSeconds=20)
        bodies.extend(message["Body"] for message in answer.get("Messages", []))

    assert "Messages" not in sqs.receive_message(QueueUrl=aws.queue_url, WaitTimeSeconds=1)
    polling = threading.Thread(target=poll)
    began = time.monotonic()
    polling.start()
    time.sleep(0.3)
    sqs.send_message(QueueUrl=aws.queue_url, MessageBody="hello")
    polling.join()
    assert bodies == ["hello"]
    assert time.monotonic() - began < 15


def test_a_message_received_too_often_goes_to_the_dead_letter_queue(aws):
    sqs = aws.client("sqs")
    sqs.send_message(QueueUrl=aws.queue_url, MessageBody="poison")
    for _ in range(5):
        answer = sqs.receive_message(QueueUrl=aws.queue_url, VisibilityTimeout=0)
        assert [m["Body"] for m in answer["Messages"]] == ["poison"]
    assert "Messages" not in sqs.receive_message(QueueUrl=aws.queue_url)
    assert [message["Body"] for message in aws.dead_letters()] == ["poison"]


def test_a_long_queue_is_not_slow(aws):
    """Bare moto counts the whole queue for each message: 2,000 take minutes."""
    sqs = aws.client("sqs")
    began = time.monotonic()
    for start in range(0, 2000, 10):
        entries = [{"Id": str(n), "MessageBody": str(start + n)} for n in range(10)]
        sqs.send_message_batch(QueueUrl=aws.queue_url, Entries=entries)
    answer = sqs.get_queue_attributes(
        QueueUrl=aws.queue_url, AttributeNames=["ApproximateNumberOfMessages"]
    )
    assert answer["Attributes"]["ApproximateNumberOfMessages"] == "2000"
    assert time.monotonic() - began < 60


def test_events_reach_the_subscriber(aws):
    events = aws.client("events")
    entry = {"EventBusName": aws.bus_name, "DetailType": "acked", "Detail": '{"tag": "t"}'}
    events.put_events(Entries=[{**entry, "Source": "another"}])
    events.put_events(Entries=[{**entry, "Source": "xorack"}])
    (event,) = aws.events()
    assert (event["source"], event["detail-type"]) == ("xorack", "acked")
    assert event["detail"] == {"tag": "t"}
    assert aws.events() == []


def test_the_environment_is_isolated_and_restored(monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with locked_aws() as started:
        assert "AWS_PROFILE" not in os.environ
        create_resources(started)
        # A client of the code's own uses the same AWS.
        assert len(boto3.client("dynamodb").list_tables()["TableNames"]) == 1
    assert os.environ["AWS_PROFILE"] == "production"
    assert os.environ["AWS_ENDPOINT_URL"] == "http://127.0.0.1:1"


def test_a_template_without_a_table_is_rejected():
    with pytest.raises(ValueError, match="one DynamoDB table, and has 0"):
        definitions_of({"Resources": {}})
