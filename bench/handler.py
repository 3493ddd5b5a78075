"""The consumer's handler: messages a second, the share of AWS calls in its time, memory.

``python -m bench.handler MESSAGES CHAINS`` prints the memory of one batch in a process of its own.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest.mock import patch

from bench.harness import Figures, Goal, Section, Table, run_process
from tests.support.in_process import Resources, create_resources, locked_aws
from xorack.core.message import pack
from xorack.core.request import Request
from xorack.core.stamp import traced

_CALL_SECONDS = 0.005
"""An assumed response time of DynamoDB."""


class _Context:
    """The part of Lambda's context that the handler uses."""

    function_name = "consumer"
    memory_limit_in_mb = 1024
    invoked_function_arn = "arn:aws:lambda:us-east-1:123456789012:function:consumer"
    aws_request_id = "bench"

    def get_remaining_time_in_millis(self) -> int:
        return 600_000


class TimedClient:
    """A boto3 client that counts and times its calls."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.calls = 0
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)

        def timed(**arguments: Any) -> Any:
            before = perf_counter()
            try:
                return call(**arguments)
            finally:
                self.calls += 1
                self.seconds += perf_counter() - before

        return timed


class _InstantClient:
    """A client that responds at once and stores nothing: the memory measured is the handler's."""

    def update_item(self, **_: Any) -> dict[str, Any]:
        return {}

    batch_write_item = get_item = update_item

    def batch_get_item(self, **arguments: Any) -> dict[str, Any]:
        return {"Responses": {table: [] for table in arguments["RequestItems"]}}


def make_event(batch: int, chains: int, size: int) -> dict[str, Any]:
    """Make an event of single-request messages; the first message of each chain is its create."""
    records = []
    for number in range(size):
        tag = f"batch-{batch}/chain-{number % chains}"
        unit = traced((batch << 32) + number + 1)
        if number < chains:
            request = Request.create(tag, f"r{number}", unit)
        else:
            request = Request.stamp_(tag, f"r{number}", unit, started=1)
        (body,) = pack([request])
        records.append({"messageId": f"m{number}", "body": body, "eventSource": "aws:sqs"})
    return {"Records": records}


@contextmanager
def _handler(
    resources: Resources, workers: int, client: Any = None
) -> Iterator[tuple[Any, TimedClient]]:
    """Import the handler, replace its client by a timed one; yield both."""
    with patch.dict(os.environ, resources.environ()), redirect_stdout(StringIO()):
        from lambda_src import consumer, environment
        from xorack.acker.consumer import Consumer

        store = environment.services().store
        timed = TimedClient(client or store.client)
        with (
            patch.object(store, "client", timed),
            patch.object(consumer, "Consumer", partial(Consumer, workers=workers)),
            patch.object(environment, "_WORKERS", workers),
        ):
            _handle(consumer.handler, make_event(1 << 20, 10, 10))  # a warm function
            yield consumer.handler, timed


def _handle(handler: Any, event: dict[str, Any]) -> None:
    response = handler(event, _Context())
    assert not response["batchItemFailures"], response


def time_batches(resources: Resources, size: int, chains: int, batches: int) -> dict[str, float]:
    """Handle batches of new chains with one worker; return rates and shares."""
    with _handler(resources, 1) as (handler, client):
        events = [make_event(batch, chains, size) for batch in range(batches)]
        client.calls, client.seconds = 0, 0.0
        before = perf_counter()
        for event in events:
            _handle(handler, event)
        took = perf_counter() - before
    own, waited = took - client.seconds, _CALL_SECONDS * client.calls
    return {
        "messages_a_second": size * batches / took,
        "calls": client.calls / batches,
        "share_in_calls": client.seconds / took,
        "share_in_calls_of_5_ms": waited / (waited + own),
        "own_microseconds_a_message": own * 1e6 / (size * batches),
    }


def _peak_megabytes() -> float:
    """Read the process's peak of resident memory."""
    status = Path("/proc/self/status")
    if status.exists():  # on Linux, getrusage includes the process before its exec
        words = status.read_text().split()
        return int(words[words.index("VmHWM:") + 1]) / 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1024 * 1024 if sys.platform == "darwin" else 1024)


def _print_memory(size: int, chains: int) -> None:
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    resources = Resources(None, "table", "tag", "queue", "dead", "bus", "events")  # type: ignore[arg-type]
    with _handler(resources, 8, _InstantClient()) as (handler, _):
        peaks = {"warm": _peak_megabytes()}
        event = make_event(0, chains, size)
        peaks["with_event"] = _peak_megabytes()
        _handle(handler, event)
        peaks["peak"] = _peak_megabytes()
    print(json.dumps(peaks))


def peak_memory(size: int, chains: int) -> dict[str, float]:
    """Measure, in a new process, the peaks of memory: warm, with the event, after the batch."""
    printed = run_process([sys.executable, "-m", "bench.handler", size, chains])
    peaks: dict[str, float] = json.loads(printed.splitlines()[-1])
    return peaks


def measure(quick: bool) -> Figures:
    """Measure batches of growing size, each over one chain, some, and one chain a message."""
    figures = {}
    with locked_aws() as aws:
        for size in [10, 100] if quick else [10, 100, 1000, 10_000]:
            for chains in sorted({1, min(10, size), min(1000, size), size}):
                batches = max(1, (50 if quick else 200) // max(chains, size // 20))
                figures[f"{size} over {chains}"] = {
                    **time_batches(create_resources(aws), size, chains, batches),
                    "megabytes": peak_memory(size, chains),
                }
    return figures


def describe(figures: Figures) -> Section:
    """Write the section."""
    table = Table(
        ["messages", "chains", "calls", "messages a second", "own µs a message", "share of calls",
         "at 5 ms a call", "MB warm", "MB peak"],
        note="*Own*: time outside of AWS calls, Powertools included. *Share of calls*: of the "
        "time. moto runs in this process and takes some 20 ms a call; *at 5 ms a call* is the "
        "share computed for DynamoDB's response time. *MB*: peak of resident memory in a process "
        "of its own, with eight workers and a client that stores nothing; warm is after a batch "
        "of ten, and the peak includes the event. The fewer calls a message needs, the more "
        "parsing weighs: a hundred messages of one chain are one call.",
    )  # fmt: skip
    goals = []
    for name, of in figures.items():
        size, chains = (f"{int(number):,}" for number in name.split(" over "))
        shares = (of[share] for share in ("share_in_calls", "share_in_calls_of_5_ms"))
        table.add(
            size, chains, of["calls"], of["messages_a_second"], of["own_microseconds_a_message"],
            *(f"{100 * share:.0f} %" for share in shares),
            *(f"{of['megabytes'][when]:.0f}" for when in ("warm", "peak")),
        )  # fmt: skip
        what = f"{size} messages over {chains} chains: share of calls"
        goals.append(Goal(what, of["share_in_calls"], 0.9, "more"))
    return Section(
        "The handler",
        "`lambda_src.consumer.handler` over moto in this process, with one worker. Each "
        "message is one request, the first of each chain its create; stamps are traced. Every "
        "chain of a batch is new.",
        [table],
        goals,
    )


if __name__ == "__main__":
    _print_memory(int(sys.argv[1]), int(sys.argv[2]))
