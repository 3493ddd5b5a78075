"""The sweeper, run each minute: ends chains whose deadline passed, publishes what is owed."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from lambda_src.environment import SERVICE, environment, policy_within
from xorack.acker.sweeper import sweep

logger = Logger(service=SERVICE, name="xorack")
metrics = Metrics(namespace="xorack", service=SERVICE)


@metrics.log_metrics
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Look at all chains that are due.

    Args:
        event: Anything; a scheduled event.
        context: The Lambda context.

    Returns:
        What was done, as counts: for people who call it by hand.

    Raises:
        InvalidRequest: The function's environment is not what it must be.
        Unavailable: The table could not be read; the next sweep tries again.
    """
    del event
    known = environment()
    swept = sweep(known.store, known.bus, policy=policy_within(context))
    counts = {
        "ChainsLookedAt": swept.looked,
        "ChainsFailed": sum(swept.ended.values()),
        "ChainsTimedOut": swept.ended["timed out"],
        "ChainsNeverCreated": swept.ended["never created"],
        "EventsPublished": swept.events,
        "EventsPending": swept.event_pending,
        # The same, of the sweeper alone: a gauge, once a minute, of what nobody could publish.
        "EventsPendingAfterSweep": swept.event_pending,
        "SweepProblems": swept.problems,
        "SweepsIncomplete": int(not swept.complete),
        "Writes": swept.stats.writes,
        "Conflicts": swept.stats.conflicts,
    }
    for name, count in counts.items():
        metrics.add_metric(name=name, unit=MetricUnit.Count, value=count)
    logger.info("sweep", extra={"counts": counts})
    return counts
