"""Measures many time-outs in a sweep, and many requests of one chain, with 5 ms for each call.

The table is a dictionary with DynamoDB's conditions, so that boto3 takes no time.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any

from bench.harness import Table
from bench.weighed_table import WeighedTable
from tests.support.chains import make_chain
from xorack.acker.chain_writer import ChainWriter
from xorack.acker.consumer import Consumer, Message
from xorack.acker.outbox import Outbox
from xorack.acker.parallel import Workers
from xorack.acker.sweeper import Sweeper
from xorack.aws import schema
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.eventbridge import EventBus
from xorack.aws.item import encode
from xorack.aws.retry import RetryPolicy
from xorack.core.chain import EVENT
from xorack.core.message import pack
from xorack.core.ports import DEFAULT_RETENTION_MS
from xorack.core.request import Request
from xorack.core.stamp import sum_of

CALL_SECONDS = 0.005
CONSUMERS = 5
WORKERS = 8
"""The threads of a Lambda function."""
MESSAGE_BYTES = 250_000
ONCE_A_SECOND = RetryPolicy(attempts=1000, cap_seconds=1.0)


class Bus:
    """A bus whose calls take a time and accept everything."""

    def describe_event_bus(self, Name: str) -> dict[str, Any]:
        time.sleep(CALL_SECONDS)
        return {}

    def put_events(self, Entries: list[Any]) -> dict[str, Any]:
        time.sleep(CALL_SECONDS)
        return {}


def sweep(chains: int, units: int) -> dict[str, float]:
    """Sweep chains whose deadline has passed, each with this number of outstanding units."""
    table = WeighedTable(CALL_SECONDS)
    for n in range(chains):
        stamp = sum_of(range(1 + n * units, 1 + (n + 1) * units), 16)
        times = dict.fromkeys(("first_seen_at", "created_at", "deadline", "due_at"), 1)
        chain = make_chain(f"run/{n}", stamp, "open", units, version=1, nonce=n, **times)
        table.items[chain.tag] = encode(chain, schema.TAG, DEFAULT_RETENTION_MS)
    writer = ChainWriter(DynamoDBStore("chains", client=table))
    outbox = Outbox(writer, {EVENT: EventBus("bus", Bus())}, workers=Workers(WORKERS))
    began, processor = time.monotonic(), time.process_time()
    result = Sweeper(writer, outbox).sweep()
    seconds, processor = time.monotonic() - began, time.process_time() - processor
    assert (result.ended, result.events) == ({"timed out": chains}, chains), result
    calls = sum(table.calls.values()) / chains
    return {"seconds": seconds, "processor": processor, "calls": calls}


def one_chain(count: int) -> dict[str, float]:
    """Let five consumers apply requests to one chain."""
    table, messages = WeighedTable(CALL_SECONDS), SimpleQueue[Message]()
    requests = (Request.stamp_("t", f"r{n}", starts=[n + 1]) for n in range(count))
    for n, body in enumerate(pack(requests, MESSAGE_BYTES)):
        messages.put(Message(str(n), body))
    total = messages.qsize()

    def consume(_: int) -> int:
        received = 0
        while True:
            try:
                message = messages.get_nowait()
            except Empty:
                return received
            received += 1
            store = DynamoDBStore("chains", client=table)
            writer = ChainWriter(store, policy=ONCE_A_SECOND)
            consumer = Consumer(writer, Outbox(writer, {}, workers=Workers(WORKERS)), lambda _: [])
            if consumer.consume([message]).failed:
                messages.put(message._replace(receives=message.receives + 1))

    began, processor = time.monotonic(), time.process_time()
    with ThreadPoolExecutor(CONSUMERS) as consumers:
        received = sum(consumers.map(consume, range(CONSUMERS)))
    seconds, processor = time.monotonic() - began, time.process_time() - processor
    assert int(table.items["t"]["started"]["N"]) == count, "each request is applied once"
    figures = {"seconds": seconds, "processor": processor, "messages": total}
    return figures | {"deliveries": received / total, "calls": table.calls.total()}


def measure(quick: bool) -> list[Table]:
    """Measure sweeps of chains with one and with many outstanding units, and growing chains."""
    chains, counts = (200, [1_000]) if quick else (5_000, [1_000, 10_000, 100_000])
    sweeps = Table(["time-outs", "units of each", "calls each", "ms of a processor", "s"])
    for units in (1, 30):
        of = sweep(chains, units)
        each = 1000 * of["processor"] / chains
        sweeps.add(f"{chains:,}", units, of["calls"], each, of["seconds"])
    head = ("messages", "deliveries each", "calls", "s of a processor", "s")
    large = Table(["requests of a chain", *head])
    for count in counts:
        of = one_chain(count)
        cells = (of["messages"], of["deliveries"], of["calls"], of["processor"], of["seconds"])
        large.add(f"{count:,}", *cells)
    return [sweeps, large]
