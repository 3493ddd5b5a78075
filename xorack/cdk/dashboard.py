"""The dashboard: it shows health, latency, work, the functions and the table."""

from __future__ import annotations

from typing import Any, Final

from aws_cdk import Aws, Duration, Fn, aws_cloudwatch
from constructs import Construct

from xorack.aws.schema import Metric
from xorack.cdk.alarms import queue_age_threshold_seconds, table_metrics
from xorack.cdk.grants import AckerParts

_WIDTH: Final = 24
_Color = aws_cloudwatch.Color
_LARGEST: Final[Any] = {"statistic": "Maximum", "period": Duration.minutes(1)}


def create_dashboard(scope: Construct, acker: AckerParts) -> aws_cloudwatch.Dashboard:
    widgets = [*_overview(acker), *_work(acker), *_resources(acker)]
    return aws_cloudwatch.Dashboard(
        scope,
        "Dashboard",
        # The name has the region, because the dashboards of all regions share one list.
        dashboard_name=Fn.join("-", [acker.name, Aws.REGION]),
        default_interval=Duration.hours(3),
        widgets=[widgets],  # CloudWatch wraps the row of alarms
    )


def _overview(acker: AckerParts) -> list[aws_cloudwatch.IWidget]:
    """Return the first widgets: health, numbers of chains, and waiting messages and events."""
    metric = acker.metric
    chains = [
        metric(Metric.CHAINS_CREATED),
        metric(Metric.CHAINS_ACKED, color=_Color.GREEN),
        metric(Metric.CHAINS_FAILED, color=_Color.RED),
    ]
    pending = metric(Metric.EVENTS_PENDING_AFTER_SWEEP, **_LARGEST)
    oldest, dead_letters = _oldest_message(acker), _dead_letters(acker)
    return [
        aws_cloudwatch.AlarmStatusWidget(
            title="Is it healthy?", alarms=list(acker.alarms.values()), width=10, height=5
        ),
        aws_cloudwatch.SingleValueWidget(
            title="Chains in this time",
            metrics=chains,
            width=7,
            height=5,
            set_period_to_time_range=True,
        ),
        aws_cloudwatch.SingleValueWidget(
            title="Waiting now", metrics=[oldest, dead_letters, pending], width=7, height=5
        ),
        _graph(
            "How late are we? From create to acked",
            *(metric(Metric.ACK_LATENCY, label=p, statistic=p) for p in ("p50", "p90", "p99")),
            unit="ms",
        ),
        _graph(
            "Oldest message in the queue",
            oldest,
            unit="seconds",
            limit=("alarm", queue_age_threshold_seconds(acker)),
        ),
    ]


def _work(acker: AckerParts) -> list[aws_cloudwatch.IWidget]:
    """Return graphs of requests, chains and writes."""
    metric = acker.metric
    return [
        _graph(
            "Unfinished: dead letters, failed messages, pending events",
            _dead_letters(acker),
            metric(Metric.EVENTS_PENDING_AFTER_SWEEP, **_LARGEST),
            metric(Metric.MESSAGES_FAILED),
            metric(Metric.SWEEP_PROBLEMS, statistic="Maximum"),
            metric(Metric.SWEEPS_INCOMPLETE),
        ),
        _graph(
            "Requests",
            metric(Metric.REQUESTS_APPLIED),
            metric(Metric.REQUESTS_DUPLICATE),
            metric(Metric.REQUESTS_LATE),
            metric(Metric.CREATES_REPEATED),
            metric(Metric.REQUESTS_REJECTED),
        ),
        _graph(
            "Chains",
            metric(Metric.CHAINS_CREATED),
            metric(Metric.CHAINS_ACKED, color=_Color.GREEN),
            metric(Metric.CHAINS_TIMED_OUT),
            metric(Metric.CHAINS_NEVER_CREATED),
            metric(Metric.CHAINS_FAILED_ON_REQUEST),
        ),
        _graph("Writes, and conflicts among them", metric(Metric.WRITES), metric(Metric.CONFLICTS)),
    ]


def _resources(acker: AckerParts) -> list[aws_cloudwatch.IWidget]:
    """Return graphs of the functions and the table."""
    return [
        _graph(
            "Functions: errors and throttles",
            *_of_functions(acker, "Errors", statistic="Sum"),
            *_of_functions(acker, "Throttles", statistic="Sum"),
        ),
        _graph(
            "Functions: duration",
            acker.consumer.metric_duration(statistic="p50", label="Consumer p50"),
            acker.consumer.metric_duration(statistic="p99", label="Consumer p99"),
            acker.sweeper.metric_duration(statistic="Maximum", label="Sweeper maximum"),
            unit="ms",
            limit=("the consumer's timeout", 1000 * acker.settings.function_timeout_seconds),
        ),
        _graph(
            "Functions: concurrent invocations",
            *_of_functions(acker, "ConcurrentExecutions", **_LARGEST),
            limit=("the consumer's maximum", acker.settings.max_concurrency),
        ),
        _graph(
            "Table: consumed capacity units", *_of_table(acker, "Consumed{}CapacityUnits"), width=12
        ),
        _graph("Table: throttled", *_of_table(acker, "{}ThrottleEvents"), width=12),
    ]


def _dead_letters(acker: AckerParts) -> aws_cloudwatch.Metric:
    return acker.dead_letters.metric_approximate_number_of_messages_visible(
        period=_LARGEST["period"], label="Dead letters"
    )


def _oldest_message(acker: AckerParts) -> aws_cloudwatch.Metric:
    return acker.queue.metric_approximate_age_of_oldest_message(
        period=_LARGEST["period"], label="Oldest message"
    )


def _of_functions(acker: AckerParts, name: str, **options: Any) -> list[aws_cloudwatch.Metric]:
    functions = {"Consumer": acker.consumer, "Sweeper": acker.sweeper}
    return [
        function.metric(name, label=f"{label} {name.lower()}", **options)
        for label, function in functions.items()
    ]


def _of_table(acker: AckerParts, name: str) -> list[aws_cloudwatch.IMetric]:
    labels = ("reads", "reads of the index", "writes", "writes of the index")
    metrics = table_metrics(acker.table, name).values()
    return [metric.with_(label=label) for metric, label in zip(metrics, labels, strict=True)]


def _graph(
    title: str,
    *metrics: aws_cloudwatch.IMetric,
    unit: str = "count",
    limit: tuple[str, float] | None = None,
    width: int = _WIDTH // 3,
) -> aws_cloudwatch.GraphWidget:
    """Draw metrics on an axis from zero, and a limit as a horizontal line."""
    line = limit and aws_cloudwatch.HorizontalAnnotation(
        label=limit[0], value=limit[1], color=_Color.ORANGE
    )
    return aws_cloudwatch.GraphWidget(
        title=title,
        left=list(metrics),
        left_y_axis=aws_cloudwatch.YAxisProps(min=0, label=unit, show_units=False),
        left_annotations=[line] if line else [],
        width=width,
        height=6,
    )
