"""The alarms, which the table `_ROWS` lists. docs/operations.md says what to do about each alarm.

ADR 35 has the reasons. Every alarm treats missing data as not breaching, because CloudWatch has no
data of an idle queue or function. Where missing data is the problem, an expression turns it into
zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import aws_cdk as cdk
from constructs import Construct

from xorack.aws.schema import DUE_INDEX, Metric
from xorack.cdk.grants import AckerParts
from xorack.cdk.queue import visibility_timeout_seconds
from xorack.cdk.settings import DEAD_LETTER_DAYS, QUEUE_DAYS, Settings
from xorack.cdk.validation import as_text

PAGE: Final = "PageWorkIsStuck"
TICKET: Final = "TicketForTomorrow"
_MINIMAL: Final = ("ConsumerFailing", "QueueBehind", "SweeperSilent", "DeadLettersNew")
"""The alarms of `monitoring="minimal"`. They use metrics that AWS emits free of charge."""
_SINGLE: Final = "single events"
"""Alarms that notify separately. In a composite, they would hide all other causes for days."""
_EVENT_MINUTES: Final = 60
"""How long an alarm on a single event stays on, so that a series of events notifies once."""
_COMPARISON: Final = cdk.aws_cloudwatch.ComparisonOperator
_Metric: TypeAlias = cdk.aws_cloudwatch.Metric | cdk.aws_cloudwatch.MathExpression
_Alarms: TypeAlias = dict[str, cdk.aws_cloudwatch.AlarmBase]


@dataclass(frozen=True, kw_only=True)
class _Row:
    """An alarm, which goes off if enough values of a metric are above a threshold.

    Attributes:
        group: The composite alarm to which it belongs, or `_SINGLE`.
        out_of: The number of values that must be above the threshold, the number of latest values
            that are checked, and the minutes of each value.
        text: A description of the problem and the first thing to do. ``{threshold}`` stands for
            the threshold.
    """

    name: str
    group: str = TICKET
    metric: Callable[[AckerParts], _Metric]
    threshold: float | Callable[[AckerParts], float] = 0
    comparison: cdk.aws_cloudwatch.ComparisonOperator = _COMPARISON.GREATER_THAN_THRESHOLD
    out_of: tuple[int, int, int] | Callable[[Settings], tuple[int, int, int]]
    text: str

    def create(self, scope: Construct, acker: AckerParts) -> cdk.aws_cloudwatch.Alarm:
        metric = self.metric(acker)
        threshold = self.threshold(acker) if callable(self.threshold) else self.threshold
        out_of = self.out_of(acker.settings) if callable(self.out_of) else self.out_of
        datapoints, periods, minutes = out_of
        severity, runbook = "page" if self.group == PAGE else "ticket", self.name.lower()
        # With a label, an alarm on a plain metric would become an alarm on an expression.
        is_expression = isinstance(metric, cdk.aws_cloudwatch.MathExpression)
        return cdk.aws_cloudwatch.Alarm(
            scope,
            self.name,
            metric=metric.with_(
                label=self.name if is_expression else None, period=cdk.Duration.minutes(minutes)
            ),
            alarm_description=f"[{severity}] {self.text.format(threshold=as_text(threshold))} "
            f"Runbook: docs/operations.md#{runbook}",  # CloudWatch takes 1,024 characters
            threshold=threshold,
            comparison_operator=self.comparison,
            datapoints_to_alarm=datapoints,
            evaluation_periods=periods,
            treat_missing_data=cdk.aws_cloudwatch.TreatMissingData.NOT_BREACHING,
        )


def queue_age_threshold_seconds(acker: AckerParts) -> int:
    """Return the message age in seconds above which the queue counts as behind.

    SQS stops counting the age of a message at its third receive, two visibility timeouts after the
    first. A message whose second attempt succeeds is younger than the sum of one visibility
    timeout, one batching window and one attempt. The threshold is halfway between the two ages.
    """
    settings = acker.settings
    visibility = visibility_timeout_seconds(settings, acker.queue)
    attempt = settings.batch_window_seconds + settings.function_timeout_seconds
    return (3 * visibility + attempt) // 2


def create_alarms(scope: Construct, acker: AckerParts, topic: cdk.aws_sns.ITopic | None) -> _Alarms:
    """Create the alarms by construct id, composite alarms first, and connect them to a topic.

    With `monitoring="full"`, composite alarms notify of states, so that a cause of several alarms
    sends one message. Alarms on single events notify separately. Without composite alarms, each
    alarm notifies separately. No alarm notifies of its end, because CloudWatch would also send this
    notification for each new alarm.
    """
    monitoring = acker.settings.monitoring
    full = monitoring == "full"
    rows = [row for row in _ROWS if monitoring != "minimal" or row.name in _MINIMAL]
    alarms: _Alarms = {row.name: row.create(scope, acker) for row in rows}
    composites = _create_composites(scope, rows, alarms) if full else {}
    if topic is not None:
        alone = [alarms[row.name] for row in rows if row.group == _SINGLE or not full]
        for alarm in (*composites.values(), *alone):
            alarm.add_alarm_action(cdk.aws_cloudwatch_actions.SnsAction(topic))
    return {**composites, **alarms}


def _create_composites(scope: Construct, rows: Sequence[_Row], alarms: _Alarms) -> _Alarms:
    def create(group: str, text: str, **suppression: Any) -> cdk.aws_cloudwatch.CompositeAlarm:
        members = (alarms[row.name] for row in rows if row.group == group)
        composite = cdk.aws_cloudwatch.CompositeAlarm(
            scope,
            group,
            alarm_rule=cdk.aws_cloudwatch.AlarmRule.any_of(*members),
            alarm_description=f"{text} First: see which alarms are on. "
            f"Runbook: docs/operations.md#{group.lower()}",
            **suppression,
        )
        resource: Any = composite.node.default_child
        # CloudFormation generates the name, because the CDK's name would be the same for equal
        # paths in two apps.
        resource.alarm_name = None
        return composite

    page = create(PAGE, "[page] Work is stuck.")
    ticket = create(
        TICKET,
        "[ticket] Somebody has to look within a day.",
        # An outage needs no ticket, because it pages after 15 minutes at most. The alarms that it
        # sets off end within 35 minutes.
        actions_suppressor=page,
        actions_suppressor_wait_period=cdk.Duration.minutes(15),
        actions_suppressor_extension_period=cdk.Duration.minutes(35),
    )
    return {PAGE: page, TICKET: ticket}


def _expression(
    expression: str, **metrics: cdk.aws_cloudwatch.IMetric
) -> cdk.aws_cloudwatch.MathExpression:
    return cdk.aws_cloudwatch.MathExpression(expression=expression, using_metrics=metrics)


def _sum(**metrics: cdk.aws_cloudwatch.IMetric) -> cdk.aws_cloudwatch.MathExpression:
    """Add metrics that have values only when they are not zero."""
    return _expression(" + ".join(f"FILL({name}, 0)" for name in metrics), **metrics)


def table_metrics(
    table: cdk.aws_dynamodb.ITable, name: str
) -> dict[str, cdk.aws_cloudwatch.Metric]:
    """Return metrics of reads and writes for the table and its index, such as ``read_table``."""
    dimensions = {"TableName": table.table_name}
    places = {
        "table": dimensions,
        "index": {**dimensions, "GlobalSecondaryIndexName": DUE_INDEX},
    }
    return {
        f"{verb.lower()}_{place}": table.metric(
            name.format(verb), dimensions_map=place_dimensions, statistic="Sum"
        )
        for verb in ("Read", "Write")
        for place, place_dimensions in places.items()
    }


def _received_and_deleted(settings: Settings) -> tuple[int, int, int]:
    """Return `_Row.out_of` for an alarm, because a batch may be deleted in a later period."""
    attempt_seconds = settings.function_timeout_seconds + settings.batch_window_seconds
    datapoints = 2 + -(-attempt_seconds // 300)
    return datapoints, datapoints + 2, 5


_ROWS: Final[Sequence[_Row]] = (
    _Row(
        name="ConsumerFailing",
        group=PAGE,
        metric=lambda w: _expression(
            "IF(received > 0, 100 * (1 - deleted / received))",
            received=w.queue.metric_number_of_messages_received(),
            deleted=w.queue.metric_number_of_messages_deleted(),
        ),
        threshold=50,
        out_of=_received_and_deleted,
        text="The consumer received messages and finished less than half of them. First: read the "
        "consumer's log for `BatchError` and `chains not written`.",
    ),
    _Row(
        name="QueueBehind",
        group=PAGE,
        # The age of a single failing message is not a backlog, because other messages do not wait.
        metric=lambda w: _expression(
            "IF(waiting > received, age)",
            waiting=w.queue.metric_approximate_number_of_messages_visible(),
            received=w.queue.metric_number_of_messages_received(),
            age=w.queue.metric_approximate_age_of_oldest_message(),
        ),
        threshold=queue_age_threshold_seconds,
        out_of=(3, 5, 1),
        text="Messages wait for longer than an attempt and its repetition take: the consumer does "
        "not run or is too slow. First: see whether the consumer is invoked, throttled, or at its "
        "maximum concurrency.",
    ),
    _Row(
        name="SweeperSilent",
        group=PAGE,
        # Lambda polls the queue, so the queue always has data. If only the sweeper has no data, its
        # value is 0. In a new stack neither has data, which is not breaching.
        metric=lambda w: _expression(
            "IF(polled >= 0, FILL(sweeps, 0) - FILL(errors, 0))",
            polled=w.queue.metric_approximate_number_of_messages_visible(),
            sweeps=w.sweeper.metric_invocations(),
            errors=w.sweeper.metric_errors(),
        ),
        threshold=1,
        comparison=_COMPARISON.LESS_THAN_THRESHOLD,
        out_of=(10, 10, 1),
        text="No sweep succeeded for ten minutes: chains do not time out, and pending events "
        "wait. First: see whether the sweeper runs; if it does, read its log.",
    ),
    _Row(
        name="MetricsLost",
        # Each sweep emits this metric in its log. If the log is lost, the alarms on the functions'
        # metrics have no data.
        metric=lambda w: _expression(
            "IF(FILL(sweeps, 0) > FILL(errors, 0), IF(FILL(emitted, 0) > 0, 0, 1), 0)",
            sweeps=w.sweeper.metric_invocations(),
            errors=w.sweeper.metric_errors(),
            emitted=w.metric(Metric.CHAINS_LOOKED_AT, statistic="SampleCount"),
        ),
        out_of=(10, 12, 1),
        text="Sweeps succeed, and their metrics do not arrive: the alarms on events, refusals, "
        "sweeps and failed chains see nothing. First: see whether the sweeper's log group exists "
        "and has new lines.",
    ),
    _Row(
        name="EventsPending",
        group=PAGE,
        metric=lambda w: w.metric(Metric.EVENTS_PENDING_SECONDS, statistic="Maximum"),
        threshold=600,
        out_of=(3, 5, 1),
        text="Events of chains that ended over ten minutes ago are not published. First: read "
        "`events not published` in the sweeper's log for the bus's response.",
    ),
    _Row(
        name="DeliveriesRefused",
        group=_SINGLE,
        # The metric counts the first and the last refusal of a chain.
        metric=lambda w: w.metric(Metric.DELIVERIES_REFUSED),
        out_of=(1, _EVENT_MINUTES, 1),
        text="A service refused an event or a callback of a chain. A callback is given up a day "
        "later. First: read `refused` in the functions' logs for the reason.",
    ),
    _Row(
        name="SweepProblems",
        metric=lambda w: _sum(
            problems=w.metric(Metric.SWEEP_PROBLEMS, statistic="Maximum"),
            incomplete=w.metric(Metric.SWEEPS_INCOMPLETE, statistic="Maximum"),
        ),
        out_of=(10, 12, 1),
        text="For ten minutes, the sweeper could not end some chains, or ran out of time. First: "
        "read `chains not ended` and `chains not read` in the sweeper's log; without them, raise "
        "`function_timeout_seconds`.",
    ),
    _Row(
        name="DeadLettersNew",
        group=_SINGLE,
        # SQS does not count the messages that it moves itself as sent, so the alarm looks for a
        # growing number of messages. Hidden messages count too, because readers hide messages for a
        # time. There is no data before the first message.
        metric=lambda w: _expression(
            "DIFF(FILL(FILL(visible + hidden, REPEAT), 0))",
            visible=w.dead_letters.metric_approximate_number_of_messages_visible(),
            hidden=w.dead_letters.metric_approximate_number_of_messages_not_visible(),
        ),
        out_of=(1, _EVENT_MINUTES, 1),
        text="Messages came to the dead-letter queue within the last hour. First: run `xorack "
        "dead-letters list` for the reasons.",
    ),
    _Row(
        name="DeadLettersOld",
        metric=lambda w: w.dead_letters.metric_approximate_age_of_oldest_message(),
        # Half of the shortest time in the dead-letter queue, because SQS deletes by the time of the
        # first send.
        threshold=(DEAD_LETTER_DAYS - QUEUE_DAYS) * 86_400 // 2,
        out_of=(1, 1, 60),
        text="Dead letters wait to be handled, and SQS deletes them when their retention ends. "
        "First: run `xorack dead-letters list`, then redrive or delete them.",
    ),
    _Row(
        name="ChainsFailed",
        group=_SINGLE,
        metric=lambda w: w.metric(Metric.CHAINS_FAILED),
        threshold=lambda w: w.settings.failed_chains_threshold,
        out_of=(1, _EVENT_MINUTES // 5, 5),
        text="More than {threshold} chains failed within five minutes. First: run `xorack list "
        "--status failed` for the reasons.",
    ),
    _Row(
        name="TableThrottled",
        metric=lambda w: _sum(**table_metrics(w.table, "{}ThrottleEvents")),
        out_of=(10, 15, 1),
        text="DynamoDB keeps throttling the table or its index. First: see on the dashboard which "
        "of them, and whether one chain is hot.",
    ),
)
