"""`DynamoDBAcker` and the consumer compared with xor-ack-dynamodb's method, on one endpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice
from statistics import median
from threading import Barrier
from time import perf_counter
from typing import Any

from botocore.config import Config

from bench.harness import Figures, Goal, Table, goal_table, interleaved, timed_calls
from tests.support.in_process import definitions
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
PEER = "xor-ack-dynamodb"
_ROOT = traced((1 << 64) - 1)
_PATIENT = RetryPolicy(attempts=1_000_000)


class Peer:
    """The method of xor-ack-dynamodb: consistent read, conditional put, the caller retries."""

    def __init__(self, client: Any, table: str = TABLE) -> None:
        self.client, self.table = client, table

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
    writers = {"DynamoDBAcker": DynamoDBAcker(TABLE, schema.TAG, client), PEER: Peer(client)}
    round_trips = {}
    for way, writer in writers.items():
        tag = f"{way}-{requests}"
        writer.create(tag, traced(1))
        with timed_calls(client) as calls:
            for number in range(requests):
                writer.stamp(tag, traced(number + 2))
        round_trips[way] = len(calls) / requests
    return round_trips


def stamps_a_second(stamp: Callable[[int], object], threads: int, seconds: float) -> float:
    """Call ``stamp`` with the thread's number from several threads; return those done in time."""
    start = Barrier(threads)

    def write(thread: int) -> int:
        start.wait()
        stamps, deadline = 0, perf_counter() + seconds
        while perf_counter() < deadline:
            stamp(thread)
            stamps += perf_counter() < deadline
        return stamps

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(write, range(threads))) / seconds


def _variants(client: Any, writers: int, seconds: float) -> dict[str, Callable[[], float]]:
    tags = (f"chain-{writers}-{number}" for number in count())
    numbers = count(1)

    def acker() -> DynamoDBAcker:
        return DynamoDBAcker(TABLE, schema.TAG, client, policy=_PATIENT)

    def concurrently(ackers: Sequence[Peer | DynamoDBAcker]) -> float:
        tag = next(tags)
        ackers[0].create(tag, _ROOT)

        def stamp(writer: int) -> None:
            ackers[writer % len(ackers)].stamp(tag, traced(next(numbers)))

        with timed_calls(client, LATENCY):
            return stamps_a_second(stamp, writers, seconds)

    def consume() -> float:
        tag, ours = next(tags), acker()
        ours.create(tag, _ROOT)
        chains = ChainWriter(ours.store)
        # No chain ends and no request is rejected.
        consumer = Consumer(chains, Outbox(chains, {}, workers=Workers(8)), lambda rejected: [])

        def batch() -> None:
            messages = []
            for number in islice(numbers, BATCH):
                (body,) = pack([Request.stamp_(tag, str(number), traced(number))])
                messages.append(Message(str(number), body))
            result = consumer.consume(messages)
            assert result.outcomes["applied"] == BATCH, result

        batches, begun = 0, perf_counter()
        with timed_calls(client, LATENCY):
            while perf_counter() - begun < seconds:
                batch()
                batches += 1
        return batches * BATCH / (perf_counter() - begun)

    return {
        PEER: lambda: concurrently([Peer(client)]),
        "an acker each": lambda: concurrently([acker() for _ in range(writers)]),
        "one acker": lambda: concurrently([acker()]),
        "consumer": consume,
    }


def measure(quick: bool) -> Figures:
    """Count round trips, and measure stamps a second."""
    rounds, seconds = (1, 0.3) if quick else (3, 6.0)
    trips, speeds = {}, {}
    with EmbeddedAWS() as aws:
        client = aws.client("dynamodb", config=Config(max_pool_connections=128))
        table = definitions().table
        client.create_table(TableName=TABLE, BillingMode="PAY_PER_REQUEST", **table)
        for requests in (10, 60, 200 if quick else 1000):
            trips[str(requests)] = count_round_trips(client, requests)
        for writers in WRITERS:
            of_rounds = interleaved(_variants(client, writers, seconds), rounds)
            speeds[str(writers)] = {name: median(of) for name, of in of_rounds.items()}
    return {"rounds": rounds, "seconds": seconds, "round_trips": trips, "stamps_a_second": speeds}


def tables(figures: Figures) -> list[Table]:
    """Make the tables."""
    goals = []
    trips = Table(["stamp requests on one chain", "DynamoDBAcker", PEER])
    for requests, of in figures["round_trips"].items():
        trips.add(f"{int(requests):,}", *of.values())
        what = f"round trips a stamp, {int(requests):,} on one chain"
        goals.append(Goal(what, of["DynamoDBAcker"], 1.1, "less"))
    speeds = Table(["writers", PEER, "an acker each", "one acker", "consumer"])
    for writers, of in figures["stamps_a_second"].items():
        speeds.add(writers, *of.values())
    peer, *ours = of
    for way in ours:
        what = f"{writers} writers, {way}: times {peer}"
        goals.append(Goal(what, of[way] / max(of[peer], 1e-9), 20, "more"))
    return [trips, speeds, goal_table(goals)]
