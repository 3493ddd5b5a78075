"""Exactly once on real parts: every call of producers and functions through a proxy that spoils it.

The Lambda is run by the queue's event source mapping, its workers are killed now and then, and the
answers of what it calls are lost, doubled, delayed and refused. Each chain ends all the same, with
the right counts and one event's id.
"""

from __future__ import annotations

import random
import threading
import time
from functools import reduce

import pytest

import xorack
from tests.support.proxy import FaultProxy, Faults, total
from xorack.aws.sqs import send
from xorack.core.errors import SendFailed
from xorack.core.request import Request
from xorack.local.deploy import deploy, drain, subscribe, usage
from xorack.local.embedded import EmbeddedAWS

pytestmark = pytest.mark.embedded

CHAINS = 60
CHILDREN = 40
VISIBLE_AFTER_SECONDS = 6

FAULTS = {
    "UpdateItem": Faults(
        drop=0.04,
        lose=0.08,
        twice=0.06,
        throttle=0.04,
        error=0.02,
        error_after=0.06,
        conflict=0.04,
        delay=0.1,
        delay_seconds=0.2,
    ),
    "PutEvents": Faults(drop=0.1, lose=0.1, twice=0.05, partial=0.3, error_after=0.05),
    "SendMessageBatch": Faults(drop=0.05, lose=0.1, twice=0.1, partial=0.2),
    "*": Faults(drop=0.03, lose=0.03, throttle=0.03, delay=0.05, delay_seconds=0.2),
}


def chain(tag):
    root = xorack.unit_id(tag)
    units = [xorack.unit_id(tag, n) for n in range(CHILDREN)]
    yield Request.create(tag, "create", xorack.traced(root))
    split = reduce(xorack.xor, map(xorack.traced, [root, *units]))
    yield Request.stamp_(tag, "split", split, started=CHILDREN, finished=1)
    for n, unit in enumerate(units):
        yield Request.stamp_(tag, f"done {n}", xorack.traced(unit), finished=1)


@pytest.mark.timeout(400)
def test_thousands_of_stamps_through_faults_end_each_chain_once(assembly):
    from infra.synth import synth

    template = synth(
        assembly.parent / "faults",
        {
            "max_concurrency": 2,
            "batch_size": 20,  # many invocations, two at a time, on the same chains
            "function_timeout_seconds": 5,
            "max_receive_count": 100,
        },
    )
    tags = [f"fault/{n}" for n in range(CHAINS)]
    requests = [request for tag in tags for request in chain(tag)]
    random.Random(5).shuffle(requests)
    told: dict[str, list[dict]] = {}

    with (
        FaultProxy(seed=11) as proxy,
        EmbeddedAWS(environ={"AWS_ENDPOINT_URL": proxy.endpoint_url}) as aws,
    ):
        proxy.target = aws.endpoint_url
        stack = deploy(aws, template)
        # The template's is for AWS, six times the function's timeout; no test waits that long.
        aws.client("sqs").set_queue_attributes(
            QueueUrl=stack.queue_url,
            Attributes={"VisibilityTimeout": str(VISIBLE_AFTER_SECONDS)},
        )
        subscriber = subscribe(stack)
        proxy.faults = FAULTS
        producer = aws.client("sqs", endpoint_url=proxy.endpoint_url)

        def produce(part):
            while True:
                try:
                    send(stack.queue_url, part, producer, max_bytes=20_000)
                    return
                except SendFailed:
                    continue  # the same requests again: those that arrived count once

        producers = [
            threading.Thread(target=produce, args=(requests[start : start + 200],), daemon=True)
            for start in range(0, len(requests), 200)
        ]
        for thread in producers:
            thread.start()

        stopped = threading.Event()

        def kill():
            while not stopped.wait(4):
                aws.kill_workers()

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        calm_at = time.monotonic() + 15
        deadline = time.monotonic() + 240

        def done():
            if time.monotonic() > calm_at:
                stopped.set()
            return len(told) == CHAINS or time.monotonic() > deadline

        # The subscriber's own calls are not spoilt: what it sees is what the acker did.
        for event in drain(subscriber, aws.client("sqs"), wait_seconds=240, until=done):
            told.setdefault(event["detail"]["tag"], []).append(event)
        stopped.set()
        killer.join()
        for thread in producers:
            thread.join(timeout=60)
            assert not thread.is_alive()
        happened = dict(proxy.happened)
        proxy.faults = {}
        used = usage(stack)

        assert sorted(told) == sorted(tags), f"{CHAINS - len(told)} chains did not end; {used}"
        for tag, events in told.items():
            assert {event["detail-type"] for event in events} == {"acked"}, tag
            assert len({event["detail"]["id"] for event in events}) == 1, tag
            item = aws.client("dynamodb").get_item(
                TableName=stack.table_name, Key={"tag": {"S": tag}}, ConsistentRead=True
            )["Item"]
            assert item["status"] == {"S": "acked"}
            assert not any(item["stamp"]["B"])
            counts = {item[name]["N"] for name in ("started", "finished")}
            assert counts == {str(CHILDREN + 1)}, tag
        # Nothing was given up, and nothing refused that was well made.
        letters = aws.client("sqs").receive_message(QueueUrl=stack.dead_letter_queue_url)
        assert "Messages" not in letters

    # The test means something only if the faults did happen, each on what matters.
    for fault in ("drop", "lose", "twice", "error_after", "throttle", "conflict"):
        assert happened.get(("UpdateItem", fault)), fault
    assert happened.get(("PutEvents", "partial"))
    assert total(happened) > 100
