"""`DynamoDBAcker` and the consumer against the way of xor-ack-dynamodb, over the same endpoint."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import ceil
from typing import Any

from botocore.exceptions import ClientError

from bench.harness import Goal, Section, Table, figure, interleaved, medians
from bench.marks import item_bytes
from tests.support.in_process import Resources, create_resources
from tests.support.services import Message, consume
from xorack.acker.memory_store import MemoryStore
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.client.dynamodb_acker import DynamoDBAcker
from xorack.core.chain import Chain
from xorack.core.errors import StaleLocalData, TagExists, TagNotFound
from xorack.core.message import pack
from xorack.core.request import Request
from xorack.core.retry import RetryPolicy
from xorack.core.stamp import traced, xor_bytes
from xorack.local.embedded import EmbeddedAWS

LATENCY = 0.004
"""Seconds added to each call: about what DynamoDB takes to answer; an emulator answers at once."""
WRITERS = (1, 8, 64)
SINGLE = "one chain"
MANY = "a chain each"


class Peer:
    """What xor-ack-dynamodb does: consistent read, conditional put, and the caller retries."""

    def __init__(self, table_name: str, partition_key: str, client: Any) -> None:
        self.table = table_name
        self.key = partition_key
        self.client = client

    def _guarded(self, tag: str, call: Callable[[], object]) -> None:
        try:
            call()
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise
            raise StaleLocalData(tag, 1) from error

    def create(self, tag: str, stamp: bytes) -> None:
        """Put the item unless it is there."""
        item = {self.key: {"S": tag}, "stamp": {"B": stamp}}
        try:
            self._guarded(
                tag,
                lambda: self.client.put_item(
                    TableName=self.table,
                    Item=item,
                    ConditionExpression="attribute_not_exists(#k)",
                    ExpressionAttributeNames={"#k": self.key},
                ),
            )
        except StaleLocalData as error:
            raise TagExists(tag) from error

    def stamp(self, tag: str, stamp: bytes) -> bytes:
        """XOR once; `StaleLocalData` if another was faster."""
        key = {self.key: {"S": tag}}
        found = self.client.get_item(TableName=self.table, Key=key, ConsistentRead=True)
        if "Item" not in found:
            raise TagNotFound(tag)
        held = bytes(found["Item"]["stamp"]["B"])
        left = xor_bytes(held, stamp)
        condition: dict[str, Any] = {
            "TableName": self.table,
            "ConditionExpression": "#s = :s",
            "ExpressionAttributeNames": {"#s": "stamp"},
            "ExpressionAttributeValues": {":s": {"B": held}},
        }
        if any(left):
            item = {**key, "stamp": {"B": left}}
            self._guarded(tag, lambda: self.client.put_item(Item=item, **condition))
        else:
            self._guarded(tag, lambda: self.client.delete_item(Key=key, **condition))
        return left

    def stamp_retrying(self, tag: str, stamp: bytes, policy: RetryPolicy | None) -> bytes:
        """What its caller has to write: try again, at once or by a policy."""
        retry = policy.start() if policy else None
        while True:
            try:
                return self.stamp(tag, stamp)
            except StaleLocalData:
                if retry is not None and not retry.again():
                    raise


class WeighedStore(DynamoDBStore):
    """The store, with what DynamoDB would charge for its calls."""

    write_units = 0
    read_units = 0.0

    def write(self, before: Chain | None, after: Chain) -> None:
        """Weigh a write, also one that is refused."""
        sizes = [item_bytes(self.to_item(chain)) for chain in (before, after) if chain]
        self.write_units += ceil(max(sizes) / 1024)
        super().write(before, after)

    def put_spilled_marks(self, chain: Chain, marks: bytes, until: int) -> None:
        """A unit each mark."""
        self.write_units += len(marks) // 16
        super().put_spilled_marks(chain, marks, until)

    def _batch_get(self, keys: list[str]) -> Iterator[dict[str, dict[str, Any]]]:
        self.read_units += len(keys)  # none of these is larger than 4 KB
        return super()._batch_get(keys)


@contextmanager
def calls_of(client: Any, latency: float = 0.0) -> Iterator[Counter[str]]:
    """Count a client's requests by operation as they leave, and delay each."""
    counts: Counter[str] = Counter()

    def sent(request: Any, event_name: str, **_: Any) -> None:
        counts[event_name.rsplit(".", 1)[-1]] += 1
        if latency:
            time.sleep(latency)

    client.meta.events.register_first("before-send.dynamodb", sent)
    try:
        yield counts
    finally:
        client.meta.events.unregister("before-send.dynamodb", sent)


