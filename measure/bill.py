"""The most that a load can cost: units that AWS charges for, times prices."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, isfinite
from pathlib import Path

from measure.options import Options, Plan
from xorack.core.errors import InvalidRequest
from xorack.core.marks import INLINE_MARKS, MARK_BYTES

PRICES = Path(__file__).with_name("prices.json")
UNITS = (
    "SQS requests", "Lambda requests", "Lambda GB-seconds", "DynamoDB write units",
    "DynamoDB read units", "EventBridge events", "log kilobytes",
)  # fmt: skip
_BILLED_BYTES = 1 << 16  # SQS bills a call for each 64 KB begun
_ITEM_BYTES = 500  # of a chain's item besides its stamp and marks, about
_INDEX_UNITS = 4  # write units of the deadline index in the life of a chain
_MARGIN = 1.2  # more copies than their probability says
_LOG_KB = 1.5  # of an invocation
_IDLE_CALLS = 7200  # of the events' receivers in an hour


@dataclass(frozen=True)
class Prices:
    """Prices of a region at a date, for a million of each of `UNITS`."""

    date: str
    region: str
    currency: str
    per_million: Mapping[str, float]

    @classmethod
    def read(cls, path: str) -> Prices:
        """Read a file of the form of prices.json.

        Raises:
            InvalidRequest: The file cannot be read, or a field is missing or invalid.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            texts = [str(content[name]) for name in ("date", "region", "currency")]
            prices = {name: content["per_million"][name] for name in UNITS}
        except (OSError, ValueError, KeyError, TypeError) as error:
            expected = f"a file of the form of {PRICES.name} ({type(error).__name__}: {error})"
            raise InvalidRequest("prices", path, expected) from error
        for name, price in prices.items():
            if type(price) not in (int, float) or not isfinite(price) or price < 0:
                raise InvalidRequest(f"per_million, {name}", price, "a number from 0 up")
        date, region, currency = texts
        return cls(date, region, currency, prices)

    def cost(self, amounts: Mapping[str, float]) -> float:
        """Multiply amounts, by `UNITS`, with the prices."""
        return sum(amounts[name] * self.per_million[name] / 1e6 for name in UNITS)


@dataclass
class Totals:
    """Sums over the chains of a load; `spilled` counts requests whose marks leave the item."""

    chains: int = 0
    units: int = 0
    requests: int = 0
    spilled: int = 0
    bad: int = 0
    lossy: int = 0

    @classmethod
    def of(cls, plans: Iterable[Plan]) -> Totals:
        """Sum up."""
        totals = cls()
        for plan in plans:
            totals.chains += 1
            totals.units += plan.units
            totals.requests += plan.requests
            totals.spilled += max(0, plan.requests - INLINE_MARKS)
            totals.bad += plan.bad is not None
            totals.lossy += bool(plan.lost)
        return totals


def upper_estimate(options: Options, totals: Totals) -> dict[str, float]:
    """Compute more than a load can cost, save for a fault of the stack.

    Each request, copies included, is a write of its own and meets a conflict. Each message is a
    batch of its own.
    """
    copies = _MARGIN * (1 + options.duplicate + options.late_duplicate)
    requests = copies * (totals.requests + totals.bad + totals.lossy)
    together = max(1, options.message_bytes // options.request_bytes)
    messages = ceil(requests / together) + copies * totals.bad
    billed = ceil(min(together, requests) * options.request_bytes / _BILLED_BYTES)
    item = options.stamp_bytes + _ITEM_BYTES + INLINE_MARKS * MARK_BYTES
    writes = 2 * (requests * ceil(item / 1024) + totals.spilled)
    deletes = totals.chains * (ceil(item / 1024) + 2 * _INDEX_UNITS)
    events = 2 * totals.chains + 50
    amounts = (
        3 * messages * billed + 6 * events + 4 * totals.bad + _IDLE_CALLS,
        messages,
        0.05 * messages + 0.02 * requests,
        writes + deletes,
        2 * (requests * ceil(item / 4096) + totals.spilled) + 4 * totals.chains,
        events,
        _LOG_KB * messages,
    )
    return dict(zip(UNITS, amounts, strict=True))
