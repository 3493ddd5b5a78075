"""What somebody has to look at: alarms, and a dashboard that says what is going on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from aws_cdk import (
    Aws,
    Duration,
    Fn,
    aws_cloudwatch,
    aws_cloudwatch_actions,
    aws_dynamodb,
    aws_lambda,
    aws_sns,
    aws_sqs,
)
from constructs import Construct

from xorack.cdk.settings import Settings
from xorack.cdk.table import INDEX_NAME

NAMESPACE: Final = "xorack"
"""Where the functions' own metrics are, with the dimension `service`."""

_MISSING_IS_FINE = aws_cloudwatch.TreatMissingData.NOT_BREACHING
_MISSING_IS_BAD = aws_cloudwatch.TreatMissingData.BREACHING
_MINUTE, _FIVE, _TEN = (Duration.minutes(n) for n in (1, 5, 10))
_WIDTH = 24
_COLOUR: Final = aws_cloudwatch.Color


class Monitoring(Construct):
    """Alarms on what needs a person, and the dashboard.

    A metric that CloudWatch has no value of means that nothing happened, and is no alarm; only the
    sweeper is expected to happen. docs/operations.md says what to do about each alarm.

    Attributes:
        alarms: The alarms, by construct id.
        dashboard: The dashboard; None where the settings want none.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        table: aws_dynamodb.ITable,
        queue: aws_sqs.IQueue,
        dead_letters: aws_sqs.IQueue,
        consumer: aws_lambda.IFunction,
        sweeper: aws_lambda.IFunction,
        widget: aws_lambda.IFunction | None = None,
        topic: aws_sns.ITopic | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        self.alarms: dict[str, aws_cloudwatch.Alarm] = {}
        self._settings = settings
        self._table = table
        self._queue = queue
        self._dead_letters = dead_letters
        self._functions: Mapping[str, aws_lambda.IFunction] = {
            "Consumer": consumer,
            "Sweeper": sweeper,
        }
        if topic is None and settings.alarm_topic_arn:
            topic = aws_sns.Topic.from_topic_arn(self, "Topic", settings.alarm_topic_arn)
        self._topic = topic
        self._watch()
        self.dashboard = None if widget is None else self._draw(widget)

    # -- alarms --------------------------------------------------------------------------------

    def _watch(self) -> None:
        settings = self._settings
        # Visible ones: what SQS itself moves to a dead-letter queue does not count as sent to it.
        self._alarm(
            "DeadLettersVisible",
            self._dead_letters_visible(),
            "Requests were refused or could not be applied: see the dead letters' `error`.",
        )
        # As long as a message may take with its retries is no delay.
        self._alarm(
            "QueueBehind",
            self._oldest_message(_FIVE),
            "Stamps wait for longer than two tries take: the consumer fails or does not keep up.",
            above=2 * settings.visibility_timeout_seconds,
        )
        for name, function in self._functions.items():
            self._alarm(
                f"{name}Errors",
                function.metric_errors(period=_FIVE, statistic="Sum"),
                f"The {name.lower()} crashed or ran out of time: see its log.",
            )
            self._alarm(
                f"{name}Throttled",
                function.metric_throttles(period=_FIVE, statistic="Sum"),
                f"The account's concurrency is used up: the {name.lower()} has to wait.",
            )
        self._alarm(
            "SweeperSilent",
            self._functions["Sweeper"].metric_invocations(period=_TEN, statistic="Sum"),
            "No sweep for ten minutes: deadlines pass unnoticed.",
            above=1,
            comparison=aws_cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            missing=_MISSING_IS_BAD,
        )
        # Each sweep of five minutes: one that fails is made good by the next.
        self._alarm(
            "EventsPending",
            self._own("EventsPendingAfterSweep", "Minimum"),
            "For five minutes the sweeper could not publish events of finished chains: see its "
            "log for what the bus answers.",
        )
        self._alarm(
            "SweepProblems",
            self._own("SweepProblems", "Minimum"),
            "For five minutes there were chains that the sweeper could not end: see its log.",
        )
        self._alarm(
            "SweeperBehind",
            self._own("SweepsIncomplete", "Minimum"),
            "For five minutes no sweep came to the end of what is due: chains end late.",
        )
        self._alarm(
            "ChainsFailed",
            self._own("ChainsFailed", "Sum"),
            f"More than {settings.failed_chains_threshold} chains failed within five minutes: see "
            "their events, or `xorack list --status failed`.",
            above=settings.failed_chains_threshold,
        )

    def _alarm(
        self,
        construct_id: str,
        metric: aws_cloudwatch.IMetric,
        description: str,
        *,
        above: float = 0,
        comparison: aws_cloudwatch.ComparisonOperator = (
            aws_cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD
        ),
        missing: aws_cloudwatch.TreatMissingData = _MISSING_IS_FINE,
    ) -> None:
        alarm = aws_cloudwatch.Alarm(
            self,
            construct_id,
            metric=metric,
            alarm_description=description,
            threshold=above,
            comparison_operator=comparison,
            evaluation_periods=1,
            treat_missing_data=missing,
        )
        if self._topic is not None:
            tell = aws_cloudwatch_actions.SnsAction(self._topic)
            alarm.add_alarm_action(tell)
            alarm.add_ok_action(tell)
        self.alarms[construct_id] = alarm

    # -- metrics -------------------------------------------------------------------------------

    def _own(
        self,
        name: str,
        statistic: str = "Sum",
        *,
        label: str | None = None,
        color: str | None = None,
        period: Duration = _FIVE,
    ) -> aws_cloudwatch.Metric:
        """A metric of the functions' own."""
        return aws_cloudwatch.Metric(
            namespace=NAMESPACE,
            metric_name=name,
            dimensions_map={"service": self._settings.service_name},
            statistic=statistic,
            period=period,
            label=label,
            color=color,
        )

    # Without a label for an alarm, which would say the metric in another way for its sake.

    def _dead_letters_visible(self, label: str | None = None) -> aws_cloudwatch.Metric:
        return self._dead_letters.metric_approximate_number_of_messages_visible(
            period=_MINUTE, statistic="Maximum", label=label
        )

    def _oldest_message(self, period: Duration, label: str | None = None) -> aws_cloudwatch.Metric:
        return self._queue.metric_approximate_age_of_oldest_message(
            period=period, statistic="Maximum", label=label
        )

    def _dynamodb(self, name: str, label: str, index: str | None = None) -> aws_cloudwatch.Metric:
        """A metric of the table, or of its index."""
        dimensions = {"TableName": self._table.table_name}
        if index is not None:
            dimensions["GlobalSecondaryIndexName"] = index
        return aws_cloudwatch.Metric(
            namespace="AWS/DynamoDB",
            metric_name=name,
            dimensions_map=dimensions,
            statistic="Sum",
            period=_FIVE,
            label=label,
        )

    # -- the dashboard -------------------------------------------------------------------------

    def _draw(self, widget: aws_lambda.IFunction) -> aws_cloudwatch.Dashboard:
        """From top to bottom: is it healthy, what is stuck, how late are we, and why."""
        dashboard = aws_cloudwatch.Dashboard(
            self,
            "Dashboard",
            # Dashboards of all regions share one list, and people look for them by name.
            dashboard_name=Fn.join("-", [self._settings.service_name, Aws.REGION]),
            default_interval=Duration.hours(3),
        )
        dashboard.add_widgets(
            aws_cloudwatch.AlarmStatusWidget(
                title="Is it healthy?", alarms=list(self.alarms.values()), width=10, height=5
            ),
            *self._figures(),
        )
        dashboard.add_widgets(
            aws_cloudwatch.CustomWidget(
                title="What is stuck? Unfinished chains, the nearest deadline first",
                function_arn=widget.function_arn,
                params={"limit": 20},
                width=_WIDTH,
                height=10,
                update_on_refresh=True,
                update_on_resize=False,
                update_on_time_range_change=False,
            )
        )
        for row in (self._lateness(), self._work(), self._function_graphs(), self._table_graphs()):
            dashboard.add_widgets(*row)
        return dashboard

    def _figures(self) -> list[aws_cloudwatch.IWidget]:
        """The figures beside the alarms: what came, what ended, what waits."""
        return [
            aws_cloudwatch.SingleValueWidget(
                title="Chains in this time",
                metrics=[
                    self._own("ChainsCreated", label="created"),
                    self._own("ChainsAcked", label="acked", color=_COLOUR.GREEN),
                    self._own("ChainsFailed", label="failed", color=_COLOUR.RED),
                ],
                set_period_to_time_range=True,
                width=7,
                height=5,
            ),
            aws_cloudwatch.SingleValueWidget(
                title="Waiting now",
                metrics=[
                    self._oldest_message(_MINUTE, "Oldest message"),
                    self._dead_letters_visible("Dead letters"),
                    self._own(
                        "EventsPendingAfterSweep", "Maximum", label="Events owed", period=_MINUTE
                    ),
                ],
                width=7,
                height=5,
            ),
        ]

    def _lateness(self) -> list[aws_cloudwatch.IWidget]:
        above = 2 * self._settings.visibility_timeout_seconds
        return [
            _graph(
                "How late are we? From create to acked",
                [self._own("AckLatency", f"p{n}", label=f"p{n}") for n in (50, 90, 99)],
                unit="ms",
            ),
            _graph(
                "Oldest message in the queue",
                [self._oldest_message(_MINUTE, "Oldest message")],
                unit="seconds",
                lines=[(above, "alarm")],
            ),
            _graph(
                "Not done: dead letters, failed messages, owed events",
                [
                    self._dead_letters_visible("Dead letters"),
                    self._own("MessagesFailed", label="Messages that come again"),
                    self._own("EventsPendingAfterSweep", "Maximum", label="Events owed"),
                    self._own("SweepProblems", "Maximum", label="Chains not ended by the sweeper"),
                    self._own("SweepsIncomplete", label="Sweeps out of time"),
                ],
            ),
        ]

    def _work(self) -> list[aws_cloudwatch.IWidget]:
        outcomes = ("Applied", "Duplicate", "Late", "Rejected")
        return [
            _graph(
                "Requests",
                [self._own(f"Requests{name}", label=name.lower()) for name in outcomes],
            ),
            _graph(
                "Chains",
                [
                    self._own("ChainsCreated", label="created"),
                    self._own("ChainsAcked", label="acked", color=_COLOUR.GREEN),
                    self._own("ChainsTimedOut", label="failed: timed out", color=_COLOUR.RED),
                    self._own(
                        "ChainsNeverCreated", label="failed: never created", color=_COLOUR.ORANGE
                    ),
                    self._own(
                        "ChainsFailedOnRequest", label="failed: as asked", color=_COLOUR.BROWN
                    ),
                ],
            ),
            _graph(
                "Writes, and conflicts among them",
                [
                    self._own("Writes", label="writes"),
                    self._own("Conflicts", label="conflicts", color=_COLOUR.RED),
                ],
            ),
        ]

    def _function_graphs(self) -> list[aws_cloudwatch.IWidget]:
        settings = self._settings
        both = list(self._functions.items())
        consumer = self._functions["Consumer"]
        seconds = settings.function_timeout_seconds
        return [
            _graph(
                "Functions: errors and throttles",
                [
                    *(f.metric_errors(period=_FIVE, label=f"{n} errors") for n, f in both),
                    *(f.metric_throttles(period=_FIVE, label=f"{n} throttles") for n, f in both),
                ],
            ),
            _graph(
                "Functions: duration",
                [
                    *(
                        consumer.metric_duration(
                            period=_FIVE, statistic=statistic, label=f"Consumer {statistic}"
                        )
                        for statistic in ("p50", "p99")
                    ),
                    self._functions["Sweeper"].metric_duration(
                        period=_FIVE, statistic="Maximum", label="Sweeper maximum"
                    ),
                ],
                unit="ms",
                lines=[(1000 * seconds, "the consumer's timeout")],
            ),
            _graph(
                "Functions: concurrent invocations",
                [
                    f.metric(
                        "ConcurrentExecutions", statistic="Maximum", period=_MINUTE, label=name
                    )
                    for name, f in both
                ],
                lines=[(settings.max_concurrency, "the consumer's maximum")],
            ),
        ]

    def _table_graphs(self) -> list[aws_cloudwatch.IWidget]:
        def graph(title: str, metrics: Sequence[tuple[str, str]]) -> aws_cloudwatch.IWidget:
            places = (("", None), (" of the index", INDEX_NAME))
            return _graph(
                title,
                [
                    self._dynamodb(name, f"{label}{place}", index)
                    for name, label in metrics
                    for place, index in places
                ],
                width=_WIDTH // 2,
            )

        return [
            graph(
                "Table: consumed capacity units",
                [
                    ("ConsumedReadCapacityUnits", "reads"),
                    ("ConsumedWriteCapacityUnits", "writes"),
                ],
            ),
            graph(
                "Table: throttled",
                [("ReadThrottleEvents", "reads"), ("WriteThrottleEvents", "writes")],
            ),
        ]


def _graph(
    title: str,
    metrics: Sequence[aws_cloudwatch.IMetric],
    *,
    unit: str = "count",
    lines: Sequence[tuple[float, str]] = (),
    width: int = _WIDTH // 3,
) -> aws_cloudwatch.GraphWidget:
    """Lines over time, from zero up, and where the limit is."""
    return aws_cloudwatch.GraphWidget(
        title=title,
        left=list(metrics),
        left_y_axis=aws_cloudwatch.YAxisProps(min=0, label=unit, show_units=False),
        left_annotations=[
            aws_cloudwatch.HorizontalAnnotation(value=value, label=label, color=_COLOUR.ORANGE)
            for value, label in lines
        ],
        width=width,
        height=6,
    )
