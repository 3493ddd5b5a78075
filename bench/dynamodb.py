"""Compares `DynamoDBAcker` and the consumer with xor-ack-dynamodb's method on one endpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import getrandbits
from statistics import median
from time import perf_counter, sleep
from typing import Any
from uuid import uuid4

from botocore.config import Config

from bench.harness import Table, interleaved
from bench.xor_ack_dynamodb import Peer
from tests.support.in_process import table_definition
from xorack.acker.chain_writer import ChainWriter
from xorack.acker.consumer import Consumer, Message
from xorack.acker.outbox import Outbox
from xorack.acker.parallel import Workers
from xorack.aws import schema
from xorack.aws.retry import RetryPolicy
from xorack.compat.dynamodb_acker import DynamoDBAcker
from xorack.core.message import pack
from xorack.core.request import Request
from xorack.core.stamp import traced
from xorack.local.embedded import EmbeddedAWS

LATENCY = 0.004
"""The seconds added to each call, about DynamoDB's response time. The emulator has no delay."""
TABLE = "bench"
WRITERS = (1, 8, 64)
BATCH = 1_000
"""The number of messages in a consumer's batch."""
PEER = "xor-ack-dynamodb"
_PATIENT = RetryPolicy(attempts=1_000_000)
# A function that writes a stamp, or a batch of stamps, to the chain with a tag.
Write = Callable[[str, bytes], object]


def consumer(acker: DynamoDBAcker) -> Write:
    """Return a consumer of batches, in which no chain ends and no request is rejected."""
    chains = ChainWriter(acker.store)
    ours = Consumer(chains, Outbox(chains, {}, workers=Workers(8)), lambda rejected: [])

    def consume(tag: str, stamp: bytes) -> None:
        requests = [Request.stamp_(tag, uuid4().hex, stamp) for _ in range(BATCH)]
        bodies = [body for request in requests for body in pack([request])]
        result = ours.consume([Message(str(number), body) for number, body in enumerate(bodies)])
        assert result.outcomes["applied"] == BATCH, result

    return consume


def per_second(client: Any, writers: Sequence[Write], seconds: float, stamps: int = 1) -> float:
    """Let each writer write one chain in its own thread; return the stamps a second."""
    tag = uuid4().hex
    DynamoDBAcker(TABLE, schema.TAG, client).create(tag, traced((1 << 64) - 1))

    def repeat(write: Write) -> list[float]:
        ends = []
        while (now := perf_counter() - begun) < seconds:
            ends.append(now)
            write(tag, traced(1 + getrandbits(63)))
        return ends[1:]  # the stamps that ended in time

    with ThreadPoolExecutor(len(writers)) as pool:
        begun = perf_counter()
        ends = [end for of in pool.map(repeat, writers) for end in of]
    return len(ends) * stamps / max(ends, default=seconds)


def _variants(client: Any, writers: int, seconds: float) -> dict[str, Callable[[], float]]:
    acker = partial(DynamoDBAcker, TABLE, schema.TAG, client, policy=_PATIENT)
    ways: dict[str, list[Write]] = {
        PEER: [Peer(client, TABLE).stamp] * writers,
        "an acker each": [acker().stamp for _ in range(writers)],
        "one acker": [acker().stamp] * writers,
    }
    variants: dict[str, Callable[[], float]] = {
        name: partial(per_second, client, ours, seconds) for name, ours in ways.items()
    }
    return variants | {"consumer": partial(per_second, client, [consumer(acker())], seconds, BATCH)}


def measure(quick: bool) -> list[Table]:
    """Measure stamps a second on one chain."""
    rounds, seconds = (1, 1.0) if quick else (3, 6.0)
    table = Table(["writers", PEER, "an acker each", "one acker", "consumer"])
    with EmbeddedAWS() as aws:
        client = aws.client("dynamodb", config=Config(max_pool_connections=128))
        client.create_table(TableName=TABLE, BillingMode="PAY_PER_REQUEST", **table_definition())
        client.meta.events.register_first(
            "provide-client-params.dynamodb", lambda **_: sleep(LATENCY)
        )
        for writers in WRITERS:
            of_rounds = interleaved(_variants(client, writers, seconds), rounds)
            table.add(writers, *map(median, of_rounds.values()))
    return [table]
