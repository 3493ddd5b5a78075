"""Capacity units of exactly-once, weighed.

Drives `xorack.acker.chain_writer` and weighs each write as DynamoDB does: a write unit for each KB
begun of the larger of the item before and after, a read unit for each 4 KB begun. docs/adr/0002
compares the alternatives.

    python -m bench.marks     prints a table
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import ceil

from bench.harness import Table
from tests.support.memory_store import MemoryStore
from xorack.acker.chain_writer import ChainWriter
from xorack.aws import schema
from xorack.aws.item import Item, encode
from xorack.core.chain import Chain
from xorack.core.marks import MARK_BYTES, Bucket, bucket_for, buckets_of
from xorack.core.ports import DEFAULT_RETENTION_MS
from xorack.core.request import Request
from xorack.core.stamp import traced
from xorack.core.transitions import Limits

TAG = "database/2026/11/file-000013.txt"


def _encode(chain: Chain | None) -> Item:
    # Ten digits, as most random ones have: the figures are the same each time.
    return encode(replace(chain, nonce=1 << 31), schema.TAG, DEFAULT_RETENTION_MS) if chain else {}


def item_bytes(item: Item) -> int:
    """Compute an item's size as DynamoDB does: names and values; a number takes half its digits."""
    size = 0
    for name, value in item.items():
        ((kind, data),) = value.items()
        size += len(name.encode())
        size += len(data) // 2 + 2 if kind == "N" else len(data)
    return size


class WeighedStore(MemoryStore):
    """A store of one chain that sums up what DynamoDB charges.

    Attributes:
        writes: Write units, those of the index included.
        reads: Read units.
        largest: Bytes of the largest item.
    """

    def __init__(self) -> None:
        super().__init__()
        self.writes = self.reads = self.largest = 0
        self.buckets: Counter[Bucket] = Counter()

    def _charge(self, size: int) -> None:
        self.writes += ceil(size / 1024)
        self.largest = max(self.largest, size)

    def write(self, before: Chain | None, after: Chain) -> None:
        """Weigh the chain, and its entry in the index if that changes."""
        old, new = _encode(before), _encode(after)
        self._charge(max(item_bytes(old), item_bytes(new)))
        was, now = old.get("due_at"), new.get("due_at")
        if was != now:
            self.writes += (was is not None) + (now is not None)
        super().write(before, after)

    def get_spilled_marks(self, chain: Chain, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Weigh a read of each bucket, whether it exists or not."""
        for bucket in {bucket for key in keys for bucket in buckets_of(chain.spilled, key)}:
            self.reads += max(1, ceil(self._bucket_bytes(chain, bucket) / 4096))
        return super().get_spilled_marks(chain, keys)

    def put_spilled_marks(self, chain: Chain, marks: bytes, until: int) -> None:
        """Weigh a write of each bucket that gets marks."""
        keys = [marks[at : at + MARK_BYTES] for at in range(0, len(marks), MARK_BYTES)]
        for bucket, count in Counter(bucket_for(chain.spilled, key) for key in keys).items():
            self.buckets[bucket] += count
            self._charge(self._bucket_bytes(chain, bucket))
        super().put_spilled_marks(chain, marks, until)

    def _bucket_bytes(self, chain: Chain, bucket: Bucket) -> int:
        return len(chain.tag) + 60 + MARK_BYTES * self.buckets[bucket]


@cache
def drive(requests: int, together: int = 1) -> WeighedStore:
    """Apply a create and stamps to one chain, in batches of ``together`` requests."""
    ops = ["create", *["stamp"] * (requests - 1)]
    stamps = [
        Request(op, TAG, f"request-{n}", traced(n + 1), started=1) for n, op in enumerate(ops)
    ]
    return weigh(stamps, together)


def weigh(requests: Sequence[Request], together: int) -> WeighedStore:
    """Apply requests of one chain, in batches of ``together``."""
    store = WeighedStore()
    limits = Limits(default_timeout_ms=86_400_000)
    writer = ChainWriter(store, clock=lambda: 1_800_000_000_000, limits=limits)
    for first in range(0, len(requests), together):
        writer.apply(requests[0].tag, requests[first : first + together])
    return store


if __name__ == "__main__":
    table = Table(["requests", "write units", "read units", "largest write", "largest item, bytes"])
    for count in (10, 1_000, 100_000):
        store = drive(count)
        units = (store.writes / count, store.reads / count)
        table.add(count, *units, ceil(store.largest / 1024), store.largest)
    print(f"Units a request; requests arrive one by one.\n\n{table.markdown()}")
