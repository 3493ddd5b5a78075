"""The consumer's handler: messages a second, how much of its time its AWS calls take, memory.

``python -m bench.handling MESSAGES CHAINS`` prints the memory of one batch, of its own process.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest.mock import patch

from bench.harness import Goal, Section, Table, figure
from tests.support.in_process import Resources, create_resources, locked_aws
from xorack.core.message import pack
from xorack.core.request import Request
from xorack.core.stamp import traced

_CALL_SECONDS = 0.005
"""What an update of an item may take on AWS, until it is answered."""


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
def _handler(
    resources: Resources, workers: int, instead: Any = None
) -> Iterator[tuple[Any, Timed]]:
    """The handler on these resources, and the client that it writes chains by, or one instead."""
    with patch.dict(os.environ, resources.environ()), redirect_stdout(StringIO()):
        from lambda_src import consumer
        from xorack.acker.consumer import consume

        known = consumer.environment()
        client = Timed(known.store.client if instead is None else instead)
        with (
            patch.object(known.store, "client", client),
            patch.object(consumer, "consume", partial(consume, workers=workers)),
        ):
            yield consumer.handler, client


def measured(resources: Resources, size: int, chains: int, workers: int, batches: int) -> Any:
    """Handle batches, each of chains of its own."""
    with _handler(resources, workers) as (handler, client):
        events = [event_of(batch, chains, size) for batch in range(batches)]
        handler(event_of(batches, 10, 10), _Context())  # warm, as a function is after a batch
        client.calls, client.seconds = 0, 0.0
        before = perf_counter()
        for event in events:
            if handler(event, _Context())["batchItemFailures"]:
                raise AssertionError("messages failed")
        took = perf_counter() - before
    own, waited = took - client.seconds, _CALL_SECONDS * client.calls
    return {
        "messages_a_second": size * batches / took,
        "calls": client.calls / batches,
        "share_in_calls": client.seconds / took,
        "share_in_calls_of_5_ms": waited / (waited + own),
        "own_microseconds_a_message": own * 1e6 / (size * batches),
    }


class _Instant:
    """A client that answers at once and keeps nothing: what memory is taken is the handler's."""

    def update_item(self, **_: Any) -> dict[str, Any]:
        """Written."""
        return {}

    batch_write_item = get_item = update_item

    def batch_get_item(self, **asked: Any) -> dict[str, Any]:
        """Nothing there."""
        return {"Responses": {table: [] for table in asked["RequestItems"]}}


def _high_water() -> float:
    """The most memory that this process had, MB."""
    status = Path("/proc/self/status")
    if status.exists():  # on Linux getrusage also counts what the process was before it was this
        words = status.read_text().split()
        return int(words[words.index("VmHWM:") + 1]) / 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1024 * 1024 if sys.platform == "darwin" else 1024)


def memory_of(size: int, chains: int) -> dict[str, float]:
    """The process's high water before a batch, with the batch itself, and after it was handled."""
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    resources = Resources(None, "table", "tag", "queue", "dead", "bus", "events")  # type: ignore[arg-type]
    with _handler(resources, 8, _Instant()) as (handler, _):
        handler(event_of(1, 10, 10), _Context())
        warm = _high_water()
        event = event_of(0, chains, size)
        given = _high_water()
        if handler(event, _Context())["batchItemFailures"]:
            raise AssertionError("messages failed")
        return {"warm": warm, "with_event": given, "peak": _high_water()}


def _memory(size: int, chains: int) -> dict[str, float]:
    """The same, in a process of its own."""
    command = [sys.executable, "-m", "bench.handling", str(size), str(chains)]
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


LARGEST = 10_000
"""Messages of the largest batch that Lambda hands over."""


def run(quick: bool = False) -> Section:
    """Measure batches of growing size, over one chain, some, and as many as there are messages."""
    sizes = [10, 100] if quick else [10, 100, 1000, LARGEST]
    table = Table(
        ["messages", "chains", "calls", "messages a second, one worker", "eight workers",
         "own µs a message", "share in the calls", "were a call 5 ms", "MB warm", "MB at most"],
        note="*Own*: outside of the AWS calls, powertools included. Calls of eight workers "
        "overlap, so the share is that of one. moto answers within this process and so shares its "
        "processor, and takes some 20 ms; DynamoDB answers sooner, while the function waits: *were "
        "a call 5 ms* is the share with the calls' number and the handler's own time as measured. "
        "*MB*: the high water of a process of its own, with eight workers and a client that "
        "answers at once and keeps nothing; warm is after a batch of ten, and the batch itself, as "
        "Lambda hands it over, is in the most. The fewer calls a message needs, the more its own "
        "reading weighs: a hundred messages of one chain are one call.",
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
            for chains in sorted({1, min(10, size), min(1000, size), size}):
                batches = max(1, (50 if quick else 200) // max(chains, size // 20))
                resources = create_resources(aws)
                one = measured(resources, size, chains, 1, batches)
                resources = create_resources(aws)
                # Ten thousand chains once: moto alone takes minutes for them.
                eight = None if chains == LARGEST else measured(resources, size, chains, 8, batches)
                memory = _memory(size, chains)
                section.raw[f"{size} over {chains}"] = {
                    "one": one, "eight": eight, "megabytes": memory,
                }  # fmt: skip
                table.rows.append(
                    [
                        f"{size:,}",
                        f"{chains:,}",
                        figure(one["calls"]),
                        figure(one["messages_a_second"]),
                        figure(eight["messages_a_second"]) if eight else "",
                        figure(one["own_microseconds_a_message"]),
                        f"{100 * one['share_in_calls']:.0f} %",
                        f"{100 * one['share_in_calls_of_5_ms']:.0f} %",
                        f"{memory['warm']:.0f}",
                        f"{memory['peak']:.0f}",
                    ]
                )
                what = f"{size:,} messages over {chains:,} chains: share of the time in calls"
                section.goals.append(Goal(what, one["share_in_calls"], 0.9, "more"))
    return section


if __name__ == "__main__":
    print(json.dumps(memory_of(int(sys.argv[1]), int(sys.argv[2]))))
