"""The dashboard: health, unfinished chains, latency, work, functions, table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from aws_cdk import Aws, Duration, Fn, aws_cloudwatch, aws_lambda
from constructs import Construct

from xorack.aws.schema import DUE_INDEX, Metric
from xorack.cdk.alarms import queue_age_threshold_seconds
from xorack.cdk.functions import Resources

_WIDTH: Final = 24
_MINUTE: Final = Duration.minutes(1)
_Color = aws_cloudwatch.Color
_Row = list[aws_cloudwatch.IWidget]
_Functions = Mapping[str, aws_lambda.IFunction]


def create_dashboard(
    scope: Construct,
    resources: Resources,
    functions: _Functions,
    alarms: Iterable[aws_cloudwatch.IAlarm],
    widget: aws_lambda.IFunction,
) -> aws_cloudwatch.Dashboard:
    """Create the dashboard; `widget` shows unfinished chains on it."""
    status = aws_cloudwatch.AlarmStatusWidget(
        title="Is it healthy?", alarms=list(alarms), width=10, height=5
    )
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
    health, latency, work = _rows_of_chains(resources)
    return aws_cloudwatch.Dashboard(
        scope,
        "Dashboard",
        # The dashboards of all regions share one list.
        dashboard_name=Fn.join("-", [resources.service, Aws.REGION]),
        default_interval=Duration.hours(3),
        widgets=[
            [status, *health],
            [unfinished],
            latency,
            work,
            _row_of_functions(resources, functions),
            _row_of_table(resources),
        ],
    )


def _rows_of_chains(resources: Resources) -> tuple[_Row, _Row, _Row]:
    metric, pending = resources.metric, Metric.EVENTS_PENDING_AFTER_SWEEP
    created = metric(Metric.CHAINS_CREATED, "created")
    acked = metric(Metric.CHAINS_ACKED, "acked", color=_Color.GREEN)
    failed = metric(Metric.CHAINS_FAILED, "failed", color=_Color.RED)
    dead_letters = resources.dead_letters.metric_approximate_number_of_messages_visible(
        period=_MINUTE, label="Dead letters"
    )
    oldest = resources.queue.metric_approximate_age_of_oldest_message(
        period=_MINUTE, label="Oldest message"
    )
    waiting = metric(pending, "Pending events", statistic="Maximum", period=_MINUTE)
    health: _Row = [
        _numbers("Chains in this time", created, acked, failed, set_period_to_time_range=True),
        _numbers("Waiting now", oldest, dead_letters, waiting),
    ]
    latency: _Row = [
        _graph(
            "How late are we? From create to acked",
            *(metric(Metric.ACK_LATENCY, name, statistic=name) for name in ("p50", "p90", "p99")),
            unit="ms",
        ),
        _graph(
            "Oldest message in the queue",
            oldest,
            unit="seconds",
            limit=(queue_age_threshold_seconds(resources), "alarm"),
        ),
        _graph(
            "Unfinished: dead letters, failed messages, pending events",
            dead_letters,
            metric(Metric.MESSAGES_FAILED, "Messages to retry"),
            metric(pending, "Pending events", statistic="Maximum"),
            metric(Metric.SWEEP_PROBLEMS, "Chains that cannot end", statistic="Maximum"),
            metric(Metric.SWEEPS_INCOMPLETE, "Incomplete sweeps"),
        ),
    ]
    work: _Row = [
        _graph(
            "Requests",
            metric(Metric.REQUESTS_APPLIED, "applied"),
            metric(Metric.REQUESTS_DUPLICATE, "duplicate"),
            metric(Metric.REQUESTS_LATE, "late"),
            metric(Metric.CREATES_REPEATED, "repeated create"),
            metric(Metric.REQUESTS_REJECTED, "rejected"),
        ),
        _graph(
            "Chains",
            created,
            acked,
            metric(Metric.CHAINS_TIMED_OUT, "failed: timed out", color=_Color.RED),
            metric(Metric.CHAINS_NEVER_CREATED, "failed: never created", color=_Color.ORANGE),
            metric(Metric.CHAINS_FAILED_ON_REQUEST, "failed: on request", color=_Color.BROWN),
        ),
        _graph(
            "Writes, and conflicts among them",
            metric(Metric.WRITES, "writes"),
            metric(Metric.CONFLICTS, "conflicts", color=_Color.RED),
        ),
    ]
    return health, latency, work


def _row_of_functions(resources: Resources, functions: _Functions) -> _Row:
    settings, consumer, sweeper = resources.settings, functions["Consumer"], functions["Sweeper"]
    return [
        _graph(
            "Functions: errors and throttles",
            *(f.metric_errors(label=f"{name} errors") for name, f in functions.items()),
            *(f.metric_throttles(label=f"{name} throttles") for name, f in functions.items()),
        ),
        _graph(
            "Functions: duration",
            consumer.metric_duration(statistic="p50", label="Consumer p50"),
            consumer.metric_duration(statistic="p99", label="Consumer p99"),
            sweeper.metric_duration(statistic="Maximum", label="Sweeper maximum"),
            unit="ms",
            limit=(1000 * settings.function_timeout_seconds, "the consumer's timeout"),
        ),
        _graph(
            "Functions: concurrent invocations",
            *(
                f.metric("ConcurrentExecutions", statistic="Maximum", period=_MINUTE, label=name)
                for name, f in functions.items()
            ),
            limit=(settings.consumer_concurrency, "the consumer's maximum"),
        ),
    ]


def _row_of_table(resources: Resources) -> _Row:
    table = {"TableName": resources.table.table_name}
    index = {**table, "GlobalSecondaryIndexName": DUE_INDEX}

    def lines(name: str) -> list[aws_cloudwatch.IMetric]:
        return [
            resources.table.metric(
                name.format(verb), dimensions_map=dimensions, statistic="Sum", label=label + suffix
            )
            for verb, label in (("Read", "reads"), ("Write", "writes"))
            for dimensions, suffix in ((table, ""), (index, " of the index"))
        ]

    capacity, throttles = lines("Consumed{}CapacityUnits"), lines("{}ThrottleEvents")
    return [
        _graph("Table: consumed capacity units", *capacity, width=_WIDTH // 2),
        _graph("Table: throttled", *throttles, width=_WIDTH // 2),
    ]


def _numbers(
    title: str, *metrics: aws_cloudwatch.IMetric, **options: Any
) -> aws_cloudwatch.SingleValueWidget:
    return aws_cloudwatch.SingleValueWidget(
        title=title, metrics=list(metrics), width=7, height=5, **options
    )


def _graph(
    title: str,
    *metrics: aws_cloudwatch.IMetric,
    unit: str = "count",
    limit: tuple[float, str] | None = None,
    width: int = _WIDTH // 3,
) -> aws_cloudwatch.GraphWidget:
    """Draw metrics from zero up, and a limit as a horizontal line."""
    line = limit and aws_cloudwatch.HorizontalAnnotation(
        value=limit[0], label=limit[1], color=_Color.ORANGE
    )
    return aws_cloudwatch.GraphWidget(
        title=title,
        left=list(metrics),
        left_y_axis=aws_cloudwatch.YAxisProps(min=0, label=unit, show_units=False),
        left_annotations=[line] if line else [],
        width=width,
        height=6,
    )
