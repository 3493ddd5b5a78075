"""The results of a trial: checks, figures and a chart of latencies."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from xorack.core.text import plural
from xorack.ops.doctor.check import Check, conclude
from xorack.ops.doctor.load import REPEATED, Load, Sent
from xorack.ops.doctor.trial import Trial
from xorack.ops.doctor.verify import TrialResult

CHAINS, LOAD = ("acked chain", "failed chain"), "load"
DOLLARS = 10e-6
"""An upper bound of the price of a request or a chain in us-east-1 (2026). It assumes a message of
its own and a write with a conflict. A test computes it from the prices in docs/capacity.md."""
_PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "max": 100}
_EDGES = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, math.inf)
"""The upper ends of the chart's classes in seconds."""
_SHOWN = 5


def upper_estimate(load: Load) -> float:
    """Return an upper bound of a load's price in dollars, for a healthy stack."""
    plans = load.plans("")
    requests = sum(plan.finished + 1 + (plan.lost > 0) for plan in plans)
    return DOLLARS * (len(plans) + requests * (1 + 2 * REPEATED) + 1000)


def check_chains(trial: Trial, outcome: TrialResult) -> list[Check]:
    """Return the checks of the two chains of `TwoChains`."""
    seconds = list(_latencies(outcome))
    acked, failed = outcome.plans
    summaries = (
        f"its event arrived {seconds[0]:.1f} s after its last request" if seconds else "",
        f"timed out, and its event names the unit that is missing: {failed.outstanding()[0]:016x}",
    )
    return [
        _concluded(name, summary, trial, outcome.violations(plan), f"xorack show {plan.tag}; ")
        for name, summary, plan in zip(CHAINS, summaries, (acked, failed), strict=True)
    ]


def check_load(trial: Trial, sent: Sent, outcome: TrialResult) -> Check:
    violations = outcome.all_violations()
    chains_with_loss = sum(plan.lost > 0 for plan in outcome.plans)
    copies = f"{plural(sent.copies, 'message')} sent again"
    chains = plural(len(outcome.plans), "chain")
    done = f"{chains}, {chains_with_loss:,} of them with lost units, {copies}"
    return _concluded(LOAD, f"{done}: each ended as it must", trial, violations)


def _concluded(
    name: str, summary: str, trial: Trial, violations: Sequence[str], look: str = ""
) -> Check:
    more = len(violations) - _SHOWN
    text = "; ".join(violations[:_SHOWN]) + (f"; and {more:,} more" if more > 0 else "")
    if trial.sweeper_error:
        text += f"; the sweeper failed: {trial.sweeper_error}"
    advice = f"{look}xorack dead-letters list; read the functions' logs"
    return conclude(name, summary, {text: violations}, advice)


def _latencies(outcome: TrialResult) -> Iterator[float]:
    """Yield the seconds from each acked chain's last request to its event."""
    for plan in outcome.plans:
        for event in outcome.events.get(plan.tag, ())[:1]:
            if not plan.lost:
                yield event.at - outcome.times[plan.tag]


def figures(load: Load, sent: Sent, outcome: TrialResult) -> dict[str, Any]:
    """Return the figures of a load as a JSON object. Unknown figures are null."""
    latencies = sorted(_latencies(outcome))
    events = [event.at for many in outcome.events.values() for event in many[:1]]
    seconds = max(max(events, default=sent.ended_at) - sent.begun_at, 1e-3)
    ranks = {name: math.ceil(len(latencies) * p / 100) - 1 for name, p in _PERCENTILES.items()}
    classes = [
        (edge, sum(edge <= latency < end for latency in latencies))
        for edge, end in pairwise(_EDGES)
    ]
    return {
        "chains": len(outcome.plans),
        "units": sum(plan.units for plan in outcome.plans),
        "requests": sent.requests,
        "messages": sent.messages,
        "copies": sent.copies,
        "seconds_of_sending": sent.ended_at - sent.begun_at,
        "requests_per_second": sent.requests / max(sent.ended_at - sent.begun_at, 1e-3),
        "chains_per_second": len(outcome.plans) / seconds,
        "latency_seconds": {
            name: latencies[rank] if latencies else None for name, rank in ranks.items()
        },
        "latency_classes": [{"from_seconds": edge, "chains": count} for edge, count in classes],
        "dollars_at_most": upper_estimate(load),
    }


def chart(report: Mapping[str, Any], width: int) -> Iterator[str]:
    """Yield the lines of the figures: throughput, latencies as bars, and the price."""
    yield (
        f"{report['requests']:,} requests in {report['seconds_of_sending']:.1f} s: "
        f"{report['requests_per_second']:,.0f}/s, {report['chains_per_second']:,.1f} chains/s "
        "from the first request to the last event"
    )
    counts = [(each["from_seconds"], each["chains"]) for each in report["latency_classes"]]
    present = [place for place, (_, count) in enumerate(counts) if count]
    if present:
        yield "seconds from a chain's last request to its acked event:"
        most = max(count for _, count in counts)
        for edge, count in counts[present[0] : present[-1] + 1]:
            yield f"  from {edge:>5g} s  {'█' * math.ceil(count * (width - 26) / most)} {count:,}"
        named = report["latency_seconds"].items()
        yield "  " + ", ".join(f"{name} {seconds:.1f} s" for name, seconds in named)
    yield f"this run cost at most {report['dollars_at_most']:,.2f} USD"
