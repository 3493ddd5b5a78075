"""The consumer's processor time: of a request and an ack, and of batches beside AWS calls.

boto3 calls a server in another process, over HTTP without TLS.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from itertools import count
from time import process_time
from typing import Any
from unittest.mock import patch

from bench.harness import Figures, Goal, Table, accepting_server, interleaved, timed_calls
from tests.support.functions import Context
from xorack.core.message import pack
from xorack.core.request import Request
from xorack.core.stamp import traced

VCPU = 1024 / 1769
"""The share of a processor that Lambda gives a function of 1 GiB."""
SINGLE = "a request, each of its own chain"
FOLDED = "a request, 100 of each chain"
ACK = "an ack: a chain created and ended"
CALL_SECONDS = 0.005
"""An assumed response time of DynamoDB."""
_ENVIRONMENT = {
    "PARTITION_KEY": "tag",
    "TABLE_ARN": "arn:aws:dynamodb:us-east-1:123456789012:table/table",
    "EVENT_BUS_NAME": "bus",
    "DEAD_LETTER_QUEUE_URL": "dead",
    "POWERTOOLS_TRACE_DISABLED": "true",
}
Handle = Callable[[dict[str, Any]], float]
"""Handles an event, of which all messages must succeed; returns seconds of processor time."""


def make_event(batch: int, chains: int, size: int, *, ended: bool = False) -> dict[str, Any]:
    """Make an event of messages of new chains: a request each, or two that make and end one."""
    records = []
    for number in range(size):
        tag, unit = f"{batch}/chain-{number % chains}", (batch << 32) + number + 1
        op, stamp = "create" if number < chains else "stamp", traced(unit)
        requests = [Request(op, tag, f"r{number}", stamp, started=1)]
        requests += [Request.stamp_(tag, "s", stamp, finished=1)] * ended
        (body,) = pack(requests)
        records.append({"messageId": f"m{number}", "body": body, "eventSource": "aws:sqs"})
    return {"Records": records}


@contextmanager
def _handler(endpoint: str, workers: int) -> Iterator[Handle]:
    """Yield the handler with so many workers."""
    settings = {**_ENVIRONMENT, "AWS_ENDPOINT_URL": endpoint}
    settings["TABLE_NAME"] = f"table-{workers}"  # the services of each environment are kept
    with patch.dict(os.environ, settings), redirect_stdout(StringIO()):
        from lambda_src import consumer, environment

        def handle(event: dict[str, Any]) -> float:
            before = process_time()
            response = consumer.handler(event, Context(600))
            seconds = process_time() - before
            assert not response["batchItemFailures"], response
            return seconds

        with patch.object(environment, "_WORKERS", workers):
            yield handle


def _batch(handle: Handle, chains: int, size: int) -> Figures:
    """Measure a batch of new chains: calls, and processor time outside of them."""
    from lambda_src.environment import services

    handle(make_event(1, 10, 10))  # a warm function
    with timed_calls(services().clients["dynamodb"]) as calls:
        own = handle(make_event(2, chains, size)) - sum(calls)
    waited = CALL_SECONDS * len(calls)
    share = waited / (waited + own)
    return {"calls": len(calls), "own_microseconds_a_message": own * 1e6 / size, "share": share}


def measure(quick: bool) -> Figures:
    """Measure parts of the work with eight workers, and batches of growing size with one.

    Of several rounds of a part it is the least: other work on the machine only adds.
    """
    size, rounds = (100, 1) if quick else (300, 20)
    numbers, batches = count(), {}
    with accepting_server() as endpoint:
        with _handler(endpoint, workers=8) as handle:
            parts = {
                SINGLE: lambda: handle(make_event(next(numbers), size, size)),
                FOLDED: lambda: handle(make_event(next(numbers), size // 100, size)),
                ACK: lambda: handle(make_event(next(numbers), size, size, ended=True)),
            }
            runs = interleaved(parts, rounds)
        with _handler(endpoint, workers=1) as handle:
            for messages in [10, 100] if quick else [10, 100, 1000, 10_000]:
                for chains in sorted({1, min(10, messages), min(1000, messages), messages}):
                    batches[f"{messages} over {chains}"] = _batch(handle, chains, messages)
    milliseconds = {name: min(seconds) * 1000 / size for name, seconds in runs.items()}
    return {"milliseconds": milliseconds, "batches": batches}


def tables(figures: Figures) -> list[Table]:
    """Make the tables."""
    parts = Table(["of", "ms of a processor", "a second at 1 GiB"])
    for name, milliseconds in figures["milliseconds"].items():
        parts.add(name, milliseconds, 1000 * VCPU / milliseconds)
    head = ["messages", "chains", "calls", "own µs a message", "share of calls", "of the goal, 0.9"]
    batches = Table(head)
    for name, of in figures["batches"].items():
        size, chains = (f"{int(number):,}" for number in name.split(" over "))
        share, own = of["share"], of["own_microseconds_a_message"]
        verdict = Goal(name, share, 0.9, "more").verdict
        batches.add(size, chains, of["calls"], own, f"{100 * share:.0f} %", verdict)
    return [parts, batches]
