"""Measures many chains that are units of one parent chain or of several.

A call of the table takes 5 ms.

Each child has one unit. Its create and its finish are in a message of 1 MB, together with the
requests of about 2,000 other children. Five consumers take the messages. Each message is made when
a consumer takes it. The table drops a child when its end is reported, so that a million children
fit into memory.
"""

from __future__ import annotations

import threading
import time
import tracemalloc
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

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


class _LeanTable(WeighedTable):
    """A table that forgets children once their end is reported, so that it fits into memory.

    Attributes:
        acked: The children that it has forgotten.
        last_end: The latest end of a child, in milliseconds since the epoch.
    """

    def __init__(self) -> None:
        super().__init__(CALL_SECONDS)
        self.acked = self.last_end = 0

    def update_item(self, **call: Any) -> dict[str, Any]:
        response = super().update_item(**call)
        key = call["Key"]["tag"]["S"]
        item = self.items[key]
        is_reported = not item.keys() & {"event_pending", "parents_pending"}
        if "/" in key and "\0" not in key and item["status"]["S"] == "acked" and is_reported:
            with self._guard:
                del self.items[key]
                self.acked += 1
                self.last_end = max(self.last_end, int(item["ended_at"]["N"]))
        return response


def _creates(children: int, parents: int) -> Iterator[Request]:
    """Return the creates of the parents."""
    each = children // max(parents, 1)
    for n in range(parents):
        units = range(n * each + 1, (n + 1) * each + 1)
        yield Request.create(f"run-{n}", "create", sum_of(units, 16), started=each)


def _children(children: int, parents: int) -> Iterator[Request]:
    """Return the requests of all children: each child's create and finish."""
    each = children // max(parents, 1)
    for n in range(children):
        tag = f"run/file-{n:07}"
        above = {"unit": f"{n + 1:016x}", "tags": [f"run-{n // each}"], "kind": "traced"}
        yield Request.create(tag, "create", starts=[n + 1], parents=[above] if parents else ())
        yield Request.stamp_(tag, "finish", finishes=[n + 1])


def _messages(kind: str, requests: Iterable[Request]) -> Iterator[Message]:
    bodies = enumerate(pack(requests, _MESSAGE_BYTES))
    return (Message(f"{kind}{n}", body) for n, body in bodies)


def _consume(table: WeighedTable, message: Message) -> BatchResult:
    writer = ChainWriter(DynamoDBStore("chains", client=table), policy=ONCE_A_SECOND)
    bus = EventBus("bus", Bus())
    outbox = Outbox(writer, {EVENT: bus}, workers=Workers(WORKERS))
    return Consumer(writer, outbox, lambda _: []).consume([message])


def ends(children: int, parents: int) -> dict[str, float]:
    """Let five consumers end children; return units, seconds and the lag of the last parent.

    Raises:
        AssertionError: A message failed, a request was rejected, or a chain is not acked.
    """
    table, guard = _LeanTable(), threading.Lock()
    for message in _messages("create-", _creates(children, parents)):
        _consume(table, message)
    table.writes = table.reads = 0
    messages = _messages("", _children(children, parents))

    def consume(_: int) -> None:
        while True:
            with guard:
                message = next(messages, None)
            if message is None:
                return
            result = _consume(table, message)
            assert not result.failed, "no message is delivered again"
            assert not result.outcomes["rejected"], "no request becomes a dead letter"

    began, processor = time.monotonic(), time.process_time()
    with ThreadPoolExecutor(CONSUMERS) as consumers:
        list(consumers.map(consume, range(CONSUMERS)))
    seconds, processor = time.monotonic() - began, time.process_time() - processor
    left = [item for key, item in table.items.items() if "\0" not in key]
    assert table.acked == children, "every child is acked, and its ends are reported"
    assert [item["status"]["S"] for item in left] == ["acked"] * parents, "so is every parent"
    parent_ends = [int(item["ended_at"]["N"]) for item in left]
    return {
        "writes": table.writes / children,
        "reads": table.reads / children,
        "seconds": seconds,
        "processor": processor,
        "lag": (max(parent_ends, default=table.last_end) - table.last_end) / 1000,
    }


def memory(children: int) -> float:
    """Return the MB that a consumer takes for one message, without the MB that the table keeps."""
    table = WeighedTable()
    _consume(table, next(_messages("create-", _creates(children, 1))))
    message = next(_messages("", _children(children, 1)))
    tracemalloc.start()
    _consume(table, message)
    left, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (peak - left) / 1e6


def measure(quick: bool) -> list[Table]:
    """Measure children of one parent and of several, and the same children without a parent."""
    sizes = [(1_000, 1)] if quick else [(40_000, 1), (1_000_000, 1), (1_000_000, 1_000)]
    head = ("write units more, %", "read units each", "s", "s of a processor")
    report = Table(["children", "parents", *head, "parent's ack after the last child's, s"])
    alone = ends(1_000 if quick else 10_000, 0)
    for children, parents in sizes:
        of = ends(children, parents)
        more = 100 * (of["writes"] / alone["writes"] - 1)
        cells = (more, of["reads"], of["seconds"], of["processor"], of["lag"])
        report.add(f"{children:,}", parents, *cells)
    consumer = Table(["memory of a consumer for a message of 1 MB", "MB"])
    consumer.add("beside Python, boto3 and the table", memory(5_000))
    return [report, consumer]
