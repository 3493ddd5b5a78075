"""The alarms, as the table `_ROWS`. docs/operations.md says what to do about each, ADR 35 why.

Every alarm treats missing data as not breaching: CloudWatch has none of a queue that nobody uses,
or of a function that does not run. Where silence is the problem, an expression makes it a zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from aws_cdk import (
    Duration,
    aws_cloudwatch,
    aws_cloudwatch_actions,
    aws_lambda,
    aws_sns,
)
from constructs import Construct

from xorack.aws.schema import Metric
from xorack.cdk.functions import Resources
from xorack.cdk.queue import visibility_timeout_seconds
from xorack.cdk.settings import DEAD_LETTER_DAYS, Settings
from xorack.core.budget import Budget, TimeOuts

PAGE: Final = "PageWorkIsStuck"
TICKET: Final = "TicketForTomorrow"
_MINIMAL: Final = ("ConsumerFailing", "QueueBehind", "SweeperSilent", "DeadLettersNew")
"""Alarms of `monitoring="minimal"`: they use metrics that AWS emits for nothing."""
_WAIT_MINUTES: Final = 15
"""Time after which an outage pages at the latest; the tickets wait for that."""
_DRAIN_MINUTES: Final = 35
"""Time after which the alarms that an outage set off have ended."""
_EVENT_MINUTES: Final = 60
"""Time for which an alarm on a single event stays on: it tells of a series once."""
_COMPARISON: Final = aws_cloudwatch.ComparisonOperator
_DAY: Final = 86_400
_Functions = Mapping[str, aws_lambda.IFunction]
_Metric: TypeAlias = aws_cloudwatch.Metric | aws_cloudwatch.MathExpression


class _Watched(NamedTuple):
    """What the alarms of one acker watch."""

    resources: Resources
    consumer: aws_lambda.IFunction
    sweeper: aws_lambda.IFunction


@dataclass(frozen=True, kw_only=True)
class _Row:
    """An alarm, which goes off if enough values of a metric are above a threshold.

    Attributes:
        group: `PAGE` or `TICKET`, its severity and the composite alarm that it belongs to.
        alone: It notifies by itself, since events that come for days would hide all other causes
            of a composite alarm.
        period_minutes: The time that a value stands for.
        out_of: How many values must be above the threshold, out of how many of the last.
        problem: What is wrong, where ``{threshold}`` stands for the number.
        first: The first thing to do.
    """

    name: str
    group: str = TICKET
    alone: bool = False
    metric: Callable[[_Watched], _Metric]
    threshold: float | Callable[[_Watched], float] = 0
    comparison: aws_cloudwatch.ComparisonOperator = _COMPARISON.GREATER_THAN_THRESHOLD
    period_minutes: int = 1
    out_of: tuple[int, int] | Callable[[_Watched], tuple[int, int]]
    problem: str
    first: str

    def create(self, scope: Construct, watched: _Watched) -> aws_cloudwatch.Alarm:
        metric = self.metric(watched)
        threshold = self.threshold(watched) if callable(self.threshold) else self.threshold
        datapoints, periods = self.out_of(watched) if callable(self.out_of) else self.out_of
        # An alarm on a plain metric with a label would be one on an expression.
        is_expression = isinstance(metric, aws_cloudwatch.MathExpression)
        return aws_cloudwatch.Alarm(
            scope,
            self.name,
            metric=metric.with_(
                label=self.name if is_expression else None,
                period=Duration.minutes(self.period_minutes),
            ),
            alarm_description=self._description(threshold),
            threshold=threshold,
            comparison_operator=self.comparison,
            datapoints_to_alarm=datapoints,
            evaluation_periods=periods,
            treat_missing_data=aws_cloudwatch.TreatMissingData.NOT_BREACHING,
        )

    def _description(self, threshold: float) -> str:
        """Return the description for operators; CloudWatch takes 1,024 characters."""
        severity = "page" if self.group == PAGE else "ticket"
        problem = self.problem.format(threshold=threshold)
        runbook = f"docs/operations.md#{self.name.lower()}"
        return f"[{severity}] {problem} First: {self.first} Runbook: {runbook}"


def queue_age_threshold_seconds(resources: Resources) -> int:
    """Return the age of a message above which the queue is behind.

    SQS stops counting the age of a message at its third receive, two visibility timeouts after the
    first. A message whose second attempt succeeds is younger than a visibility timeout, a window
    and an attempt. The threshold is halfway between these.
    """
    settings = resources.settings
    visibility = visibility_timeout_seconds(settings, resources.queue)
    attempt = settings.batch_window_seconds + settings.function_timeout_seconds
    return (3 * visibility + attempt) // 2


def last_write_seconds(timeout_seconds: int) -> float:
    """Return the seconds after which an invocation starts no write: it leaves work undone."""
    return Budget(lambda: timeout_seconds, TimeOuts.within(timeout_seconds), later_steps=2).left()


def create_alarms(
    scope: Construct,
    resources: Resources,
    functions: _Functions,
    topic: aws_sns.ITopic | None,
) -> dict[str, aws_cloudwatch.AlarmBase]:
    """Create the alarms by construct id, composite alarms first, and notify a topic of them.

    With `monitoring="full"` the composite alarms notify for states: a cause that sets off several
    alarms sends one message. Alarms on single events notify by themselves. None notifies of its
    end: CloudWatch would do so for each new alarm.
    """
    settings, rows = resources.settings, _ROWS
    watched = _Watched(resources, functions["Consumer"], functions["Sweeper"])
    if settings.monitoring == "minimal":
        rows = [row for row in rows if row.name in _MINIMAL]
    alarms: dict[str, aws_cloudwatch.AlarmBase] = {
        row.name: row.create(scope, watched) for row in rows
    }
    composites: Mapping[str, aws_cloudwatch.AlarmBase] = {}
    notifying = alarms
    if settings.monitoring == "full":
        composites = _create_composites(scope, [row for row in rows if not row.alone], alarms)
        notifying = {**composites, **{row.name: alarms[row.name] for row in rows if row.alone}}
    if topic is not None:
        notify = aws_cloudwatch_actions.SnsAction(topic)
        for alarm in notifying.values():
            alarm.add_alarm_action(notify)
    return {**composites, **alarms}


def _create_composites(
    scope: Construct, rows: Sequence[_Row], alarms: Mapping[str, aws_cloudwatch.AlarmBase]
) -> Mapping[str, aws_cloudwatch.AlarmBase]:
    any_of = aws_cloudwatch.AlarmRule.any_of
    members = {
        group: any_of(*(alarms[row.name] for row in rows if row.group == group))
        for group in (PAGE, TICKET)
    }
    page = aws_cloudwatch.CompositeAlarm(
        scope,
        PAGE,
        alarm_rule=members[PAGE],
        alarm_description="[page] Work is stuck. First: see which alarms are on. "
        f"Runbook: docs/operations.md#{PAGE.lower()}",
    )
    ticket = aws_cloudwatch.CompositeAlarm(
        scope,
        TICKET,
        alarm_rule=members[TICKET],
        # An outage needs no ticket of its own: tickets wait for a page, and then for their end.
        actions_suppressor=page,
        actions_suppressor_wait_period=Duration.minutes(_WAIT_MINUTES),
        actions_suppressor_extension_period=Duration.minutes(_DRAIN_MINUTES),
        alarm_description="[ticket] Somebody has to look within a day. First: see which alarms "
        f"are on. Runbook: docs/operations.md#{TICKET.lower()}",
    )
    composites = {PAGE: page, TICKET: ticket}
    for composite in composites.values():
        resource: Any = composite.node.default_child
        # CloudFormation's own name: the CDK's is the same for equal paths in two apps.
        resource.alarm_name = None
    return composites


def _expression(
    expression: str, **metrics: aws_cloudwatch.IMetric
) -> aws_cloudwatch.MathExpression:
    return aws_cloudwatch.MathExpression(expression=expression, using_metrics=metrics)


def _sum(metrics: Mapping[str, aws_cloudwatch.IMetric]) -> aws_cloudwatch.MathExpression:
    """Add metrics that have values only while they are not zero."""
    return _expression(" + ".join(f"FILL({name}, 0)" for name in metrics), **metrics)


def _received_and_deleted(watched: _Watched) -> tuple[int, int]:
    """A batch that runs for long is received in one period and deleted in a later one."""
    settings = watched.resources.settings
    attempt_seconds = settings.function_timeout_seconds + settings.batch_window_seconds
    datapoints = 2 + -(-attempt_seconds // 300)
    return datapoints, datapoints + 2


def _least_left_seconds(settings: Settings) -> int:
    """Return the least life of a message in the dead-letter queue.

    Its age counts from the arrival there, but it expires by the time of its first send.
    """
    return int((DEAD_LETTER_DAYS - settings.queue_retention_days) * _DAY)


_ROWS: Final[Sequence[_Row]] = (
    _Row(
        name="ConsumerFailing",
        group=PAGE,
        metric=lambda w: _expression(
            "IF(received > 0, 100 * (1 - deleted / received))",
            received=w.resources.queue.metric_number_of_messages_received(),
            deleted=w.resources.queue.metric_number_of_messages_deleted(),
        ),
        threshold=50,
        period_minutes=5,
        out_of=_received_and_deleted,
        problem="The consumer received messages and finished less than half of them.",
        first="read the consumer's log for `BatchError` and `chains not written`.",
    ),
    _Row(
        name="QueueBehind",
        group=PAGE,
        # The age of one message that fails is no backlog: others do not wait for it.
        metric=lambda w: _expression(
            "IF(waiting > received, age)",
            waiting=w.resources.queue.metric_approximate_number_of_messages_visible(),
            received=w.resources.queue.metric_number_of_messages_received(),
            age=w.resources.queue.metric_approximate_age_of_oldest_message(),
        ),
        threshold=lambda w: queue_age_threshold_seconds(w.resources),
        out_of=(3, 5),
        problem="Messages wait for longer than an attempt and its repetition take: the "
        "consumer does not run or is too slow.",
        first="see whether the consumer is invoked, throttled, or at its maximum concurrency.",
    ),
    _Row(
        name="SweeperSilent",
        group=PAGE,
        # Lambda polls the queue, so the queue always has data: where the sweeper has none, it
        # counts as 0. A new stack has data of neither, which is not breaching.
        metric=lambda w: _expression(
            "IF(polled >= 0, FILL(sweeps, 0) - FILL(errors, 0))",
            polled=w.resources.queue.metric_approximate_number_of_messages_visible(),
            sweeps=w.sweeper.metric_invocations(),
            errors=w.sweeper.metric_errors(),
        ),
        threshold=1,
        comparison=_COMPARISON.LESS_THAN_THRESHOLD,
        out_of=(10, 10),
        problem="No sweep succeeded for ten minutes: chains do not time out, and pending "
        "events wait.",
        first="see whether the sweeper runs; if it does, read its log.",
    ),
    _Row(
        name="EventsPending",
        group=PAGE,
        metric=lambda w: w.resources.metric(Metric.EVENTS_PENDING_SECONDS, statistic="Maximum"),
        threshold=600,
        out_of=(3, 5),
        problem="Events of chains that ended over ten minutes ago are not published.",
        first="read `events not published` in the sweeper's log for the bus's response.",
    ),
    _Row(
        name="DeliveriesRefused",
        alone=True,
        # A chain's first and last refusal.
        metric=lambda w: w.resources.metric(Metric.DELIVERIES_REFUSED),
        out_of=(1, _EVENT_MINUTES),
        problem="A service refused an event or a callback of a chain. A callback is given up a "
        "day later.",
        first="read `refused` in the functions' logs for the reason.",
    ),
    _Row(
        name="SweepProblems",
        metric=lambda w: w.resources.metric(Metric.SWEEP_PROBLEMS, statistic="Maximum"),
        out_of=(10, 12),
        problem="The sweeper could not end some chains for ten minutes.",
        first="read `chains not ended` and `chains not read` in the sweeper's log.",
    ),
    _Row(
        name="SweeperNearTimeout",
        metric=lambda w: w.sweeper.metric_duration(statistic="Maximum"),
        threshold=lambda w: (
            1000 * last_write_seconds(w.resources.settings.function_timeout_seconds)
        ),
        comparison=_COMPARISON.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
        out_of=(10, 12),
        problem="Sweeps run out of time: chains end later than their deadlines.",
        first="raise `function_timeout_seconds`, and see whether the table is throttled.",
    ),
    _Row(
        name="DeadLettersNew",
        alone=True,
        # SQS counts no message as sent that it moves there itself, so the number has to grow.
        # A reader hides messages for a time. Before the first message there is no data.
        metric=lambda w: _expression(
            "DIFF(FILL(FILL(visible + hidden, REPEAT), 0))",
            visible=w.resources.dead_letters.metric_approximate_number_of_messages_visible(),
            hidden=w.resources.dead_letters.metric_approximate_number_of_messages_not_visible(),
        ),
        out_of=(1, _EVENT_MINUTES),
        problem="Messages came to the dead-letter queue within the last hour.",
        first="run `xorack redrive --look` for the reasons.",
    ),
    _Row(
        name="DeadLettersOld",
        metric=lambda w: w.resources.dead_letters.metric_approximate_age_of_oldest_message(),
        threshold=lambda w: _least_left_seconds(w.resources.settings) // 2,
        period_minutes=60,
        out_of=(1, 1),
        problem="Dead letters wait to be handled, and SQS deletes them when their retention ends.",
        first="run `xorack redrive --look`, then redrive or delete them.",
    ),
    _Row(
        name="ChainsFailed",
        alone=True,
        metric=lambda w: w.resources.metric(Metric.CHAINS_FAILED),
        threshold=lambda w: w.resources.settings.failed_chains_threshold,
        period_minutes=5,
        out_of=(1, _EVENT_MINUTES // 5),
        problem="More than {threshold} chains failed within five minutes.",
        first="run `xorack list --status failed` for the reasons.",
    ),
    _Row(
        name="ConsumerErrors",
        metric=lambda w: w.consumer.metric_errors(),
        period_minutes=5,
        out_of=(3, 6),
        problem="Invocations of the consumer keep failing as a whole.",
        first="read the consumer's log for the first error.",
    ),
    _Row(
        name="ConsumerNearTimeout",
        metric=lambda w: w.consumer.metric_duration(statistic="Maximum"),
        threshold=lambda w: (
            1000 * last_write_seconds(w.resources.settings.function_timeout_seconds)
        ),
        comparison=_COMPARISON.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
        period_minutes=5,
        out_of=(3, 6),
        problem="The consumer runs out of time, and leaves messages for another attempt.",
        first="lower `batch_size` or raise `function_timeout_seconds`.",
    ),
    _Row(
        name="TableThrottled",
        metric=lambda w: _sum(w.resources.table_metrics("{}ThrottleEvents")),
        out_of=(10, 15),
        problem="DynamoDB keeps throttling the table or its index.",
        first="see on the dashboard which of them, and whether one chain is hot.",
    ),
    _Row(
        name="ConcurrencyThrottled",
        metric=lambda w: _sum(
            {"consumer": w.consumer.metric_throttles(), "sweeper": w.sweeper.metric_throttles()}
        ),
        out_of=(10, 15),
        problem="Lambda keeps throttling the functions: the concurrency is used up.",
        first="see which functions of the account use it, and raise the quota.",
    ),
)
