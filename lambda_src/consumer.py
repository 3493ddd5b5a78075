"""The queue's consumer: applies stamp requests to their chains, publishes what ended.

The event source mapping must report batch item failures; what is returned are the messages that
come again. What they mean is in `xorack.consume`.
"""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from lambda_src.environment import SERVICE, environment, policy_within
from xorack.consume import Consumed, Message, consume
from xorack.errors import InvalidRequest, XorAckError

logger = Logger(service=SERVICE, name="xorack")
metrics = Metrics(namespace="xorack", service=SERVICE)
# A batch of which every message must come again is answered like any other.
processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)


class ComesAgain(XorAckError):
    """A message that is not done with."""


@metrics.log_metrics
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
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
    if known.dead_letters is None:
        raise InvalidRequest(
            "DEAD_LETTER_QUEUE_URL", None, "a value: it is an environment variable"
        )
    if not isinstance(event, dict) or not isinstance(event.get("Records"), list):
        raise InvalidRequest("event", event, "an SQS event with Records")
    if not event["Records"]:
        return {"batchItemFailures": []}
    done = consume(
        [Message(record["messageId"], record["body"]) for record in event["Records"]],
        known.store,
        known.bus,
        known.dead_letters,
        policy=policy_within(context),
        default_timeout=known.default_timeout,
        retention=known.retention,
    )
    _measure(done)

    def answer(record: SQSRecord) -> None:
        if (why := done.failed.get(record.message_id)) is not None:
            raise ComesAgain(why)

    return dict(
        process_partial_response(
            event=event, record_handler=answer, processor=processor, context=context
        )
    )


def _measure(done: Consumed) -> None:
    """The figures of a batch, as embedded metrics and as one line of the log."""
    failed = sum(done.ended.values()) - done.ended["acked"]
    counts = {
        "RequestsApplied": done.outcomes["applied"],
        "RequestsDuplicate": done.outcomes["duplicate"],
        "RequestsLate": done.outcomes["late"],
        "RequestsRefused": done.outcomes["refused"],
        "RequestIdsReused": done.outcomes["reused"],
        "ChainsCreated": done.created,
        "ChainsAcked": done.ended["acked"],
        "ChainsFailed": failed,
        # Whatever reason a `fail` gives, it was asked for: a metric a reason would have no end.
        "ChainsFailedOnRequest": failed,
        "EventsPublished": done.events,
        "EventsOwed": done.owed,
        "Writes": done.tally.writes,
        "Conflicts": done.tally.conflicts,
        "MarksSpilled": done.tally.spilled,
        "MessagesFailed": len(done.failed),
    }
    for name, count in counts.items():
        metrics.add_metric(name=name, unit=MetricUnit.Count, value=count)
    for latency in done.latencies[:99]:  # one metric holds a hundred values and is flushed then
        metrics.add_metric(name="AckLatency", unit=MetricUnit.Milliseconds, value=latency)
    logger.info("batch", extra={"counts": counts})
