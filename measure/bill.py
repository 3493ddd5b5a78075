"""The most that a load can cost: units that AWS charges for, times prices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil
from typing import NamedTuple

from measure.options import Options, Plan
from xorack.core.marks import INLINE_MARKS, MARK_BYTES

PRICES = {
    "queue calls": 0.50,
    "invocations": 0.20,
    "GB-seconds": 13.3334,
    "write units": 0.625,
    "read units": 0.125,
    "events": 1.00,
    "GB of logs": 0.50,
}
"""Dollars for a million, of logs for a GB; bench.capacity has the others."""
PRICE_LIST = "us-east-1, 2026"
_BILLED_BYTES = 1 << 16  # SQS bills a call for each 64 KB begun
_ITEM_BYTES = 500  # of a chain's item besides its stamp and marks, about
_INDEX_UNITS = 4  # write units of the deadline index in the life of a chain
_MARGIN = 1.2  # more copies than their probability says
_LOG_KB = 1.5  # of an invocation
_IDLE_CALLS = 7200  # of the events' receivers in an hour


def cost(amounts: Mapping[str, float]) -> float:
    """Multiply amounts with the prices; return dollars."""
    return sum(amount * PRICES[name] / 1e6 for name, amount in amounts.items())


class Totals(NamedTuple):
    """Sums over the chains of a load; `spilled` counts requests whose marks leave the item."""

    chains: int
    units: int
    requests: int
    spilled: int
    bad: int
    lossy: int

    @classmethod
    def of(cls, plans: Iterable[Plan]) -> Totals:
        """Sum the figures of the plans."""
        rows = (
            (1, p.units, p.requests, max(0, p.requests - INLINE_MARKS), bool(p.bad), p.lost > 0)
            for p in plans
        )
        return cls(*map(sum, zip(*rows, strict=True)))


def upper_estimate(options: Options, totals: Totals) -> dict[str, float]:
    """Compute more than a load can cost, save for a fault of the stack.

    Each request, copies included, is a write of its own and meets a conflict. Each message is a
    batch of its own.
    """
    copies = _MARGIN * (1 + 2 * options.duplicate)
    requests = copies * (totals.requests + totals.bad + totals.lossy)
    together = max(1, options.message_bytes // options.request_bytes)
    messages = ceil(requests / together) + copies * totals.bad
    billed = ceil(min(together, requests) * options.request_bytes / _BILLED_BYTES)
    item = options.stamp_bytes + _ITEM_BYTES + INLINE_MARKS * MARK_BYTES
    writes = 2 * (requests * ceil(item / 1024) + totals.spilled)
    index = 2 * totals.chains * _INDEX_UNITS
    events = 2 * totals.chains + 50
    amounts = (
        3 * messages * billed + 6 * events + 4 * totals.bad + _IDLE_CALLS,
        messages,
        0.05 * messages + 0.02 * requests,
        writes + index,
        2 * (requests * ceil(item / 4096) + totals.spilled) + 4 * totals.chains,
        events,
        _LOG_KB * messages,
    )
    return dict(zip(PRICES, amounts, strict=True))
