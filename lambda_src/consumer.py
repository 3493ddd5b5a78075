"""The handler of the consumer, which applies the queue's requests and publishes events of ends.

The event source mapping must have ``ReportBatchItemFailures``. `xorack.acker.consumer` does the
work.

Powertools' batch utility is not used, because it calls a function for each record, while the
consumer folds a batch by chain. Its import takes longer than the import of the rest of Powertools.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Metrics
from aws_lambda_powertools.metrics import MetricUnit

from lambda_src.environment import SERVICE, Invocation, process
from xorack.acker.consumer import BatchResult, Consumer, Message
from xorack.aws.schema import METRIC_NAMESPACE, Metric
from xorack.core.errors import ArgumentError, BatchError

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse

logger = logging.getLogger("xorack")
metrics = Metrics(namespace=METRIC_NAMESPACE, service=SERVICE)


def build(invocation: Invocation) -> Consumer:
    """Build the consumer of one invocation."""
    writer = invocation.make_writer()
    return Consumer(writer, invocation.make_outbox(writer), invocation.make_dead_letters())


@metrics.log_metrics
def handler(event: dict[str, Any], context: Any) -> PartialItemFailureResponse:
    """Handle a batch of SQS messages. If the handler raises, SQS delivers the entire batch again.

    Raises:
        BatchError: Every message failed. Lambda counts an error, and polls more slowly.
        ArgumentError: The environment or the event is invalid.
    """
    began = time.monotonic()
    invocation = process().begin(context)
    consumer = build(invocation)
    if not isinstance(event, dict) or not isinstance(event.get("Records"), list):
        raise ArgumentError("event", event, "an SQS event with Records")
    if not event["Records"]:
        return {"batchItemFailures": []}
    messages = [_message(record) for record in event["Records"]]
    result = consumer.consume(messages)
    invocation.record_retention()
    counts = _emit_metrics(result)
    duration = round((time.monotonic() - began) * 1000)
    fields = {"messages": len(messages), "duration_ms": duration, "counts": counts}
    logger.info("batch", extra=fields)
    if len(result.failed) == len({message.id for message in messages}):
        raise BatchError(len(result.failed), next(iter(result.failed.values())))
    return {"batchItemFailures": [{"itemIdentifier": id} for id in result.failed]}


def _message(record: dict[str, Any]) -> Message:
    attributes = record.get("attributes") or {}
    sent_at = (record.get("messageAttributes") or {}).get("sent_at") or {}
    # A redriven message was first sent earlier than SQS says. A later time is ignored.
    times = map(_number, (sent_at.get("stringValue"), attributes.get("SentTimestamp")))
    return Message(
        record["messageId"],
        record["body"],
        _number(attributes.get("ApproximateReceiveCount")) or 1,
        min((time for time in times if time is not None), default=None),
        attributes.get("SenderId"),
    )


def _number(value: object) -> int | None:
    """Return a whole number of at most 18 digits.

    Senders may pass any other value, for which the result is None.
    """
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def _emit_metrics(result: BatchResult) -> dict[str, int]:
    failed = result.ended["failed"]
    counts = {
        Metric.REQUESTS_APPLIED: result.outcomes["applied"],
        Metric.REQUESTS_DUPLICATE: result.outcomes["duplicate"],
        Metric.REQUESTS_LATE: result.outcomes["late"],
        Metric.REQUESTS_REJECTED: result.outcomes["rejected"],
        Metric.REQUEST_IDS_REUSED: result.outcomes["reused"],
        Metric.CREATES_REPEATED: result.outcomes["repeated"],
        Metric.CHAINS_CREATED: result.created,
        Metric.CHAINS_ACKED: result.ended["acked"],
        Metric.CHAINS_FAILED: failed,
        Metric.CHAINS_FAILED_ON_REQUEST: failed,
        Metric.ENDS_DROPPED: result.dropped,
        Metric.EVENTS_PUBLISHED: result.events,
        Metric.EVENTS_PENDING: result.events_pending,
        Metric.DELIVERIES_REFUSED: result.refused,
        Metric.WRITES: result.stats.writes,
        Metric.CONFLICTS: result.stats.conflicts,
        Metric.MARKS_SPILLED: result.stats.spilled,
        Metric.MESSAGES_FAILED: len(result.failed),
    }
    # Powertools emits a metric when it has 100 values, and then continues.
    for latency in result.latencies_ms:
        metrics.add_metric(Metric.ACK_LATENCY, MetricUnit.Milliseconds, latency)
    for name, count in counts.items():
        if count:  # CloudWatch would also bill zeros
            metrics.add_metric(name, MetricUnit.Count, count)
    return counts
