"""The dashboard, as a table: health, unfinished chains, latency, work, functions, table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from aws_cdk import Aws, Duration, Fn, aws_cloudwatch, aws_lambda
from constructs import Construct

from xorack.aws.schema import Metric
from xorack.cdk.alarms import queue_age_threshold_seconds
from xorack.cdk.functions import Resources

_WIDTH: Final = 24
_MINUTE: Final = Duration.minutes(1)
_GAUGE: Final[Mapping[str, Any]] = {"statistic": "Maximum"}
_Color = aws_cloudwatch.Color
_Metrics = list[aws_cloudwatch.IMetric]


def create_dashboard(
    scope: Construct,
    resources: Resources,
    functions: Mapping[str, aws_lambda.IFunction],
    alarms: Iterable[aws_cloudwatch.IAlarm],
    widget: aws_lambda.IFunction,
) -> aws_cloudwatch.Dashboard:
    """Create the dashboard; `widget` shows unfinished chains on it."""
    metric, settings = resources.metric, resources.settings
    consumer, sweeper = functions["Consumer"], functions["Sweeper"]
    created = metric(Metric.CHAINS_CREATED, "created")
    acked = metric(Metric.CHAINS_ACKED, "acked", color=_Color.GREEN)
    failed = metric(Metric.CHAINS_FAILED, "failed", color=_Color.RED)
    dead_letters = resources.dead_letters.metric_approximate_number_of_messages_visible(
        period=_MINUTE, label="Dead letters"
    )
    oldest = resources.queue.metric_approximate_age_of_oldest_message(
        period=_MINUTE, label="Oldest message"
    )
    pending = metric(Metric.EVENTS_PENDING_AFTER_SWEEP, "Pending events", period=_MINUTE, **_GAUGE)
    behind = queue_age_threshold_seconds(resources), "alarm"
    timeout = 1000 * settings.function_timeout_seconds, "the consumer's timeout"
    most = settings.max_concurrency, "the consumer's maximum"
    # Title, unit, metrics, and a limit with its name.
    rows: list[list[tuple[str, str, _Metrics, tuple[float, str] | None]]] = [
        [
            (
                "How late are we? From create to acked",
                "ms",
                [metric(Metric.ACK_LATENCY, p, statistic=p) for p in ("p50", "p90", "p99")],
                None,
            ),
            ("Oldest message in the queue", "seconds", [oldest], behind),
            (
                "Unfinished: dead letters, failed messages, pending events",
                "count",
                [
                    dead_letters,
                    metric(Metric.MESSAGES_FAILED, "Messages to retry"),
                    pending,
                    metric(Metric.SWEEP_PROBLEMS, "Chains that cannot end", **_GAUGE),
                    metric(Metric.SWEEPS_INCOMPLETE, "Incomplete sweeps"),
                ],
                None,
            ),
        ],
        [
            (
                "Requests",
                "count",
                [
                    metric(Metric.REQUESTS_APPLIED, "applied"),
                    metric(Metric.REQUESTS_DUPLICATE, "duplicate"),
                    metric(Metric.REQUESTS_LATE, "late"),
                    metric(Metric.CREATES_REPEATED, "repeated create"),
                    metric(Metric.REQUESTS_REJECTED, "rejected"),
                ],
                None,
            ),
            (
                "Chains",
                "count",
                [
                    created,
                    acked,
                    metric(Metric.CHAINS_TIMED_OUT, "failed: timed out"),
                    metric(Metric.CHAINS_NEVER_CREATED, "failed: never created"),
                    metric(Metric.CHAINS_FAILED_ON_REQUEST, "failed: on request"),
                ],
                None,
            ),
            (
                "Writes, and conflicts among them",
                "count",
                [metric(Metric.WRITES, "writes"), metric(Metric.CONFLICTS, "conflicts")],
                None,
            ),
        ],
        [
            (
                "Functions: errors and throttles",
                "count",
                [
                    one.metric(name, statistic="Sum", label=f"{function} {name.lower()}")
                    for name in ("Errors", "Throttles")
                    for function, one in functions.items()
                ],
                None,
            ),
            (
                "Functions: duration",
                "ms",
                [
                    consumer.metric_duration(statistic="p50", label="Consumer p50"),
                    consumer.metric_duration(statistic="p99", label="Consumer p99"),
                    sweeper.metric_duration(label="Sweeper maximum", **_GAUGE),
                ],
                timeout,
            ),
            (
                "Functions: concurrent invocations",
                "count",
                [
                    one.metric("ConcurrentExecutions", period=_MINUTE, label=name, **_GAUGE)
                    for name, one in functions.items()
                ],
                most,
            ),
        ],
        [
            (
                "Table: consumed capacity units",
                "count",
                _of_table(resources, "Consumed{}CapacityUnits"),
                None,
            ),
            ("Table: throttled", "count", _of_table(resources, "{}ThrottleEvents"), None),
        ],
    ]
    health = [
        aws_cloudwatch.AlarmStatusWidget(
            title="Is it healthy?", alarms=list(alarms), width=10, height=5
        ),
        aws_cloudwatch.SingleValueWidget(
            title="Chains in this time",
            metrics=[created, acked, failed],
            width=7,
            height=5,
            set_period_to_time_range=True,
        ),
        aws_cloudwatch.SingleValueWidget(
            title="Waiting now", metrics=[oldest, dead_letters, pending], width=7, height=5
        ),
    ]
    unfinished = aws_cloudwatch.CustomWidget(
        title="What is stuck? Unfinished chains, the earliest deadline first",
        function_arn=widget.function_arn,
        params={"limit": 20},
        width=_WIDTH,
        height=10,
        update_on_refresh=True,
        update_on_resize=False,
        update_on_time_range_change=False,
    )
    graphs = ([_graph(_WIDTH // len(row), *of) for of in row] for row in rows)
    return aws_cloudwatch.Dashboard(
        scope,
        "Dashboard",
        # The dashboards of all regions share one list.
        dashboard_name=Fn.join("-", [resources.service, Aws.REGION]),
        default_interval=Duration.hours(3),
        widgets=[health, [unfinished], *graphs],
    )


def _of_table(resources: Resources, name: str) -> _Metrics:
    labels = ("reads", "reads of the index", "writes", "writes of the index")
    metrics = resources.table_metrics(name).values()
    return [one.with_(label=label) for one, label in zip(metrics, labels, strict=True)]


def _graph(
    width: int, title: str, unit: str, metrics: _Metrics, limit: tuple[float, str] | None
) -> aws_cloudwatch.GraphWidget:
    """Draw metrics from zero up, and a limit as a horizontal line."""
    line = limit and aws_cloudwatch.HorizontalAnnotation(
        value=limit[0], label=limit[1], color=_Color.ORANGE
    )
    return aws_cloudwatch.GraphWidget(
        title=title,
        left=metrics,
        left_y_axis=aws_cloudwatch.YAxisProps(min=0, label=unit, show_units=False),
        left_annotations=[line] if line else [],
        width=width,
        height=6,
    )
