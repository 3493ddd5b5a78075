"""`DynamoDBAcker` and the consumer compared with xor-ack-dynamodb's method, on one endpoint."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from statistics import median
from typing import Any

from botocore.config import Config

from bench.harness import (
    Figures,
    Goal,
    Table,
    create_table,
    goal_table,
    interleaved,
    timed_calls,
)
from xorack.acker.chain_writer import ChainWriter
from xorack.acker.consumer import Consumer, Message
from xorack.acker.outbox import Outbox
from xorack.acker.parallel import Workers
from xorack.aws import schema
from xorack.aws.retry import RetryPolicy
from xorack.compat.dynamodb_acker import DynamoDBAcker
from xorack.core.message import pack
from xorack.core.request import Request
from xorack.core.stamp import traced, xor_bytes
from xorack.local.embedded import EmbeddedAWS

LATENCY = 0.004
"""Seconds added to each call, about DynamoDB's response time; the emulator responds at once."""
TABLE = "bench"
WRITERS = (1, 8, 64)
BATCH = 1_000
"""Messages of a consumer's batch."""
_ROOT = traced((1 << 64) - 1)
_PATIENT = RetryPolicy(attempts=1_000_000)


class Peer:
    """The method of xor-ack-dynamodb: consistent read, conditional put, the caller retries."""

    def __init__(self, table_name: str, client: Any) -> None:
        self.table = table_name
        self.client = client

    def create(self, tag: str, stamp: bytes) -> None:
        """Put the item."""
        self.client.put_item(
            TableName=self.table,
            Item={schema.TAG: {"S": tag}, "stamp": {"B": stamp}},
            ConditionExpression="attribute_not_exists(tag)",
        )

    def stamp(self, tag: str, stamp: bytes) -> bytes:
        """XOR a stamp; retry with back-off while other writers are faster."""
        key, retry = {schema.TAG: {"S": tag}}, _PATIENT.start()
        while True:
            response = self.client.get_item(TableName=self.table, Key=key, ConsistentRead=True)
            before = bytes(response["Item"]["stamp"]["B"])
            after = xor_bytes(before, stamp)
            condition = {
                "TableName": self.table,
                "ConditionExpression": "#s = :s",
                "ExpressionAttributeNames": {"#s": "stamp"},
                "ExpressionAttributeValues": {":s": {"B": before}},
            }
            try:
                if any(after):
                    self.client.put_item(Item={**key, "stamp": {"B": after}}, **condition)
                else:
                    self.client.delete_item(Key=key, **condition)
            except self.client.exceptions.ConditionalCheckFailedException:
                if not retry.again():
                    raise
            else:
                return after


def count_round_trips(client: Any, requests: int) -> dict[str, float]:
    """Count round trips per stamp of one writer on one chain."""
    writers = {
        "DynamoDBAcker": DynamoDBAcker(TABLE, schema.TAG, client),
        "xor-ack-dynamodb": Peer(TABLE, client),
    }
    round_trips = {}
    for way, writer in writers.items():
        tag = f"{way}-{requests}"
        writer.create(tag, traced(1))
        with timed_calls(client) as calls:
            for number in range(requests):
                writer.stamp(tag, traced(number + 2))
        round_trips[way] = len(calls) / requests
    return round_trips


def write_concurrently(
    stamp: Callable[[int, bytes], object], writers: int, seconds: float
) -> float:
    """Call ``stamp`` with the writer's number from several threads; return stamps a second."""
    start = threading.Barrier(writers)

    def write(writer: int) -> int:
        draw, stamps = random.Random(writer), 0
        start.wait()
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            stamp(writer, traced(draw.getrandbits(64) | 1))
            stamps += time.perf_counter() < deadline
        return stamps

    with ThreadPoolExecutor(writers) as pool:
        return sum(pool.map(write, range(writers))) / seconds


def _consume(consumer: Consumer, tag: str, seconds: float) -> float:
    """Consume batches of single requests; return stamps a second."""
    stamps, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        messages = []
        for number in range(stamps, stamps + BATCH):
            (body,) = pack([Request.stamp_(tag, str(number), traced(number + 1))])
            messages.append(Message(str(number), body))
        result = consumer.consume(messages)
        assert result.outcomes["applied"] == BATCH, result
        stamps += BATCH
    return stamps / (time.perf_counter() - start)


def _variants(client: Any, writers: int, seconds: float) -> dict[str, Callable[[], float]]:
    tags = (f"chain-{writers}-{number}" for number in count())

    def acker() -> DynamoDBAcker:
        return DynamoDBAcker(TABLE, schema.TAG, client, policy=_PATIENT)

    def concurrently(ackers: Sequence[Peer | DynamoDBAcker]) -> float:
        tag = next(tags)
        ackers[0].create(tag, _ROOT)
        with timed_calls(client, LATENCY):
            return write_concurrently(
                lambda writer, stamp: ackers[writer % len(ackers)].stamp(tag, stamp),
                writers, seconds,
            )  # fmt: skip

    def consume() -> float:
        tag, ours = next(tags), acker()
        ours.create(tag, _ROOT)
        chains, workers = ChainWriter(ours.store), Workers(8)
        # No chain ends and no request is rejected.
        consumer = Consumer(chains, Outbox(chains, {}, workers=workers), None, workers=workers)
        with timed_calls(client, LATENCY):
            return _consume(consumer, tag, seconds)

    return {
        "xor-ack-dynamodb": lambda: concurrently([Peer(TABLE, client)]),
        "an acker each": lambda: concurrently([acker() for _ in range(writers)]),
        "one acker": lambda: concurrently([acker()]),
        "consumer": consume,
    }


def measure(quick: bool) -> Figures:
    """Count round trips, and measure stamps a second."""
    rounds, seconds = (1, 0.3) if quick else (3, 6.0)
    figures: Figures = {"rounds": rounds, "seconds": seconds}
    figures |= {"round_trips": {}, "stamps_a_second": {}}
    with EmbeddedAWS() as aws:
        client = aws.client("dynamodb", config=Config(max_pool_connections=128))
        create_table(client, TABLE)
        for requests in (10, 60, 200 if quick else 1000):
            figures["round_trips"][str(requests)] = count_round_trips(client, requests)
        for writers in WRITERS:
            speeds = interleaved(_variants(client, writers, seconds), rounds)
            figures["stamps_a_second"][str(writers)] = {n: median(of) for n, of in speeds.items()}
    return figures


def tables(figures: Figures) -> list[Table]:
    """Make the tables."""
    goals = []
    trips = Table(["stamp requests on one chain", *next(iter(figures["round_trips"].values()))])
    for requests, of in figures["round_trips"].items():
        trips.add(f"{int(requests):,}", *of.values())
        what = f"round trips a stamp, {int(requests):,} on one chain"
        goals.append(Goal(what, of["DynamoDBAcker"], 1.1, "less"))
    speeds = Table(["writers", *next(iter(figures["stamps_a_second"].values()))])
    for writers, of in figures["stamps_a_second"].items():
        speeds.add(writers, *of.values())
    peer = of["xor-ack-dynamodb"]
    for way in list(of)[1:]:
        what = f"{writers} writers, {way}: times xor-ack-dynamodb"
        goals.append(Goal(what, of[way] / max(peer, 1e-9), 20, "more"))
    return [trips, speeds, goal_table(goals)]
