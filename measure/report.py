"""The report of a measurement: sections of figures, as JSON and as text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from measure.judge import Outcome, judge
from measure.load import Sent
from measure.options import Plan
from xorack.core.text import plural

_DOLLARS = 10e-6
"""An upper bound of what a request or a chain costs in us-east-1 (2026): it is a message and a
write of its own, with a conflict. A test computes it from the prices of docs/capacity.md."""
_PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "max": 100}
_SHOWN = 50
_LATENCIES = {
    "to arrival": "ms, last message to the event here",
    "to time-out": "ms, deadline to the event here",
}


class Totals(NamedTuple):
    """Sums over the chains of a load."""

    chains: int
    units: int
    requests: int
    bad: int
    lossy: int

    @classmethod
    def of(cls, plans: Iterable[Plan]) -> Totals:
        """Sum the figures of the plans."""
        rows = ((1, p.units, p.requests, bool(p.bad), p.lost > 0) for p in plans)
        return cls(*map(sum, zip(*rows, strict=True)))

    def upper_estimate(self, duplicate: float) -> float:
        """Compute more dollars than a load can cost, save for a fault of the stack."""
        requests = self.requests + self.bad + self.lossy
        return _DOLLARS * (self.chains + requests * (1 + 2 * duplicate) + 1000)


@dataclass
class Result:
    """The result of a measurement."""

    run: str
    outcome: Outcome
    sent: Sent
    sending_seconds: float  # of the first sends
    deadline_at: float  # of lossy chains, seconds since the epoch
    left_behind: Sequence[str] = ()  # what could not be removed


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
        for event in outcome.events.get(plan.tag, ())[:1]:
            if plan.lost:
                latencies["to time-out"].append(1000 * (event.received_at - result.deadline_at))
                continue
            last = max(last, event.received_at)
            if plan.bad is None:  # it may be the chain's last request
                since = event.received_at - outcome.times[plan.tag]
                latencies["to arrival"].append(1000 * since)
    return latencies, last


def to_dict(result: Result) -> dict[str, Any]:
    """Judge the outcome; return the report as a JSON object, with null for unknown figures."""
    outcome, sent = result.outcome, result.sent
    totals = Totals.of(outcome.plans)
    latencies, last = _latencies(result)
    seconds = max(last - sent.first, 1e-3)
    return {
        "run": result.run,
        "counts": {
            "chains": totals.chains,
            **Counter(chain.status for chain in outcome.chains.values()),
            "with lost units": totals.lossy,
            "units": totals.units,
            "requests": sent.requests,
            "messages": sent.messages,
            "copies among them": sent.copies,
            "events": sum(map(len, outcome.events.values())),
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
        "left behind": list(result.left_behind),
        "violations": judge(outcome),
    }


def to_text(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a report, without unknown figures."""
    yield f"run {report['run']}"
    for section in ("counts", "throughput"):
        yield from ("", section)
        yield from (f"  {name:<32}{_shown(figure)}" for name, figure in report[section].items())
    yield from ("", "latency")
    for name, figures in report["latency"].items():
        if None not in figures.values():
            cells = "".join(f"{rank} {_shown(figure):<12}" for rank, figure in figures.items())
            yield f"  {name:<32}{cells} {_LATENCIES[name]}"
    yield ""
    for title in ("left behind", "violations"):
        lines = report[title]
        yield from (f"{title}: {line}" for line in lines[:_SHOWN])
        if len(lines) > _SHOWN:
            yield f"{title}: {len(lines) - _SHOWN:,} more; --json has all"
    count = len(report["violations"])
    yield plural(count, "violation") if count else "all as expected"


def _shown(figure: float) -> str:
    return f"{figure:,.0f}" if figure == int(figure) or figure >= 1000 else f"{figure:,.4g}"
