"""The consumer's handler: messages a second, and how much of its time its AWS calls take."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from io import StringIO
from time import perf_counter
from typing import Any
from unittest.mock import patch

from bench.harness import Goal, Section, Table, figure
from xorack.local.in_process import Resources, create_resources, locked_aws
from xorack.messages import Request, pack
from xorack.stamps import traced


class _Context:
    """What the handler asks of Lambda's context."""

    function_name = "consumer"
    memory_limit_in_mb = 1024
    invoked_function_arn = "arn:aws:lambda:us-east-1:123456789012:function:consumer"
    aws_request_id = "bench"

    def get_remaining_time_in_millis(self) -> int:
        return 600_000


class Timed:
    """A boto3 client whose calls are counted and timed."""

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


def event_of(batch: int, chains: int, size: int) -> dict[str, Any]:
    """An event of so many messages, one request each; each chain's first is its create."""
    records = []
    for number in range(size):
        tag = f"batch-{batch}/chain-{number % chains}"
        unit = traced((batch << 32) + number + 1)
        request = (
            Request.create(tag, f"r{number}", unit)
            if number < chains
            else Request.stamp_(tag, f"r{number}", unit, started=1)
        )
        records += [
            {"messageId": f"m{number}", "body": body, "eventSource": "aws:sqs"}
            for body in pack([request])
        ]
    return {"Records": records}


@contextmanager
def _handler(resources: Resources, workers: int) -> Iterator[tuple[Any, Timed]]:
    """The handler on these resources, and the client that it writes chains by."""
    with patch.dict(os.environ, resources.environ()), redirect_stdout(StringIO()):
        from lambda_src import consumer
        from xorack.consume import consume

        known = consumer.environment()
        client = Timed(known.store.client)
        with (
            patch.object(known.store, "client", client),
            patch.object(consumer, "consume", partial(consume, workers=workers)),
        ):
            yield consumer.handler, client


def measured(resources: Resources, size: int, chains: int, workers: int, batches: int) -> Any:
    """Handle batches, each of chains of its own."""
    with _handler(resources, workers) as (handler, client):
        events = [event_of(batch, chains, size) for batch in range(batches + 1)]
        handler(events.pop(), _Context())  # warm, as a function is after its first batch
        client.calls, client.seconds = 0, 0.0
        before = perf_counter()
        for event in events:
            if handler(event, _Context())["batchItemFailures"]:
                raise AssertionError("messages failed")
        took = perf_counter() - before
    return {
        "messages_a_second": size * batches / took,
        "calls": client.calls / batches,
        "share_in_calls": client.seconds / took,
        "own_microseconds_a_message": (took - client.seconds) * 1e6 / (size * batches),
    }


def run(quick: bool = False, large: bool = False) -> Section:
    """Measure batches of growing size, over one chain, some, and as many as there are messages."""
    sizes = [10, 100] if quick else [10, 100, 1000] + [10_000] * large
    table = Table(
        ["messages", "chains", "calls", "messages a second, one worker", "eight workers",
         "own µs a message", "share in the calls"],
        note="*Own*: outside of the AWS calls, powertools included. Calls of eight workers "
        "overlap, so the share is that of one. moto answers within this process and so shares its "
        "processor; DynamoDB answers while the function waits.",
    )  # fmt: skip
    section = Section(
        "handler",
        "The handler",
        "`lambda_src.consumer.handler` over moto in this process, without added latency: a message "
        "is one request, a chain's first is its create, stamps are traced. Every chain of a batch "
        "is new.",
        [table],
    )
    with locked_aws() as aws:
        for size in sizes:
            for chains in sorted({1, min(10, size), size}):
                batches = max(1, (50 if quick else 200) // max(chains, size // 20))
                resources = create_resources(aws)
                one = measured(resources, size, chains, 1, batches)
                resources = create_resources(aws)
                eight = measured(resources, size, chains, 8, batches)
                section.raw[f"{size} over {chains}"] = {"one": one, "eight": eight}
                table.rows.append(
                    [
                        f"{size:,}",
                        f"{chains:,}",
                        figure(one["calls"]),
                        figure(one["messages_a_second"]),
                        figure(eight["messages_a_second"]),
                        figure(one["own_microseconds_a_message"]),
                        f"{100 * one['share_in_calls']:.0f} %",
                    ]
                )
                what = f"{size:,} messages over {chains:,} chains: share of the time in calls"
                section.goals.append(Goal(what, one["share_in_calls"], 0.9, "more"))
    return section
