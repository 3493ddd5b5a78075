"""Exactly once on real parts: producers and functions call through a proxy that injects faults.

The queue's event source mapping runs the consumer, whose workers are killed now and then. Responses
to its calls are lost, doubled, late or errors. Each chain still ends, with the right counts and the
id of one event.
"""

import json
import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from tests.e2e.conftest import assert_acked, chain, events_of
from tests.support.processes import processes
from tests.support.proxy import RATES, FaultProxy, total
from xorack.aws.sqs import send
from xorack.core.errors import SendError
from xorack.local.deploy import deploy, subscribe
from xorack.local.embedded import EmbeddedAWS

pytestmark = pytest.mark.embedded

CHAINS = 40
CHILDREN = 40
VISIBILITY_SECONDS = 5
KILLING_SECONDS = 8
PATIENCE_SECONDS = 240


def send_surely(queue_url, requests, client):
    """Send the same requests until all arrive: those that arrived before count once."""
    while True:
        with suppress(SendError):
            send(queue_url, requests, client, max_bytes=20_000)
            return


def kill_workers(aws, stopped):
    """Kill the processes that run Lambda functions, in the middle of their work."""
    end = time.monotonic() + KILLING_SECONDS
    while time.monotonic() < end and not stopped.wait(2):
        for process in processes():
            if process.parent == aws._process.pid:
                with suppress(ProcessLookupError):
                    os.kill(process.id, signal.SIGKILL)


@pytest.fixture
def template(assembly):
    """The stack's template, with small batches that come again soon and as often as needed."""
    content = json.loads(assembly.read_text())
    for resource in content["Resources"].values():
        properties = resource.get("Properties", {})
        if resource["Type"] == "AWS::Lambda::EventSourceMapping":
            properties["BatchSize"] = 20  # many invocations, two at a time, on the same chains
        if "RedrivePolicy" in properties:
            properties["RedrivePolicy"]["maxReceiveCount"] = 100
            properties["VisibilityTimeout"] = VISIBILITY_SECONDS
    path = assembly.with_name("faults.json")
    path.write_text(json.dumps(content))
    return path


@pytest.mark.timeout(400)
def test_each_chain_ends_once_despite_faults(template):
    tags = [f"fault/{n}" for n in range(CHAINS)]
    requests = [request for tag in tags for request in chain(tag, CHILDREN)]
    random.Random(5).shuffle(requests)

    with (
        FaultProxy(seed=11) as proxy,
        EmbeddedAWS(environ={"AWS_ENDPOINT_URL": proxy.endpoint_url}) as aws,
    ):
        proxy.target = aws.endpoint_url
        stack = deploy(aws, template)
        subscriber = subscribe(stack)
        proxy.rates = RATES
        producer = aws.client("sqs", endpoint_url=proxy.endpoint_url)
        parts = [requests[start : start + 200] for start in range(0, len(requests), 200)]
        stopped = threading.Event()
        with ThreadPoolExecutor(len(parts) + 1) as pool:
            work = [pool.submit(send_surely, stack.queue_url, part, producer) for part in parts]
            work.append(pool.submit(kill_workers, aws, stopped))
            # The subscriber's own calls meet no faults: it sees the acker's work only.
            received = events_of(tags, subscriber, aws.client("sqs"), PATIENCE_SECONDS)
            stopped.set()
        for future in work:
            future.result()
        happened = dict(proxy.happened)
        proxy.rates = {}

        for tag in tags:
            assert_acked(stack, tag, received[tag], units=CHILDREN + 1)
        # No message was given up, and no valid request was rejected.
        dead = aws.client("sqs").receive_message(QueueUrl=stack.dead_letter_queue_url)
        assert "Messages" not in dead

    # Without faults the test would prove nothing.
    for fault in ("dropped", "lost", "twice", "5xx applied", "throttled", "conflict"):
        assert happened.get(("UpdateItem", fault)), fault
    assert happened.get(("PutEvents", "entries failed"))
    assert total(happened) > 100
