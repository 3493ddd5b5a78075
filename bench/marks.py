"""What it costs to apply each request exactly once: write units by design, counted.

Drives the real loop (`xorack.acker.chain_writer`) with requests that come one by one, weighs each write
as DynamoDB does (a write unit for each KB begun of the larger of the item before and after; twice
that in a transaction; a read unit for each 4 KB begun, consistent), and sets the designs that were
not taken beside it, by their arithmetic. Run it: ``python -m bench.marks``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from math import ceil
from typing import Any

from xorack.acker.chain_writer import CachedChain, apply_requests
from xorack.acker.memory_store import MemoryStore
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.chain import MARK_BYTES, Chain
from xorack.core.request import Request
from xorack.core.retry import RetryPolicy
from xorack.core.stamp import traced

TAG = "database/2026/11/file-000013.txt"
NOW = 1_800_000_000_000
ITEM_LIMIT = 400 * 1024


def item_bytes(item: dict[str, dict[str, Any]]) -> int:
    """An item's size by DynamoDB's rules: names and values; a number half a byte a digit, and 1."""
    size = 0
    for name, value in item.items():
        ((kind, data),) = value.items()
        size += len(name.encode())
        size += len(data) // 2 + 2 if kind == "N" else len(data)
    return size


class WeighedStore(MemoryStore):
    """Keeps chains in memory and weighs what DynamoDB would charge."""

    def __init__(self) -> None:
        super().__init__()
        self.shape = DynamoDBStore("t", client=object())
        self.writes = self.reads = 0.0
        self.largest_write = self.largest_item = 0

    def _charge(self, *sizes: int) -> None:
        units = ceil(max(sizes) / 1024)
        self.writes += units
        self.largest_write = max(self.largest_write, units)
        self.largest_item = max(self.largest_item, *sizes)

    def write(self, before: Chain | None, after: Chain) -> None:
        """Weigh the chain before and after, and its entry in the index where that changes."""
        old = {} if before is None else self.shape.to_item(before)
        new = self.shape.to_item(after)
        super().write(before, after)
        self._charge(item_bytes(old), item_bytes(new))
        was, now = old.get("due_at"), new.get("due_at")
        if was != now:
            self.writes += (was is not None) + (now is not None)

    def get_spilled_marks(self, chain: Chain, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Weigh a read of each key, also of those that are not there."""
        self.reads += len(keys)
        return super().get_spilled_marks(chain, keys)

    def put_spilled_marks(self, chain: Chain, marks: bytes, until: int) -> None:
        """Weigh an item each mark."""
        for _ in range(0, len(marks), MARK_BYTES):
            self._charge(len(chain.tag) + 60 + MARK_BYTES)
        super().put_spilled_marks(chain, marks, until)


def taken(requests: int) -> WeighedStore:
    """The design that was taken, driven for real."""
    store = WeighedStore()
    known = CachedChain(None, fresh=False)
    for number in range(requests):
        op = "create" if number == 0 else "stamp"
        request = Request(op, TAG, f"request-{number}", traced(number + 1), 1)
        applied = apply_requests(
            store, TAG, [request], now=lambda: NOW, policy=RetryPolicy(), known=known,
            default_timeout=86_400_000,
        )  # fmt: skip
        known = CachedChain(applied.chain, fresh=True)
    return store


def set_in_item(requests: int, base: int) -> float | None:
    """All marks in the chain's item: it grows until DynamoDB refuses it."""
    if base + MARK_BYTES * requests > ITEM_LIMIT:
        return None
    return sum(ceil((base + MARK_BYTES * n) / 1024) for n in range(1, requests + 1))


def ledger_in_transaction(requests: int, base: int) -> float:
    """Chain and a ledger item in one TransactWriteItems: both at twice the price."""
    return requests * 2 * (ceil(base / 1024) + 1)


def pages_in_transaction(requests: int, base: int) -> float:
    """Chain and one page of marks, found by the id's hash, as many pages as keep one at 1 KB."""
    total = 0.0
    for number in range(requests):
        pages = max(1, ceil(number / 64))
        total += 2 * (ceil(base / 1024) + ceil((60 + MARK_BYTES * (number / pages + 1)) / 1024))
    return total


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("counts", nargs="*", type=int, default=[10, 1_000, 100_000])
    counts = parser.parse_args().counts
    base = item_bytes(DynamoDBStore("t", client=object()).to_item(taken(1).chains[TAG])) - 16
    print(f"A traced chain without marks: {base} bytes. Write units a request:")
    print("| requests | taken | (reads) | largest write | largest item | set in the item "
          "| ledger in a transaction | pages in a transaction |")  # fmt: skip
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for count in counts:
        store = taken(count)
        in_item = set_in_item(count, base)
        print(
            f"| {count:,} | {store.writes / count:.2f} | {store.reads / count:.2f} "
            f"| {store.largest_write} | {store.largest_item:,} B "
            f"| {'over 400 KB' if in_item is None else f'{in_item / count:.2f}'} "
            f"| {ledger_in_transaction(count, base) / count:.2f} "
            f"| {pages_in_transaction(count, base) / count:.2f} |"
        )


if __name__ == "__main__":
    main()
