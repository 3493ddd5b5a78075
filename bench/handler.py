"""The consumer's handler: messages a second, the share of AWS calls in its time, memory.

``python -m bench.handler MESSAGES CHAINS`` prints the memory that a process needs for one batch.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from bench.harness import Figures, Goal, Plot, Section, Table, run_process
from tests.support.in_process import Resources, create_resources, locked_aws
from xorack.core.message import pack
from xorack.core.request import Request
from xorack.core.stamp import traced

_CALL_SECONDS = 0.005
"""An assumed response time of DynamoDB."""
_CONTEXT = SimpleNamespace(
    function_name="consumer",
    memory_limit_in_mb=1024,
    invoked_function_arn="arn:aws:lambda:us-east-1:123456789012:function:consumer",
    aws_request_id="bench",
    get_remaining_time_in_millis=lambda: 600_000,
)
"""The part of Lambda's context that the handler uses."""


class _InstantClient:
    """A client that responds at once and stores nothing: the memory measured is the handler's."""

    def update_item(self, **_: Any) -> dict[str, Any]:
        return {}

    get_item = update_item

    def batch_get_item(self, **arguments: Any) -> dict[str, Any]:
        return {"Responses": {table: [] for table in arguments["RequestItems"]}}


def make_event(batch: int, chains: int, size: int) -> dict[str, Any]:
    """Make an event of single-request messages; the first message of each chain is its create."""
    records = []
    for number in range(size):
        tag = f"batch-{batch}/chain-{number % chains}"
        op = "create" if number < chains else "stamp"
        (body,) = pack([Request(op, tag, f"r{number}", traced((batch << 32) + number + 1), 1)])
        records.append({"messageId": f"m{number}", "body": body, "eventSource": "aws:sqs"})
    return {"Records": records}


def handle(handler: Any, event: dict[str, Any]) -> None:
    """Handle an event; all its messages must succeed."""
    response = handler(event, _CONTEXT)
    assert not response["batchItemFailures"], response


@contextmanager
def open_handler(resources: Resources, workers: int) -> Iterator[tuple[Any, Any]]:
    """Import the handler; yield it and the clients that it makes, by service."""
    with patch.dict(os.environ, resources.environ()), redirect_stdout(StringIO()):
        from lambda_src import consumer, environment

        with patch.object(environment, "_WORKERS", workers):
            yield consumer.handler, environment.services().clients


@contextmanager
def _timed_calls(client: Any) -> Iterator[list[float]]:
    """List the seconds of a client's calls, boto3's own included."""
    seconds: list[float] = []

    def start(**_: Any) -> None:
        seconds.append(-perf_counter())

    def stop(**_: Any) -> None:
        seconds[-1] += perf_counter()

    client.meta.events.register_first("provide-client-params.dynamodb", start)
    client.meta.events.register_last("after-call.dynamodb", stop)
    try:
        yield seconds
    finally:
        client.meta.events.unregister("provide-client-params.dynamodb", start)
        client.meta.events.unregister("after-call.dynamodb", stop)


def time_batches(resources: Resources, size: int, chains: int, batches: int) -> dict[str, float]:
    """Handle batches of new chains with one worker; return rates and shares."""
    events = [make_event(batch, chains, size) for batch in range(batches)]
    with open_handler(resources, 1) as (handler, clients):
        handle(handler, make_event(1 << 20, 10, 10))  # a warm function
        with _timed_calls(clients["dynamodb"]) as calls:
            start = perf_counter()
            for event in events:
                handle(handler, event)
            seconds = perf_counter() - start
    own, waited = seconds - sum(calls), _CALL_SECONDS * len(calls)
    return {
        "messages_a_second": size * batches / seconds,
        "calls": len(calls) / batches,
        "share_in_calls": sum(calls) / seconds,
        "share_in_calls_of_5_ms": waited / (waited + own),
        "own_microseconds_a_message": own * 1e6 / (size * batches),
    }


def _print_memory(size: int, chains: int) -> None:
    """Handle a batch with eight workers; print the process's peak of resident memory in MB."""
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    resources = Resources(None, "table", "tag", "queue", "dead", "bus", "events")
    with open_handler(resources, 8) as (handler, clients):
        clients["dynamodb"] = _InstantClient()
        handle(handler, make_event(0, chains, size))
    status = Path("/proc/self/status")
    if status.exists():  # on Linux, getrusage includes the process before its exec
        words = status.read_text().split()
        print(int(words[words.index("VmHWM:") + 1]) / 1024)
    else:
        unit = 1024 * 1024 if sys.platform == "darwin" else 1024
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit)


def peak_megabytes(size: int, chains: int) -> float:
    """Measure the peak of memory in a new process."""
    printed = run_process([sys.executable, "-m", "bench.handler", size, chains])
    return float(printed.split()[-1])


def measure(quick: bool) -> Figures:
    """Measure batches of growing size, each over one chain, some, and one chain a message."""
    figures = {}
    with locked_aws() as aws:
        for size in [10, 100] if quick else [10, 100, 1000, 10_000]:
            for chains in sorted({1, min(10, size), min(1000, size), size}):
                batches = max(1, (50 if quick else 200) // max(chains, size // 20))
                figures[f"{size} over {chains}"] = {
                    **time_batches(create_resources(aws), size, chains, batches),
                    "megabytes": peak_megabytes(size, chains),
                }
    return figures


def describe(figures: Figures) -> Section:
    """Write the section."""
    table = Table(
        ["messages", "chains", "calls", "messages a second", "own µs a message", "share of calls",
         "at 5 ms a call", "MB"],
        note="*Own*: time outside of AWS calls, Powertools included. *Share of calls*: of the "
        "time. moto runs in this process and takes some 20 ms a call; *at 5 ms a call* is the "
        "share computed for DynamoDB's response time. *MB*: peak of resident memory in a process "
        "of its own, with eight workers and a client that stores nothing; it includes the event. "
        "The fewer calls a message needs, the more parsing weighs: a hundred messages of one "
        "chain are one call.",
    )  # fmt: skip
    goals, bars = [], {}
    for name, of in figures.items():
        size, chains = (f"{int(number):,}" for number in name.split(" over "))
        share, at_5_ms = (100 * of[key] for key in ("share_in_calls", "share_in_calls_of_5_ms"))
        table.add(
            size, chains, of["calls"], of["messages_a_second"], of["own_microseconds_a_message"],
            f"{share:.0f} %", f"{at_5_ms:.0f} %", f"{of['megabytes']:.0f}",
        )  # fmt: skip
        what = f"{size} messages over {chains} chains: share of calls"
        goals.append(Goal(what, of["share_in_calls"], 0.9, "more"))
        bars[name] = share
    text = "Share of AWS calls in the handler's time"
    axes = {
        "xlim": (0, 108),
        "xlabel": "% of the time in AWS calls (goal: 90)",
        "ylabel": "messages over chains",
    }
    return Section(
        "The handler",
        "`lambda_src.consumer.handler` over moto in this process, with one worker. Each "
        "message is one request, the first of each chain its create; stamps are traced. Every "
        "chain of a batch is new.",
        [table],
        goals,
        Plot(text, "bars", {"share": bars}, 4.2, axes, goal=90),
    )


if __name__ == "__main__":
    _print_memory(int(sys.argv[1]), int(sys.argv[2]))
