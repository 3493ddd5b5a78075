"""The synthesised stack in the embedded AWS: stamps in at the queue, events out at a subscriber."""

from __future__ import annotations

import json
import random
import time
from functools import reduce

import pytest

import xorack
from xorack.aws.sqs import send
from xorack.core.request import Request
from xorack.local.deploy import deploy, drain, subscribe, usage
from xorack.local.embedded import EmbeddedAWS

pytestmark = pytest.mark.embedded


@pytest.fixture(scope="module")
def events(stack):
    """`events(tags)` waits until each tag has an event, and returns what came, by tag."""
    queue_url, seen = subscribe(stack), {}

    def wait_for(tags, seconds=90):
        wanted = set(tags)
        deadline = time.monotonic() + seconds

        def done():
            return wanted <= seen.keys() or time.monotonic() > deadline

        for event in drain(queue_url, stack.client("sqs"), wait_seconds=seconds, until=done):
            seen.setdefault(event["detail"]["tag"], []).append(event)
        assert wanted <= seen.keys(), f"no event of {sorted(wanted - seen.keys())[:5]}"
        return {tag: seen[tag] for tag in wanted}

    return wait_for


def chain(tag, children, *, lose=()):
    """The requests of a chain: a root that has children, and each of them finished but the lost."""
    root = xorack.unit_id(tag)
    units = [xorack.unit_id(tag, n) for n in range(children)]
    yield Request.create(tag, "create", xorack.traced(root), detail={"children": children})
    split = reduce(xorack.xor, map(xorack.traced, [root, *units]))
    yield Request.stamp_(tag, "split", split, started=children, finished=1)
    for n, unit in enumerate(units):
        if n not in lose:
            yield Request.stamp_(tag, f"done {n}", xorack.traced(unit), finished=1)


def send_all(stack, requests, **options):
    return send(stack.queue_url, requests, stack.client("sqs"), **options)


def item_of(stack, tag):
    answer = stack.client("dynamodb").get_item(
        TableName=stack.table_name, Key={"tag": {"S": tag}}, ConsistentRead=True
    )
    return answer["Item"]


def test_thousands_of_stamps_become_one_event_a_chain(stack, events):
    before = usage(stack)
    tags = [f"many/{n}" for n in range(100)]
    requests = [request for tag in tags for request in chain(tag, 30)]
    random.Random(1).shuffle(requests)
    report = send_all(stack, requests)
    for tag, (event, *again) in events(tags).items():
        assert (event["source"], event["detail-type"]) == ("xorack", "acked")
        detail = event["detail"]
        assert (detail["started"], detail["finished"]) == (31, 31)
        assert detail["detail"] == {"children": 30}
        assert {other["detail"]["id"] for other in again} <= {detail["id"]}
        item = item_of(stack, tag)
        assert item["status"] == {"S": "acked"}
        assert not any(item["stamp"]["B"])
    after = usage(stack)
    assert report.requests == len(requests) == 3200
    assert after.messages - before.messages == report.messages
    assert 0 < after.invocations - before.invocations <= report.messages + 2
    # One write a chain and batch, not one a stamp.
    assert after.writes - before.writes < len(requests) / 2


def test_messages_that_come_three_times_in_any_order_count_once(stack, events):
    tags = [f"thrice/{n}" for n in range(20)]
    requests = [request for tag in tags for request in chain(tag, 10)] * 3
    shuffler = random.Random(2)
    for _ in range(2):
        shuffler.shuffle(requests)
        send_all(
            stack,
            requests,
        )
    for tag, told in events(tags).items():
        assert {event["detail-type"] for event in told} == {"acked"}
        assert len({event["detail"]["id"] for event in told}) == 1
        assert item_of(stack, tag)["finished"] == {"N": "11"}


def test_a_chain_that_failed_tells_what_was_not_done(stack, events):
    tag = "failed/1"
    send_all(stack, [*chain(tag, 5, lose=(1, 4)), Request.fail(tag, "why", "the disk is full")])
    told = events([tag])[tag][0]["detail"]
    assert told["status"] == "failed"
    assert told["reason"] == "the disk is full"


def test_a_chain_whose_time_is_up_is_ended_by_the_sweeper(stack, events):
    tag, late = "late/1", []
    lost = {xorack.unit_id(tag, n) for n in (0, 2)}
    requests = [
        request
        if request.op != "create"
        else Request.create(tag, "create", request.stamp, timeout=1)
        for request in chain(tag, 3, lose=(0, 2))
    ]
    send_all(stack, requests)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not late:
        answer = stack.client("lambda").invoke(FunctionName=stack.outputs["SweeperName"])
        assert "FunctionError" not in answer, answer["Payload"].read()
        if json.load(answer["Payload"])["ChainsTimedOut"]:
            break
        time.sleep(0.5)
    told = events([tag])[tag][0]["detail"]
    assert (told["status"], told["reason"]) == ("failed", "timed out")
    assert set(told["outstanding"]) == {f"{unit:016x}" for unit in lost}
    assert told["outstanding_complete"] is True


def test_what_is_refused_is_a_dead_letter_and_its_neighbours_apply(stack, events):
    tag = "neighbour/1"
    good = [request.to_json() for request in chain(tag, 2)]
    body = json.dumps({"version": 1, "requests": [good[0], {**good[1], "tag": 5}, *good[1:]]})
    sqs = stack.client("sqs")
    sqs.send_message(QueueUrl=stack.queue_url, MessageBody="not JSON")
    sqs.send_message(QueueUrl=stack.queue_url, MessageBody=body)
    assert events([tag])[tag][0]["detail-type"] == "acked"
    letters = []
    deadline = time.monotonic() + 60
    while len(letters) < 2 and time.monotonic() < deadline:
        answer = sqs.receive_message(
            QueueUrl=stack.dead_letter_queue_url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=1,
            MessageAttributeNames=["error"],
        )
        letters += answer.get("Messages", [])
    reasons = sorted(letter["MessageAttributes"]["error"]["StringValue"] for letter in letters)
    assert len(reasons) == 2, reasons
    assert reasons[0].startswith("body: ")
    assert reasons[1].startswith("requests[1].tag: ")


@pytest.mark.slow
def test_the_schedule_calls_the_sweeper_without_anyone_asking(assembly):
    with EmbeddedAWS() as aws:
        stack = deploy(aws, assembly)
        queue_url, tag = subscribe(stack, ["failed"]), "unattended/1"
        send_all(stack, [Request.create(tag, "create", xorack.traced(1), timeout=1)])
        told = next(drain(queue_url, stack.client("sqs"), wait_seconds=150))
    assert told["detail"]["tag"] == tag
    assert told["detail"]["reason"] == "timed out"
