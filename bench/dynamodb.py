"""`DynamoDBAcker` and the consumer compared with xor-ack-dynamodb's method, on one endpoint."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from botocore.config import Config

from bench.harness import Figures, Goal, Section, Table, interleaved, medians
from bench.marks import Weighing
from tests.support.fakes import FakeBus, FakeDeadLetters
from tests.support.in_process import Resources, create_resources
from tests.support.services import Message, consume
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.client.dynamodb_acker import DynamoDBAcker
from xorack.core.chain import Chain
from xorack.core.message import pack
from xorack.core.request import Request
from xorack.core.retry import RetryPolicy
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


class _WeighedStore(Weighing, DynamoDBStore):
    def read(self, tags: Sequence[str]) -> dict[str, Chain]:
        """Weigh a read for each chain."""
        self.reads += len(tags)
        return super().read(tags)


@contextmanager
def counted_calls(client: Any, latency: float = 0.0) -> Iterator[Counter[str]]:
    """Count a client's requests by operation, and delay each by some seconds."""
    counts: Counter[str] = Counter()

    def before_send(request: Any, event_name: str, **_: Any) -> None:
        counts[event_name.rsplit(".", 1)[-1]] += 1
        time.sleep(latency)

    client.meta.events.register_first("before-send.dynamodb", before_send)
    try:
        yield counts
    finally:
        client.meta.events.unregister("before-send.dynamodb", before_send)


def count_units(resources: Resources, requests: int) -> dict[str, dict[str, float]]:
    """Count round trips and capacity units per stamp of one writer on one chain."""
    client, tag = resources.client("dynamodb"), f"counted-{requests}"
    names = (resources.table_name, resources.partition_key, client)
    acker, peer = DynamoDBAcker(*names), Peer(*names)
    acker.store = acker._writer.store = store = _WeighedStore(*names)
    acker.create(tag, traced(1))
    peer.create(f"peer-{tag}", traced(1))
    before = store.writes
    with counted_calls(client) as ours:
        for number in range(requests):
            acker.stamp(tag, traced(number + 2))
    with counted_calls(client) as theirs:
        for number in range(requests):
            peer.stamp(f"peer-{tag}", traced(number + 2))
    # The peer's item stays below 1 KB, so each of its calls is one unit.
    totals = {
        "DynamoDBAcker": (sum(ours.values()), store.writes - before, store.reads),
        "xor-ack-dynamodb": (sum(theirs.values()), theirs["PutItem"], theirs["GetItem"]),
    }
    kinds = ("round_trips", "write_units", "read_units")
    return {
        name: {kind: total / requests for kind, total in zip(kinds, of, strict=True)}
        for name, of in totals.items()
    }


def write_concurrently(
    stamp: Callable[[int, bytes], object], writers: int, seconds: float
) -> float:
    """Call ``stamp`` with the writer's number from several threads; return stamps a second."""
    start = threading.Barrier(writers)

    def write(writer: int) -> int:
        draw, done = random.Random(writer), 0
        start.wait()
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            stamp(writer, traced(draw.getrandbits(64) | 1))
            done += time.perf_counter() < deadline
        return done

    with ThreadPoolExecutor(writers) as pool:
        return sum(pool.map(write, range(writers))) / seconds


def _consume(store: DynamoDBStore, tag: str, seconds: float) -> float:
    """Consume batches of single requests; return stamps a second."""
    done, before = 0, time.perf_counter()
    while time.perf_counter() - before < seconds:
        messages = []
        for number in range(done, done + BATCH):
            request = Request.stamp_(tag, str(number), traced(number + 1))
            messages += [Message(str(number), body) for body in pack([request])]
        result = consume(messages, store, FakeBus(), FakeDeadLetters())
        assert result.outcomes["applied"] == BATCH, result
        done += BATCH
    return done / (time.perf_counter() - before)


def _variants(resources: Resources, writers: int, seconds: float) -> dict[str, Callable[[], float]]:
    client = resources.client("dynamodb", config=Config(max_pool_connections=128))
    names = (resources.table_name, resources.partition_key, client)
    tags = (f"chain-{writers}-{number}" for number in range(1_000_000))

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
    rounds, seconds = (1, 0.3) if quick else (3, 3.0)
    figures: Figures = {"rounds": rounds, "seconds": seconds}
    with EmbeddedAWS() as aws:
        resources = create_resources(aws)
        figures["counts"] = {
            str(requests): count_units(resources, requests)
            for requests in ((10, 60, 200) if quick else (10, 60, 1000))
        }
        figures["stamps_a_second"] = {
            str(writers): medians(
                interleaved(_variants(create_resources(aws), writers, seconds), rounds)
            )
            for writers in WRITERS
        }
    return figures


def describe(figures: Figures) -> Section:
    """Write the section."""
    counts = Table(
        ["stamp requests on one chain", "way", "round trips a stamp", "write units", "read units"],
        note="One writer, without contention; the create is not counted. An item holds the marks "
        "of a chain's last 64 requests; older marks are copied out, 25 a call. The consumer looks "
        "up the marks of requests from the queue. The direct API draws its ids itself and knows "
        "that they are new ([adr/0002](adr/0002-marks.md)). The peer has no marks: it applies a "
        "stamp twice when a response is lost.",
    )
    goals = []
    for requests, ways in figures["counts"].items():
        for way, of in ways.items():
            counts.add(f"{int(requests):,}", way, *map(float, of.values()))
        what = f"round trips a stamp, {int(requests):,} on one chain"
        goals.append(Goal(what, ways["DynamoDBAcker"]["round_trips"], 1.1, "less"))
    speeds = Table(
        ["writers", *next(iter(figures["stamps_a_second"].values()))],
        note=f"Stamps a second on one chain; each call waits {LATENCY * 1000:g} ms, about "
        f"DynamoDB's response time. {figures['rounds']} rounds in turn of {figures['seconds']:g} "
        "s. *xor-ack-dynamodb*: its caller retries with back-off. *An acker each*: as in separate "
        "processes; conditional writes of one item have one winner a round trip. *One acker*: its "
        "threads' stamps share writes. *Consumer*: one, with batches of 1,000 messages of one "
        "request each.",
    )
    for writers, of in figures["stamps_a_second"].items():
        speeds.add(writers, *of.values())
    peer, *others = of.items()
    for way, speed in others:
        what = f"{writers} writers, {way}: times xor-ack-dynamodb"
        goals.append(Goal(what, speed / max(peer[1], 1e-9), 20, "more"))
    return Section(
        "Over DynamoDB",
        "One table in the embedded AWS, a separate process. The peer, xor-ack-dynamodb, is "
        "reimplemented: a consistent `GetItem`, a conditional `PutItem` of the whole item "
        "(`DeleteItem` at zero), and a caller that retries on a conflict. Traced stamps, 648 "
        "bytes.",
        [counts, speeds],
        goals,
    )