def counted(resources: Resources, requests: int) -> dict[str, dict[str, float]]:
    """Round trips and capacity units a stamp request of one writer on one chain."""
    client = resources.client("dynamodb")
    out: dict[str, dict[str, float]] = {}
    tag = f"counted-{requests}"

    acker = DynamoDBAcker(resources.table_name, resources.partition_key, client)
    store = WeighedStore(resources.table_name, resources.partition_key, client)
    acker.store = store
    acker.create(tag, traced(1))
    written = store.write_units
    with calls_of(client) as counts:
        for number in range(requests):
            acker.stamp(tag, traced(number + 2))
    out["DynamoDBAcker"] = {
        "round_trips": sum(counts.values()) / requests,
        "write_units": (store.write_units - written) / requests,
        "read_units": store.read_units / requests,
    }

    peer = Peer(resources.table_name, resources.partition_key, client)
    peer.create("peer-" + tag, traced(1))
    with calls_of(client) as counts:
        for number in range(requests):
            peer.stamp("peer-" + tag, traced(number + 2))
    # Its item, key, stamp and a read of it: below 1 KB, so one of each.
    out["xor-ack-dynamodb"] = {
        "round_trips": sum(counts.values()) / requests,
        "write_units": counts["PutItem"] / requests,
        "read_units": counts["GetItem"] / requests,
    }
    return out


def written_together(
    stamp: Callable[[int, str, bytes], object],
    tags: list[str],
    lasting: float,
    settling: float = 0.0,
) -> float:
    """Stamps a second of as many threads as there are tags, each on its own tag.

    Args:
        stamp: Stamps: the writer's number, the tag, the stamp.
        tags: The tag of each writer.
        lasting: Seconds that are counted.
        settling: Seconds before them that are not: until the writers know that they are many.
    """
    done = [0] * len(tags)
    errors: list[Exception] = []
    start = threading.Barrier(len(tags) + 1)
    counting, stop = threading.Event(), threading.Event()

    def write(writer: int) -> None:
        draw = random.Random(writer)
        start.wait()
        try:
            while not stop.is_set():
                stamp(writer, tags[writer], traced(draw.getrandbits(64) | 1))
                done[writer] += counting.is_set()
        except Exception as error:  # noqa: BLE001 - raised below, where it is seen
            errors.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(len(tags))]
    for thread in threads:
        thread.start()
    start.wait()
    time.sleep(settling)
    counting.set()
    before = time.perf_counter()
    time.sleep(lasting)
    counting.clear()
    took = time.perf_counter() - before
    stop.set()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return sum(done) / took


class _Nowhere:
    """Neither events nor dead letters come up: these chains never end."""

    def publish(self, chains: Any) -> dict[str, str]:
        raise AssertionError(f"{len(chains)} chains ended")

    def send(self, refused: Any) -> list[int]:
        if refused:
            raise AssertionError(f"{len(refused)} requests refused: {refused[0]}")
        return []


def consumed(store: DynamoDBStore, tags: list[str], lasting: float) -> float:
    """Stamps a second of the consumer, batches of 1,000 messages of one request each."""
    size, done, batch = 1000, 0, 0
    before = time.perf_counter()
    while time.perf_counter() - before < lasting:
        batch += 1
        messages = []
        for number in range(size):
            request = Request.stamp_(
                tags[number % len(tags)], f"{batch}-{number}", traced(batch * size + number)
            )
            messages.extend(Message(f"{batch}-{number}", body) for body in pack([request]))
        nowhere = _Nowhere()
        result = consume(messages, store, nowhere, nowhere)
        if result.failed:
            raise AssertionError(result.failed)
        done += result.outcomes["applied"]
    return done / (time.perf_counter() - before)


def _ways(
    resources: Resources, writers: int, chains: str, lasting: float, settling: float
) -> dict[str, Callable[[], float]]:
    client = resources.client("dynamodb", config=_pool())
    table, key = resources.table_name, resources.partition_key
    peer = Peer(table, key, client)
    patient = RetryPolicy(attempts=1_000_000)
    made = iter(range(1_000_000))

    def tags(way: str) -> list[str]:
        name = f"{way}-{chains}-{writers}-{next(made)}"
        return [name if chains == SINGLE else f"{name}-{n}" for n in range(writers)]

    def run(way: str, create: Callable[..., object], stamp: Callable[..., object]) -> float:
        names = tags(way)
        for name in dict.fromkeys(names):
            create(name, traced((1 << 64) - 1))
        with calls_of(client, LATENCY):
            return written_together(stamp, names, lasting, settling)

    def theirs(policy: RetryPolicy | None) -> float:
        def stamp(_: int, tag: str, stamp: bytes) -> bytes:
            return peer.stamp_retrying(tag, stamp, policy)

        return run("theirs", peer.create, stamp)

    def ours(shared: bool) -> float:
        number = 1 if shared else writers
        ackers = [DynamoDBAcker(table, key, client, policy=patient) for _ in range(number)]
        return run(
            "ours",
            ackers[0].create,
            lambda writer, tag, stamp: ackers[writer % number].stamp(tag, stamp),
        )

    def consumer() -> float:
        names = tags("consumer")
        acker = DynamoDBAcker(table, key, client)
        for name in dict.fromkeys(names):
            acker.create(name, traced((1 << 64) - 1))
        with calls_of(client, LATENCY):
            return consumed(acker.store, names, lasting)

    return {
        "theirs, at once": partial(theirs, None),
        "theirs, back-off": partial(theirs, patient),
        "an acker each": partial(ours, False),
        "one acker": partial(ours, True),
        "consumer": consumer,
    }


