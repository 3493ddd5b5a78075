"""The bill: units that AWS charges for, times prices. The upper estimate needs no account."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, isfinite
from pathlib import Path
from typing import Any, NamedTuple

from measure.load import BILLED_BYTES, Sent
from measure.options import Options, Plan
from xorack.core.chain import Chain
from xorack.core.errors import ArgumentError
from xorack.core.marks import INLINE_MARKS, MARK_BYTES

PRICES = Path(__file__).with_name("prices.json")
UNITS = (
    "SQS requests", "Lambda requests", "Lambda GB-seconds", "DynamoDB write units",
    "DynamoDB read units", "EventBridge events", "log kilobytes",
)  # fmt: skip
_ITEM_BYTES = 500  # of a chain's item besides its stamp and marks, about
_INDEX_UNITS = 4  # write units of the deadline index in the life of a chain
_SPILLED_WRITES, _SPILLED_READS = 0.15, 1.0  # units of a mark outside its chain, bench.marks
_MARGIN = 1.2  # more copies than their probability says
_LOG_KB = 1.5  # of an invocation
_IDLE_CALLS = 7200  # of the events' receivers in an hour


class Amount(NamedTuple):
    """A number of units, None if unknown; ``counted``, ``metric``, ``computed``, ``estimated``."""

    value: float | None
    source: str


Amounts = Mapping[str, Amount]
"""Amounts by `UNITS`."""


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
            ArgumentError: The file cannot be read, or a field is missing or invalid.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            texts = [str(content[name]) for name in ("date", "region", "currency")]
            prices = {name: content["per_million"][name] for name in UNITS}
        except (OSError, ValueError, KeyError, TypeError) as error:
            expected = f"a file of the form of {PRICES.name} ({type(error).__name__}: {error})"
            raise ArgumentError("prices", path, expected) from error
        for name, price in prices.items():
            if type(price) not in (int, float) or not isfinite(price) or price < 0:
                raise ArgumentError(f"per_million, {name}", price, "a number from 0 up")
        date, region, currency = texts
        return cls(date, region, currency, prices)

    def cost(self, amounts: Amounts) -> float:
        """Multiply; what is unknown counts as 0."""
        return sum((amounts[name].value or 0) * self.per_million[name] / 1e6 for name in UNITS)


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


def upper_estimate(options: Options, totals: Totals) -> Amounts:
    """Compute more than a load can cost, save for a fault of the stack.

    Each request, copies included, is a write of its own and meets a conflict. Each message is a
    batch of its own.
    """
    copies = _MARGIN * (1 + options.duplicate + options.late_duplicate)
    requests = copies * (totals.requests + totals.bad + totals.lossy)
    together = max(1, options.message_bytes // options.request_bytes)
    messages = ceil(requests / together) + copies * totals.bad
    billed = ceil(min(together, requests) * options.request_bytes / BILLED_BYTES)
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
    return {name: Amount(value, "estimated") for name, value in zip(UNITS, amounts, strict=True)}


def amounts_of(
    sent: Sent, calls: int, events: int, chains: Iterable[Chain], metrics: Mapping[str, Any]
) -> Amounts:
    """Combine what was counted, the stack's metrics, and what is computed where they are missing.

    Args:
        sent: What was sent.
        calls: Calls of the measurement for events and dead letters.
        events: Events, copies included.
        chains: The chains of the table.
        metrics: The figures of `measure.metrics.read_metrics`.
    """
    writes = reads = 0.0
    for chain in chains:
        item = len(chain.stamp) + len(chain.marks) + _ITEM_BYTES
        writes += chain.version * ceil(item / 1024) + _INDEX_UNITS
        writes += _SPILLED_WRITES * chain.spilled
        reads += chain.version * ceil(item / 4096) + _SPILLED_READS * chain.spilled
    computed = {"write units": writes, "read units": reads}

    def metric(figure: str) -> Amount:
        value = metrics.get(figure)
        if value is None and figure in computed:
            return Amount(computed[figure], "computed")
        return Amount(value, "metric")

    invocations = metric("invocations")
    logs = None if invocations.value is None else _LOG_KB * invocations.value
    # Lambda's receives are billed like our sends; a deletion takes ten messages.
    amounts = (
        Amount(2 * sent.billed + ceil(sent.messages / 10) + calls, "estimated"),
        invocations,
        metric("GB-seconds"),
        metric("write units"),
        metric("read units"),
        Amount(events, "counted"),
        Amount(logs, "estimated"),
    )
    return dict(zip(UNITS, amounts, strict=True))
