"""`DynamoDBAcker` and the consumer compared with xor-ack-dynamodb's method, on one endpoint."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Any

from botocore.config import Config

from bench.harness import Figures, Goal, Plot, Section, Table, interleaved, medians
from tests.support.fakes import FakeBus, FakeDeadLetters
from tests.support.in_process import Resources, create_resources
from tests.support.services import Message, consume
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.retry import RetryPolicy
from xorack.compat.dynamodb_acker import DynamoDBAcker
from xorack.core.message import pack
from xorack.core.request import Request
from xorack.core.stamp import traced, xor_bytes
from xorack.local.embedded import EmbeddedAWS

LATENCY = 0.004
"""Seconds added to each call, about DynamoDB's response time; the emulator responds at once."""
WRITERS = (1, 8, 64)
BATCH = 1_000
"""Messages of a consumer's batch."""
_ROOT = traced((1 << 64) - 1)
_PATIENT = RetryPolicy(attempts=1_000_000)


class Peer:
    """The method of xor-ack-dynamodb: consistent read, conditional put, the caller retries."""

    def __init__(self, table_name: str, partition_key: str, client: Any) -> None:
        self.table = table_name
        self.key = partition_key
        self.client = client

    def create(self, tag: str, stamp: bytes) -> None:
        """Put the item."""
        self.client.put_item(
            TableName=self.table,
            Item={self.key: {"S": tag}, "stamp": {"B": stamp}},
            ConditionExpression="attribute_not_exists(#k)",
            ExpressionAttributeNames={"#k": self.key},
        )

    def stamp(self, tag: str, stamp: bytes) -> bytes:
        """XOR a stamp; retry with back-off while other writers are faster."""
        key, retry = {self.key: {"S": tag}}, _PATIENT.start()
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


@contextmanager
def counted_calls(client: Any, latency: float = 0.0) -> Iterator[list[str]]:
    """List a client's requests by operation, and delay each by some seconds."""
    operations: list[str] = []

    def before_send(request: Any, event_name: str, **_: Any) -> None:
        operations.append(event_name.rsplit(".", 1)[-1])
        time.sleep(latency)

    client.meta.events.register_first("before-send.dynamodb", before_send)
    try:
        yield operations
    finally:
        client.meta.events.unregister("before-send.dynamodb", before_send)


def count_round_trips(resources: Resources, requests: int) -> dict[str, float]:
    """Count round trips per stamp of one writer on one chain."""
    client = resources.client("dynamodb")
    names = (resources.table_name, resources.partition_key, client)
    writers = {"DynamoDBAcker": DynamoDBAcker(*names), "xor-ack-dynamodb": Peer(*names)}
    round_trips = {}
    for way, writer in writers.items():
        tag = f"{way}-{requests}"
        writer.create(tag, traced(1))
        with counted_calls(client) as operations:
            for number in range(requests):
                writer.stamp(tag, traced(number + 2))
        round_trips[way] = len(operations) / requests
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


def _consume(store: DynamoDBStore, tag: str, seconds: float) -> float:
    """Consume batches of single requests; return stamps a second."""
    stamps, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        messages = []
        for number in range(stamps, stamps + BATCH):
            (body,) = pack([Request.stamp_(tag, str(number), traced(number + 1))])
            messages.append(Message(str(number), body))
        result = consume(messages, store, FakeBus(), FakeDeadLetters())
        assert result.outcomes["applied"] == BATCH, result
        stamps += BATCH
    return stamps / (time.perf_counter() - start)


