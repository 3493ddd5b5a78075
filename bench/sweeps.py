"""Measures expensive sweeps: many marks, many tolerated units, many pending events.

The table is a dictionary with DynamoDB's conditions and 5 ms a call, so boto3 takes no time here.
"""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

from bench.harness import Table
from bench.scale import CALL_SECONDS, WORKERS, Bus
from bench.weighed_table import WeighedTable
from tests.support.chains import make_chain
from xorack.acker.chain_writer import ChainWriter
from xorack.acker.outbox import Outbox
from xorack.acker.parallel import Workers
from xorack.acker.sweeper import Sweeper, SweepResult
from xorack.aws import schema
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.eventbridge import EventBus
from xorack.aws.item import encode
from xorack.core.chain import EVENT
from xorack.core.marks import MARK_BYTES
from xorack.core.ports import DEFAULT_RETENTION_MS
from xorack.core.stamp import sum_of


def _due(count: int, units: int, seconds: float = CALL_SECONDS, **attributes: Any) -> WeighedTable:
    """Return a table of chains with outstanding units that the sweeper must look at."""
    table = WeighedTable(seconds)
    times = dict.fromkeys(("first_seen_at", "created_at", "deadline", "due_at"), 1)
    fields = {"status": "open", "started": units, **times, **attributes}
    for n in range(count):
        stamp = sum_of(range(1 + n * units, 1 + (n + 1) * units), 16) if units else bytes(648)
        chain = make_chain(f"run/{n}", stamp, version=1, nonce=n, **fields)
        table.items[chain.tag] = encode(chain, schema.TAG, DEFAULT_RETENTION_MS)
    return table


def _sweep(table: WeighedTable) -> tuple[SweepResult, float, float]:
    """Sweep once; return the result, the elapsed seconds and the processor's seconds."""
    writer = ChainWriter(DynamoDBStore("chains", client=table))
    outbox = Outbox(writer, {EVENT: EventBus("bus", Bus())}, workers=Workers(WORKERS))
    began, processor = time.monotonic(), time.process_time()
    result = Sweeper(writer, outbox).sweep()
    return result, time.monotonic() - began, time.process_time() - processor


def memory(count: int, marks: int) -> float:
    """Return the MB that a sweep of chains with many marks needs in addition to the table."""
    table = _due(count, 1, 0.0, marks=bytes(MARK_BYTES * marks))
    tracemalloc.start()
    result, *_ = _sweep(table)
    left, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result.ended == {"timed out": count}, result
    return (peak - left) / 1e6


def measure(quick: bool) -> list[Table]:
    """Measure a sweep of each kind."""
    few = 50 if quick else 1
    report = Table(["a sweep of", "chains", "s", "ms of a processor each"])
    for name, count, units, fields, expected in (
        # The counts hide units: with 45 outstanding units and 29 finishes without a start, the
        # counts show 16.
        (
            "chains that tolerate 16 of 45 units",
            1_200,
            45,
            {"tolerated_units": 16, "started": 16},
            ["timed out"],
        ),
        ("chains that tolerate all of 16 units", 1_200, 16, {"tolerated_units": 16}, ["acked"]),
        (
            "pending events",
            50_000,
            0,
            {"status": "acked", "ended_at": 1, "event_pending": True},
            [],
        ),
    ):
        chains = count // few
        result, seconds, processor = _sweep(_due(chains, units, **fields))
        assert result.events == chains, result
        assert result.ended == dict.fromkeys(expected, chains), result
        report.add(name, chains, seconds, 1000 * processor / chains)
    space = Table(["a sweep of chains with 10,000 marks each", "MB beside the table"])
    space.add(f"{4_000 // few:,}", memory(4_000 // few, 10_000))
    return [report, space]
