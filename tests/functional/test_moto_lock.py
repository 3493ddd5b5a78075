"""The in-process AWS loses no update and delivers no message twice. Bare moto does both."""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
from functools import reduce

import boto3
import pytest

from tests.support.in_process import create_resources, definitions, definitions_of, locked_aws

WRITERS = 8
WRITES = 15
"""Without the lock, 10 each were enough to lose some in every run."""


@pytest.fixture
def _eager_switches():
    """Switches threads far more often than usual, so that a race shows in few writes."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def in_threads(work, count=WRITERS):
    failures = []

    def run(number):
        try:
            work(number)
        except Exception as error:  # noqa: BLE001 - raised again by the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def updates_lost(*, lock: bool) -> bool:
    """Many writers XOR into one item, each write conditional on what it read."""
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
                                ":new": {"B": xor(was, stamp)},
                                ":old": {"B": was},
                            },
                        )
                        break
                    except dynamodb.exceptions.ConditionalCheckFailedException:
                        continue

        in_threads(write)
        item = dynamodb.get_item(TableName=resources.table_name, Key=key)["Item"]
    return item["stamp"]["B"] != reduce(xor, (stamp for own in stamps for stamp in own))


@pytest.mark.usefixtures("_eager_switches")
def test_canary_no_update_is_lost_with_the_lock():
    assert not updates_lost(lock=True)


@pytest.mark.usefixtures("_eager_switches")
def test_canary_sees_updates_lost_without_the_lock():
    # Should moto become atomic one day, this fails, and the lock can go.
    assert any(updates_lost(lock=False) for _ in range(5))


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


def test_a_long_poll_lets_others_send(aws):
    sqs = aws.client("sqs")
    bodies = []

    def poll():
        answer = sqs.receive_message(QueueUrl=aws.queue_url, WaitTimeSeconds=20)
        bodies.extend(message["Body"] for message in answer.get("Messages", []))

    polling = threading.Thread(target=poll)
    began = time.monotonic()
    polling.start()
    time.sleep(0.3)
    sqs.send_message(QueueUrl=aws.queue_url, MessageBody="hello")
    polling.join()
    assert bodies == ["hello"]
    assert time.monotonic() - began < 15


def test_a_poll_of_an_empty_queue_ends(aws):
    assert "Messages" not in aws.client("sqs").receive_message(
        QueueUrl=aws.queue_url, WaitTimeSeconds=1
    )


def test_a_message_received_too_often_goes_to_the_dead_letter_queue(aws):
    sqs = aws.client("sqs")
    sqs.send_message(QueueUrl=aws.queue_url, MessageBody="poison")
    for _ in range(5):
        answer = sqs.receive_message(QueueUrl=aws.queue_url, VisibilityTimeout=0)
        assert [m["Body"] for m in answer["Messages"]] == ["poison"]
    assert "Messages" not in sqs.receive_message(QueueUrl=aws.queue_url)
    assert [letter["Body"] for letter in aws.dead_letters()] == ["poison"]


def test_a_long_queue_does_not_slow_each_message_down(aws):
    """moto as it comes counts the whole queue for each message: 2,000 take it minutes."""
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
    events.put_events(Entries=[{**entry, "Source": "someone else"}])
    events.put_events(Entries=[{**entry, "Source": "xorack"}])
    (event,) = aws.events()
    assert (event["source"], event["detail-type"]) == ("xorack", "acked")
    assert event["detail"] == {"tag": "t"}
    assert aws.events() == []


def test_the_sparse_index_holds_only_what_is_due(aws):
    dynamodb = aws.client("dynamodb")
    for tag, due in (("later", 2), ("sooner", 1)):
        dynamodb.put_item(
            TableName=aws.table_name,
            Item={"tag": {"S": tag}, "due_shard": {"N": "0"}, "due_at": {"N": str(due)}},
        )
    dynamodb.put_item(TableName=aws.table_name, Item={"tag": {"S": "done"}})
    answer = dynamodb.query(
        TableName=aws.table_name,
        IndexName="due",
        KeyConditionExpression="due_shard = :shard",
        ExpressionAttributeValues={":shard": {"N": "0"}},
    )
    assert [item["tag"]["S"] for item in answer["Items"]] == ["sooner", "later"]


def test_the_environment_is_isolated_and_put_back(monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with locked_aws() as started:
        assert "AWS_PROFILE" not in os.environ
        create_resources(started)
        # A client that code makes for itself sees the same AWS.
        assert len(boto3.client("dynamodb").list_tables()["TableNames"]) == 1
    assert os.environ["AWS_PROFILE"] == "production"
    assert os.environ["AWS_ENDPOINT_URL"] == "http://127.0.0.1:1"


def test_the_partition_key_has_the_name_it_is_given():
    with locked_aws() as started:
        resources = create_resources(started, partition_key="chain")
        answer = resources.client("dynamodb").describe_table(TableName=resources.table_name)
    assert resources.partition_key == "chain"
    assert answer["Table"]["KeySchema"] == [{"AttributeName": "chain", "KeyType": "HASH"}]


def test_a_template_without_a_table_is_refused():
    with pytest.raises(ValueError, match="one DynamoDB table, and has 0"):
        definitions_of({"Resources": {}})


def test_definitions_by_hand_are_those_of_a_template_that_says_the_same():
    by_hand = definitions()
    template = {
        "Resources": {
            "Table": {
                "Type": "AWS::DynamoDB::GlobalTable",
                "Properties": {
                    **by_hand.table,
                    "TimeToLiveSpecification": {"AttributeName": "expires_at", "Enabled": True},
                },
            },
            "Dead": {"Type": "AWS::SQS::Queue", "Properties": {"MessageRetentionPeriod": 9}},
            "Queue": {
                "Type": "AWS::SQS::Queue",
                "Properties": {
                    "VisibilityTimeout": 180,
                    "RedrivePolicy": {
                        "deadLetterTargetArn": {"Fn::GetAtt": ["Dead", "Arn"]},
                        "maxReceiveCount": 5,
                    },
                },
            },
        }
    }
    read = definitions_of(template)
    assert (read.table, read.ttl_attribute) == (by_hand.table, by_hand.ttl_attribute)
    assert read.max_receive_count == by_hand.max_receive_count
    assert read.queue == {"VisibilityTimeout": "180"}
    assert read.dead_letter_queue == {"MessageRetentionPeriod": "9"}
    with locked_aws() as started:
        resources = create_resources(started, read)
        answer = resources.client("sqs").get_queue_attributes(
            QueueUrl=resources.queue_url, AttributeNames=["VisibilityTimeout"]
        )
    assert answer["Attributes"]["VisibilityTimeout"] == "180"
