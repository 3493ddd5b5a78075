"""The handler of the sweeper, which each minute ends overdue chains and makes pending reports."""

from __future__ import annotations

import logging
import time
from typing import Any

from aws_lambda_powertools import Metrics
from aws_lambda_powertools.metrics import MetricUnit

from lambda_src.environment import SERVICE, Invocation, process
from xorack.acker.sweeper import Sweeper
from xorack.aws.naming_time import SWEEPERS_SHARE
from xorack.aws.schema import METRIC_NAMESPACE, Metric
from xorack.core.chain import NEVER_CREATED, TIMED_OUT

logger = logging.getLogger("xorack")
metrics = Metrics(namespace=METRIC_NAMESPACE, service=SERVICE)
_ATTEMPTS = 10
"""The most attempts to end a chain, within seconds, so that one chain does not delay the others."""


def build(invocation: Invocation) -> Sweeper:
    """Build the sweeper of one invocation."""
    writer = invocation.make_writer()
    return Sweeper(writer, invocation.make_outbox(writer, SWEEPERS_SHARE))


@metrics.log_metrics
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Sweep all due chains, and return the figures by metric name.

    If the table cannot be read, the handler raises an error, and the next sweep retries.
    """
    del event
    began = time.monotonic()
    invocation = process().begin(context, attempts=_ATTEMPTS)
    sweeper = build(invocation)
    result = sweeper.sweep()
    invocation.record_retention()
    now = sweeper.writer.now()
    counts = {
        Metric.CHAINS_LOOKED_AT: result.chains,
        Metric.CHAINS_ACKED: result.ended["acked"],
        Metric.ACKED_WITH_OUTSTANDING: result.tolerated,
        Metric.CHAINS_FAILED: sum(result.ended.values()) - result.ended["acked"],
        Metric.CHAINS_TIMED_OUT: result.ended[TIMED_OUT],
        Metric.CHAINS_NEVER_CREATED: result.ended[NEVER_CREATED],
        Metric.ENDS_DROPPED: result.dropped,
        Metric.EVENTS_PUBLISHED: result.events,
        Metric.EVENTS_PENDING: result.events_pending,
        Metric.DELIVERIES_REFUSED: result.refused,
        # Only the sweeper emits these two metrics: the number and the age of the events that stay
        # pending.
        Metric.EVENTS_PENDING_AFTER_SWEEP: result.events_pending,
        Metric.EVENTS_PENDING_SECONDS: max(0, now - (result.pending_since or now)) // 1000,
        Metric.SWEEP_PROBLEMS: result.problems,
        Metric.SWEEPS_INCOMPLETE: int(not result.complete),
        Metric.WRITES: result.stats.writes,
        Metric.CONFLICTS: result.stats.conflicts,
    }
    for name, count in counts.items():
        # CloudWatch bills each metric for the hours in which it has values, even zeros. Only
        # the alarm MetricsLost needs a value of each sweep.
        if count or name == Metric.CHAINS_LOOKED_AT:
            metrics.add_metric(name, MetricUnit.Count, count)
    duration = round((time.monotonic() - began) * 1000)
    logger.info("sweep", extra={"duration_ms": duration, "counts": counts})
    return counts