def _variants(resources: Resources, writers: int, seconds: float) -> dict[str, Callable[[], float]]:
    client = resources.client("dynamodb", config=Config(max_pool_connections=128))
    names = (resources.table_name, resources.partition_key, client)
    tags = (f"chain-{writers}-{number}" for number in count())

    def acker() -> DynamoDBAcker:
        return DynamoDBAcker(*names, policy=_PATIENT)

    def concurrently(ackers: Sequence[Peer | DynamoDBAcker]) -> float:
        tag = next(tags)
        ackers[0].create(tag, _ROOT)
        with counted_calls(client, LATENCY):
            return write_concurrently(
                lambda writer, stamp: ackers[writer % len(ackers)].stamp(tag, stamp),
                writers, seconds,
            )  # fmt: skip

    def consumer() -> float:
        tag, ours = next(tags), acker()
        ours.create(tag, _ROOT)
        with counted_calls(client, LATENCY):
            return _consume(ours.store, tag, seconds)

    return {
        "xor-ack-dynamodb": lambda: concurrently([Peer(*names)]),
        "an acker each": lambda: concurrently([acker() for _ in range(writers)]),
        "one acker": lambda: concurrently([acker()]),
        "consumer": consumer,
    }


def measure(quick: bool) -> Figures:
    """Count capacity units, and measure stamps a second."""
    rounds, seconds = (1, 0.3) if quick else (3, 6.0)
    figures: Figures = {"rounds": rounds, "seconds": seconds}
    figures |= {"round_trips": {}, "stamps_a_second": {}}
    with EmbeddedAWS() as aws:
        resources = create_resources(aws)
        for requests in (10, 60, 200 if quick else 1000):
            figures["round_trips"][str(requests)] = count_round_trips(resources, requests)
        for writers in WRITERS:
            speeds = interleaved(_variants(create_resources(aws), writers, seconds), rounds)
            figures["stamps_a_second"][str(writers)] = medians(speeds)
    return figures


def describe(figures: Figures) -> Section:
    """Write the section."""
    trips = Table(
        ["stamp requests on one chain", *next(iter(figures["round_trips"].values()))],
        note="Round trips a stamp of one writer, without contention; the create is not counted. "
        "An item holds the marks of a chain's last 64 requests; older ones are copied to buckets, "
        "a call for each bucket. The direct API draws its ids itself and knows that they are new: "
        "it looks up no marks ([adr/0002](adr/0002-marks.md), also for write units). The peer has "
        "no marks: it applies a stamp twice when a response is lost.",
    )
    goals = []
    for requests, of in figures["round_trips"].items():
        trips.add(f"{int(requests):,}", *of.values())
        what = f"round trips a stamp, {int(requests):,} on one chain"
        goals.append(Goal(what, of["DynamoDBAcker"], 1.1, "less"))
    speeds = Table(
        ["writers", *next(iter(figures["stamps_a_second"].values()))],
        note=f"Stamps a second on one chain; each call waits {LATENCY * 1000:g} ms, about "
        f"DynamoDB's response time. {figures['rounds']} rounds in turn of {figures['seconds']:g} "
        "s. *xor-ack-dynamodb*: its caller retries with the same exponential back-off as an acker. "
        "*An acker each*: as in separate processes. Of the concurrent writes of one item one "
        "succeeds; the other writers back off, and nothing remembers the contention afterwards. "
        "*One acker*: its threads' stamps share writes. *Consumer*: one, with batches of 1,000 "
        "messages of one request each. If many processes write one chain, use the queue.",
    )
    series: dict[str, dict[str, float]] = defaultdict(dict)
    for writers, of in figures["stamps_a_second"].items():
        speeds.add(writers, *of.values())
        for way, speed in of.items():
            series[way][f"{writers} writer{'s' * (writers != '1')}"] = speed
    peer = of["xor-ack-dynamodb"]
    for way in list(of)[1:]:
        what = f"{writers} writers, {way}: times xor-ack-dynamodb"
        goals.append(Goal(what, of[way] / max(peer, 1e-9), 20, "more"))
    axes = {"yscale": "log", "ylabel": "stamps a second (more is better)"}
    return Section(
        "Over DynamoDB",
        "One table in the embedded AWS, a separate process. The peer, xor-ack-dynamodb, is "
        "reimplemented: a consistent `GetItem`, a conditional `PutItem` of the whole item "
        "(`DeleteItem` at zero), and a caller that retries on a conflict. Traced stamps, 648 "
        "bytes.",
        [trips, speeds],
        goals,
        Plot("Stamps a second over DynamoDB", "groups", series, 3.8, axes),
    )