def _pool() -> Any:
    from botocore.config import Config

    return Config(max_pool_connections=128)


def folded_units(requests_in_batch: int) -> dict[str, float]:
    """Write units a request when so many of one chain come in each batch, weighed by `marks`."""
    from bench.marks import WeighedStore as InMemory
    from xorack.acker.chain_writer import apply_requests

    store = InMemory()
    total = max(1000, 3 * requests_in_batch)
    for first in range(0, total, requests_in_batch):
        part = [
            Request("create" if n == 0 else "stamp", "t", f"r{n}", traced(n + 1), 1)
            for n in range(first, min(total, first + requests_in_batch))
        ]
        apply_requests(
            store, "t", part, now=lambda: 1_800_000_000_000, policy=RetryPolicy(),
            default_timeout=86_400_000,
        )  # fmt: skip
    assert isinstance(store, MemoryStore)
    return {"write_units": store.writes / total, "read_units": store.reads / total}


def run(quick: bool = False) -> Section:
    """Count and time."""
    rounds, lasting = (1, 0.3) if quick else (3, 3.0)
    section = Section(
        "dynamodb",
        "Over DynamoDB",
        "The same table in the embedded AWS, a process of its own. The peer is a reimplementation "
        "of what xor-ack-dynamodb does: consistent `GetItem`, conditional `PutItem` of the whole "
        "item (`DeleteItem` at zero), and a caller that retries on a conflict. Traced stamps, 648 "
        "bytes.",
    )
    counts = Table(
        ["stamp requests on one chain", "way", "round trips a stamp", "write units", "read units"],
        note="One writer, without contention, the create not counted. A chain holds the marks of "
        "its last 64 requests in its item; beyond that marks are copied out, 25 a call, and "
        "requests that come by the queue are looked up; the direct API draws its ids itself and so "
        "knows that they are new (adr/0002). The peer has no marks: it applies a stamp "
        "twice when an answer is lost.",
    )
    speeds = Table(
        ["writers", "chains", "theirs, at once", "theirs, back-off", "an acker each", "one acker",
         "consumer"],
        note=f"Stamps a second; each call waits {LATENCY * 1000:g} ms besides, about what DynamoDB "
        f"takes. {rounds} rounds in turn of {lasting:g} s, on one chain after up to 4 s in which "
        "the writers find out how many they are. *At once*, *back-off*: how the peer's "
        "caller retries. *An acker each*: as in processes of their own; who writes an item on "
        "condition that nobody else did has one winner a round trip, however the others wait, so "
        "no acker of its own can be 20 times another. *One acker*: threads that share it write "
        "together. *Consumer*: one, batches of 1,000 messages of one request each, over as many "
        "chains as the writers have. With a chain each the emulator, one process in Python, is at "
        "its limit.",
    )  # fmt: skip
    section.tables += [counts, speeds]
    with EmbeddedAWS() as aws:
        resources = create_resources(aws)
        for requests in (10, 60, 200) if quick else (10, 60, 1000):
            ways = counted(resources, requests)
            section.raw.setdefault("counts", {})[str(requests)] = ways
            for way, figures in ways.items():
                counts.rows.append([f"{requests:,}", way, *(figure(v) for v in figures.values())])
            trips = ways["DynamoDBAcker"]["round_trips"]
            section.goals.append(
                Goal(f"round trips a stamp, {requests:,} on one chain", trips, 1.1, "less")
            )
        section.raw["folding"] = {str(n): folded_units(n) for n in (1, 10, 100, 128, 1000)}
        for writers in WRITERS:
            for chains in (SINGLE, MANY) if writers > 1 else (SINGLE,):
                resources = create_resources(aws)
                settling = 0.0 if quick or chains == MANY else writers / 16
                ways_ = _ways(resources, writers, chains, lasting, settling)
                middle = medians(interleaved(ways_, rounds))
                section.raw.setdefault("stamps_a_second", {})[f"{writers} on {chains}"] = middle
                speeds.rows.append(
                    [str(writers), chains, *(figure(middle[name]) for name in ways_)]
                )
                if writers == max(WRITERS) and chains == SINGLE:
                    best = max(middle["theirs, at once"], middle["theirs, back-off"], 1e-9)
                    for way in ("one acker", "an acker each", "consumer"):
                        what = f"{writers} writers on one chain, {way}: times the peer's best"
                        section.goals.append(Goal(what, middle[way] / best, 20, "more"))
    return section
