"""The report of a measurement: sections of figures, as JSON and as text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from measure.bill import UNITS, Amount, Prices, Totals, amounts_of
from measure.judge import Outcome, judge
from measure.load import Sent
from measure.subscription import Events

_PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "max": 100}
_SHOWN = 50
_LATENCIES = {
    "to arrival": "ms, last message to the event here; one clock",
    "to end": "ms, last message to the end; two clocks",
    "to time-out": "ms, moved deadline to the event here",
}


@dataclass
class Result:
    """The result of a measurement.

    Attributes:
        sending_seconds: Time of the first sends.
        moved_at: Time when the deadlines of lossy chains were moved, seconds since the epoch.
        metrics: The figures of `measure.metrics.read_metrics`.
        left_behind: What could not be removed, each with a command.
    """

    run: str
    replay: str
    outcome: Outcome
    sent: Sent
    events: Events
    sending_seconds: float
    moved_at: float
    metrics: Mapping[str, float | None]
    left_behind: Sequence[str] = ()


def percentiles(values: Sequence[float]) -> dict[str, float | None]:
    """Find nearest-rank percentiles; None without values."""
    ordered = sorted(values)
    ranks = {name: math.ceil(len(ordered) * p / 100) - 1 for name, p in _PERCENTILES.items()}
    return {name: ordered[rank] if ordered else None for name, rank in ranks.items()}


def _latencies(result: Result) -> tuple[dict[str, list[float]], float]:
    """Return milliseconds by `_LATENCIES`, and the time of the last event of an acked chain."""
    latencies: dict[str, list[float]] = {name: [] for name in _LATENCIES}
    last = result.sent.first
    outcome = result.outcome
    for plan in outcome.plans:
        chain, events = outcome.chains.get(plan.tag), outcome.events.get(plan.tag)
        if not events or chain is None or chain.ended_at is None:
            continue
        received_at = events[0].received_at
        if plan.lost:
            latencies["to time-out"].append(1000 * (received_at - result.moved_at))
            continue
        last = max(last, received_at)
        # A bad request may be the chain's last one.
        if plan.bad is None:
            begin = outcome.times[plan.tag].available
            latencies["to arrival"].append(1000 * (received_at - begin))
            latencies["to end"].append(chain.ended_at - 1000 * begin)
    return latencies, last


def to_json(result: Result, prices: Prices) -> dict[str, Any]:
    """Judge, and return the report as a JSON object; figures that nobody has are null."""
    outcome, sent, metrics = result.outcome, result.sent, result.metrics
    totals = Totals.of(outcome.plans)
    latencies, last = _latencies(result)
    seconds = max(last - sent.first, 1e-3)
    chains = list(outcome.chains.values())
    events = result.events.copies
    amounts = amounts_of(sent, result.events.calls, events, chains, metrics)
    applied, writes = metrics["applied"], metrics["writes"]
    cost, violations = prices.cost(amounts), judge(outcome)
    return {
        "run": result.run,
        "replay": result.replay,
        "counts": {
            "chains": totals.chains,
            **Counter(chain.status for chain in chains),
            "with lost units": totals.lossy,
            "units": totals.units,
            "requests": sent.requests,
            "messages": sent.messages,
            "copies among them": sent.copies,
            "bytes": sent.bytes,
            "retries of sends": sent.retries,
            "events": events,
            "dead letters": len(outcome.dead_letters),
            "expected dead letters": totals.bad,
        },
        "latency": {name: percentiles(values) for name, values in latencies.items()},
        "throughput": {
            "seconds of sending": result.sending_seconds,
            "seconds to the last acked event": seconds,
            "units a second": totals.units / seconds,
            "messages a second": sent.messages / seconds,
            "chains a second": totals.chains / seconds,
        },
        "stack": {
            **metrics,
            "requests a write": applied / writes if applied and writes else None,
        },
        "bill": {name: _item(amounts[name], prices.per_million[name]) for name in UNITS},
        "cost": {
            "total": cost,
            "of a million units": cost * 1e6 / totals.units,
            "prices": f"{prices.currency}, {prices.region}, {prices.date}",
        },
        "left behind": list(result.left_behind),
        "violations": violations,
    }


def _item(amount: Amount, price: float) -> dict[str, Any]:
    cost = None if amount.value is None else amount.value * price / 1e6
    return {"amount": amount.value, "a million": price, "cost": cost, "source": amount.source}


def to_text(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a report."""
    yield f"run {report['run']}: {report['replay']}"
    for section in ("counts", "throughput", "stack", "latency", "bill", "cost"):
        figures = report[section]
        absent = [name for name, figure in figures.items() if _is_absent(figure)]
        if len(absent) == len(figures):
            yield f"\n{section}: not available"
            continue
        yield f"\n{section}"
        for name, figure in figures.items():
            if name not in absent:
                yield f"  {name:<32}{_cells(figure)} {_LATENCIES.get(name, '')}".rstrip()
        if absent and section != "latency":
            yield f"  not available: {', '.join(absent)}"
    yield ""
    for title in ("left behind", "violations"):
        lines = report[title]
        yield from (f"{title}: {line}" for line in lines[:_SHOWN])
        if len(lines) > _SHOWN:
            yield f"{title}: {len(lines) - _SHOWN:,} more; --json has all"
    yield f"{len(report['violations']):,} violations" if report["violations"] else "all as expected"


def _is_absent(figure: Any) -> bool:
    return None in figure.values() if isinstance(figure, Mapping) else figure is None


def _cells(figure: Any) -> str:
    if isinstance(figure, Mapping):
        return "".join(f"{name} {_cells(cell):<12}" for name, cell in figure.items())
    if isinstance(figure, str):
        return figure
    return f"{figure:,.0f}" if figure == int(figure) or figure >= 1000 else f"{figure:,.4g}"
