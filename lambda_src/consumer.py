"""The queue's consumer: applies stamp requests to their chains, publishes what ended.

The event source mapping must report batch item failures; what is returned are the messages that
come again. What they mean is in `xorack.acker.consumer`.

Powertools' batch utility is not used: it calls a function a record, and a batch is folded before
anything of it is applied. What would be left for it is the answer, and importing it takes longer
than all else of Powertools and xorack (asyncio, and a class for every event there is).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from lambda_src.environment import SERVICE, dead_letters, environment, policy_within
from xorack.acker.consumer import BatchResult, Message, consume
from xorack.core.errors import InvalidRequest

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse

logger = Logger(service=SERVICE, name="xorack")
metrics = Metrics(namespace="xorack", service=SERVICE)
_COUNT = MetricUnit.Count.value
_MILLISECONDS = MetricUnit.Milliseconds.value


@metrics.log_metrics
def handler(event: dict[str, Any], context: Any) -> PartialItemFailureResponse:
    """Handle a batch of SQS messages.

    Args:
        event: The SQS event.
        context: The Lambda context.

    Returns:
        ``{"batchItemFailures": [{"itemIdentifier": message id}, ...]}``.

    Raises:
        InvalidRequest: The function's environment, or the event, is not what it must be; the
            whole batch comes again.
    """
    known = environment()
    letters = dead_letters(context)
    if not isinstance(event, dict) or not isinstance(event.get("Records"), list):
        raise InvalidRequest("event", event, "an SQS event with Records")
    if not event["Records"]:
        return {"batchItemFailures": []}
    done = consume(
        [Message(record["messageId"], record["body"]) for record in event["Records"]],
        known.store,
        known.bus,
        letters,
        policy=policy_within(context),
        default_timeout=known.default_timeout,
        retention=known.retention,
    )
    _measure(done)
    return {"batchItemFailures": [{"itemIdentifier": message} for message in done.failed]}


def _figure(unit: str, values: list[int]) -> dict[str, Any]:
    """A metric as Powertools keeps it until it is written."""
    return {"Unit": unit, "StorageResolution": 60, "Value": [float(value) for value in values]}


def spread(values: list[int], most: int) -> list[int]:
    """Values that stand for all: no more than `most`, at least 2, evenly from least to greatest.

    Args:
        values: Any number.
        most: How many may be told.

    Returns:
        The values themselves where they are few.
    """
    if len(values) <= most:
        return values
    ordered = sorted(values)
    return [ordered[n * (len(values) - 1) // (most - 1)] for n in range(most)]


def _measure(done: BatchResult) -> None:
    """The figures of a batch, as embedded metrics and as one line of the log."""
    failed = done.ended["failed"]
    counts = {
        "RequestsApplied": done.outcomes["applied"],
        "RequestsDuplicate": done.outcomes["duplicate"],
        "RequestsLate": done.outcomes["late"],
        "RequestsRejected": done.outcomes["rejected"],
        "RequestIdsReused": done.outcomes["reused"],
        "ChainsCreated": done.created,
        "ChainsAcked": done.ended["acked"],
        "ChainsFailed": failed,
        # Whatever reason a `fail` gives, it was asked for: a metric a reason would have no end.
        "ChainsFailedOnRequest": failed,
        "EventsPublished": done.events,
        "EventsPending": done.event_pending,
        "Writes": done.stats.writes,
        "Conflicts": done.stats.conflicts,
        "MarksSpilled": done.stats.spilled,
        "MessagesFailed": len(done.failed),
    }
    # What `add_metric` does, once for all: one by one, they take as long as a batch of ten.
    metrics.metric_set.update({name: _figure(_COUNT, [count]) for name, count in counts.items()})
    if done.latencies:  # one metric holds a hundred values and is flushed then
        metrics.metric_set["AckLatency"] = _figure(_MILLISECONDS, spread(done.latencies, 99))
    logger.info("batch", extra={"counts": counts})
