"""The figures of docs/capacity.md: write units by the library's own code, and what was measured."""

import re
from collections import Counter
from dataclasses import replace
from math import ceil

import pytest

from bench.__main__ import PAGE as BENCHMARKS
from bench.consumer import ACK, FOLDED, SINGLE
from tests.support.memory_store import MemoryStore
from xorack.acker.chain_writer import ChainWriter
from xorack.aws import schema
from xorack.aws.item import encode
from xorack.core.marks import MARK_BYTES, bucket_for, buckets_of, split_marks
from xorack.core.ports import DEFAULT_RETENTION_MS
from xorack.core.request import Request
from xorack.core.stamp import traced
from xorack.core.transitions import Limits

TAG = "database/2026/11/file-000013.txt"
PAGE = (BENCHMARKS.parent / "capacity.md").read_text(encoding="utf-8")


def item_bytes(chain):
    """An item's size as DynamoDB counts it: names and values; a number takes half its digits."""
    if chain is None:
        return 0
    size = 0  # ten digits, as most random nonces have: the figures are the same each time
    item = encode(replace(chain, nonce=1 << 31), schema.TAG, DEFAULT_RETENTION_MS)
    for name, value in item.items():
        ((kind, data),) = value.items()
        size += len(name) + (len(data) // 2 + 2 if kind == "N" else len(data))
    return size


class WeighedStore(MemoryStore):
    """Sums up the units of one chain: those of a write are its KB, those of a read its 4 KB."""

    def __init__(self):
        super().__init__()
        self.writes = self.reads = 0
        self.buckets = Counter()

    def write(self, before, after):
        self.writes += ceil(max(item_bytes(before), item_bytes(after)) / 1024)
        was, now = before and before.due_at, after.due_at  # the index is written if that changes
        if was != now:
            self.writes += (was is not None) + (now is not None)
        super().write(before, after)

    def get_spilled_marks(self, chain, keys):
        for bucket in {bucket for key in keys for bucket in buckets_of(chain.spilled, key)}:
            self.reads += max(1, ceil(self.bucket_bytes(chain, bucket) / 4096))
        return super().get_spilled_marks(chain, keys)

    def put_spilled_marks(self, chain, marks, until):
        written = Counter(bucket_for(chain.spilled, key) for key in split_marks(marks))
        self.buckets += written
        self.writes += sum(ceil(self.bucket_bytes(chain, bucket) / 1024) for bucket in written)
        super().put_spilled_marks(chain, marks, until)

    def bucket_bytes(self, chain, bucket):
        return len(chain.tag) + 60 + MARK_BYTES * self.buckets[bucket]


@pytest.mark.thorough
@pytest.mark.parametrize(("together", "writes", "reads"), [(1, 2.0, 2.4), (10, 0.34, 0.56)])
def test_what_a_chain_of_a_thousand_requests_costs(together, writes, reads):
    store, count = WeighedStore(), 1_000
    limits = Limits(default_timeout_ms=86_400_000)
    writer = ChainWriter(store, clock=lambda: 1_800_000_000_000, limits=limits)
    ops = ["create", *["stamp"] * (count - 1)]
    requests = [Request(op, TAG, f"r-{n}", traced(n + 1), started=1) for n, op in enumerate(ops)]
    for first in range(0, count, together):
        writer.apply(TAG, requests[first : first + together])
    assert store.writes / count == pytest.approx(writes, rel=0.02)
    assert store.reads / count == pytest.approx(reads, rel=0.02)
    for units, figure in (("write units", writes), ("read units", reads)):
        (formula,) = re.findall(rf"^\| {units} of a chain \|.*", PAGE, re.MULTILINE)
        assert re.search(rf"{figure} · R for (f = )?{together}\b", formula)


def test_what_a_consumer_does_follows_from_its_measured_processor_time():
    page = BENCHMARKS.read_text(encoding="utf-8")
    cells = re.findall(r"^\| (an? .+) \| (.+) \| (.+) \|$", page, re.MULTILINE)
    measured = {name: (each, float(a_second.replace(",", ""))) for name, each, a_second in cells}
    rows = {
        "chains of two requests, acked": ACK,
        "requests, each of its own chain": SINGLE,
        "requests, a hundred of each chain": FOLDED,
    }
    for row, name in rows.items():
        cells = [f"{float(f'{n * measured[name][1]:.2g}'):,.0f}" for n in (5, 10, 100, 1_000)]
        assert f"| {row} | {' | '.join(cells)} |" in PAGE
    (each, a_second), text = measured[ACK], " ".join(PAGE.split())
    assert f"takes {each} ms of it, so an invocation does {a_second:.0f} a" in text
