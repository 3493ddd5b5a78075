"""Measures the consumer's processor time for a request and for an ack.

boto3 calls a server in another process over HTTP without TLS.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from itertools import count
from time import process_time
from typing import Any, Literal
from unittest.mock import patch

from bench.harness import Table, accepting_server, interleaved
from tests.support.functions import Context
from xorack.core.message import pack
from xorack.core.request import Request
from xorack.core.stamp import traced

VCPU = 1024 / 1769
"""The share of a processor that Lambda gives to a function with 1 GiB."""
SINGLE = "a request, each of its own chain"
FOLDED = "a request, 100 of each chain"
ACK = "an ack: a chain created and ended"
_ENVIRONMENT = {
    "PARTITION_KEY": "tag",
    "TABLE_NAME": "table",
    "TABLE_ARN": "arn:aws:dynamodb:us-east-1:123456789012:table/table",
    "EVENT_BUS_NAME": "bus",
    "DEAD_LETTER_QUEUE_URL": "dead",
    "POWERTOOLS_TRACE_DISABLED": "true",
}
Handle = Callable[[dict[str, Any]], float]
"""Handles an event whose messages must all succeed. Returns seconds of processor time."""


def make_event(batch: int, chains: int, size: int, *, ended: bool = False) -> dict[str, Any]:
    """Make an event with messages for new chains. A message has a request, or two if chains end."""
    records = []
    for number in range(size):
        tag, unit = f"{batch}/chain-{number % chains}", (batch << 32) + number + 1
        op: Literal["create", "stamp"] = "create" if number < chains else "stamp"
        stamp = traced(unit)
        requests = [Request(op, tag, f"r{number}", stamp, started=1)]
        requests += [Request.stamp_(tag, "s", stamp, finished=1)] * ended
        (body,) = pack(requests)
        records.append({"messageId": f"m{number}", "body": body, "eventSource": "aws:sqs"})
    return {"Records": records}


@contextmanager
def _handler(endpoint: str) -> Iterator[Handle]:
    settings = {**_ENVIRONMENT, "AWS_ENDPOINT_URL": endpoint}
    with patch.dict(os.environ, settings), redirect_stdout(StringIO()):
        from lambda_src import consumer

        def handle(event: dict[str, Any]) -> float:
            before = process_time()
            response = consumer.handler(event, Context(600))
            seconds = process_time() - before
            assert not response["batchItemFailures"], response
            return seconds

        yield handle


def measure(quick: bool) -> list[Table]:
    """Measure parts of the work.

    The least time of several rounds counts, because other programs only add time.
    """
    size, rounds = (100, 1) if quick else (300, 20)
    numbers = count()
    with accepting_server() as endpoint, _handler(endpoint) as handle:
        parts = {
            SINGLE: lambda: handle(make_event(next(numbers), size, size)),
            FOLDED: lambda: handle(make_event(next(numbers), size // 100, size)),
            ACK: lambda: handle(make_event(next(numbers), size, size, ended=True)),
        }
        runs = interleaved(parts, rounds)
    table = Table(["of", "ms of a processor", "a second at 1 GiB"])
    for name, seconds in runs.items():
        milliseconds = min(seconds) * 1000 / size
        table.add(name, milliseconds, 1000 * VCPU / milliseconds)
    return [table]
