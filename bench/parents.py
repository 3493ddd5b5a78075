"""Measures many chains that are units of one parent chain or of several.

A call of the table takes 5 ms.

Each child has one unit. Its create and its finish are in a message of 1 MB, together with the
requests of about 2,000 other children. Five consumers take the messages.
"""

from __future__ import annotations

import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue

from bench.harness import Table
from bench.scale import CALL_SECONDS, CONSUMERS, ONCE_A_SECOND, WORKERS, Bus
from bench.weighed_table import WeighedTable
from xorack.acker.chain_writer import ChainWriter
from xorack.acker.consumer import BatchResult, Consumer, Message
from xorack.acker.outbox import Outbox
from xorack.acker.parallel import Workers
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.eventbridge import EventBus
from xorack.core.chain import EVENT
from xorack.core.message import pack
from xorack.core.request import Request
from xorack.core.stamp import sum_of

_MESSAGE_BYTES = 1_000_000


def _messages(children: int, parents: int) -> tuple[list[Message], list[Message]]:
    """Return the messages with the creates of the parents, and the messages with all children."""
    each = children // max(parents, 1)
    creates = [
        Request.create(
            f"run-{n}", "create", sum_of(range(n * each + 1, (n + 1) * each + 1), 16), started=each
        )
        for n in range(parents)
    ]
    requests = []
    for n in range(children):
        tag = f"run/file-{n:07}"
        above = {"unit": f"{n + 1:016x}", "tags": [f"run-{n // each}"], "kind": "traced"}
        requests += [
            Request.create(tag, "create", starts=[n + 1], parents=[above] if parents else ()),
            Request.stamp_(tag, "finish", finishes=[n + 1]),
        ]
    made = [
        [Message(f"{kind}{n}", body) for n, body in enumerate(pack(some, _MESSAGE_BYTES))]
        for kind, some in (("create-", creates), ("", requests))
    ]
    return made[0], made[1]


def _consume(table: WeighedTable, message: Message) -> BatchResult:
    writer = ChainWriter(DynamoDBStore("chains", client=table), policy=ONCE_A_SECOND)
    bus = EventBus("bus", Bus())
    outbox = Outbox(writer, {EVENT: bus}, workers=Workers(WORKERS))
    return Consumer(writer, outbox, lambda _: []).consume([message])


def ends(children: int, parents: int) -> dict[str, float]:
    """Let five consumers end children; return units, seconds and the lag of the last parent."""
    creates, messages = _messages(children, parents)
    table, queue = WeighedTable(CALL_SECONDS), SimpleQueue[Message]()
    for message in creates:
        _consume(table, message)
    for message in messages:
        queue.put(message)
    table.writes = table.reads = 0

    def consume(_: int) -> int:
        failed = 0
        while True:
            try:
                message = queue.get_nowait()
            except Empty:
                return failed
            if _consume(table, message).failed:
                failed += 1
                queue.put(message._replace(receives=message.receives + 1))

    began, processor = time.monotonic(), time.process_time()
    with ThreadPoolExecutor(CONSUMERS) as consumers:
        failed = sum(consumers.map(consume, range(CONSUMERS)))
    seconds, processor = time.monotonic() - began, time.process_time() - processor
    chains = [item for key, item in table.items.items() if "\0" not in key]
    assert all(item["status"]["S"] == "acked" for item in chains), "every chain is acked"
    assert not any("parents_pending" in item for item in chains), "no end is pending"
    ended = [(item["tag"]["S"], int(item["ended_at"]["N"])) for item in chains]
    last = max(at for tag, at in ended if "/" in tag)
    return {
        "writes": table.writes / children,
        "reads": table.reads / children,
        "seconds": seconds,
        "processor": processor,
        "lag": max((at - last for tag, at in ended if "/" not in tag), default=0) / 1000,
        "failed": failed,
    }


def memory(children: int) -> float:
    """Return the MB that a consumer takes for one message, without the MB that the table keeps."""
    creates, messages = _messages(children, 1)
    table = WeighedTable()
    _consume(table, creates[0])
    tracemalloc.start()
    _consume(table, messages[0])
    left, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (peak - left) / 1e6


def measure(quick: bool) -> list[Table]:
    """Measure children of one parent and of several, and the same children without a parent."""
    sizes = [(1_000, 1)] if quick else [(10_000, 1), (40_000, 1), (200_000, 1), (200_000, 200)]
    head = ("write units more, %", "read units each", "s", "s of a processor")
    report = Table(["children", "parents", *head, "parent's ack after the last child's, s"])
    alone = ends(sizes[0][0], 0)
    for children, parents in sizes:
        of = ends(children, parents)
        assert not of["failed"], "no message is delivered again"
        more = 100 * (of["writes"] / alone["writes"] - 1)
        cells = (more, of["reads"], of["seconds"], of["processor"], of["lag"])
        report.add(f"{children:,}", parents, *cells)
    consumer = Table(["memory of a consumer for a message of 1 MB", "MB"])
    consumer.add("beside Python, boto3 and the table", memory(5_000))
    return [report, consumer]
