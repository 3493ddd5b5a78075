"""The alarms. docs/operations.md says what to do about each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from aws_cdk import Duration, aws_cloudwatch, aws_cloudwatch_actions, aws_lambda, aws_sns
from constructs import Construct

from xorack.aws.schema import Metric
from xorack.cdk.function import Resources

_SILENT = "SweeperSilent"
_Row = tuple[str, aws_cloudwatch.IMetric, float, str]


def create_alarms(
    scope: Construct,
    resources: Resources,
    functions: Mapping[str, aws_lambda.IFunction],
    topic: aws_sns.ITopic | None,
) -> dict[str, aws_cloudwatch.Alarm]:
    """Create the alarms by construct id, and notify a topic of them.

    An alarm goes off above its threshold, and missing data means that nothing happened. Only the
    sweeper's silence is an alarm: it goes off below its threshold, and for missing data.
    """
    compare, missing = aws_cloudwatch.ComparisonOperator, aws_cloudwatch.TreatMissingData
    above, below = compare.GREATER_THAN_THRESHOLD, compare.LESS_THAN_THRESHOLD
    alarms = {}
    for name, metric, threshold, description in _rows(resources, functions):
        alarms[name] = alarm = aws_cloudwatch.Alarm(
            scope,
            name,
            metric=metric,
            alarm_description=description,
            threshold=threshold,
            comparison_operator=below if name == _SILENT else above,
            evaluation_periods=1,
            treat_missing_data=missing.BREACHING if name == _SILENT else missing.NOT_BREACHING,
        )
        if topic is not None:
            notify = aws_cloudwatch_actions.SnsAction(topic)
            alarm.add_alarm_action(notify)
            alarm.add_ok_action(notify)
    return alarms


def _rows(resources: Resources, functions: Mapping[str, aws_lambda.IFunction]) -> list[_Row]:
    """Return name, metric, threshold and description of each alarm."""
    # SQS does not count the messages that it moves there itself as sent.
    dead_letters = resources.dead_letters.metric_approximate_number_of_messages_visible(
        period=Duration.minutes(1)
    )
    oldest = resources.queue.metric_approximate_age_of_oldest_message()
    two_attempts = 2 * resources.settings.visibility_timeout_seconds
    sweeps = functions["Sweeper"].metric_invocations(period=Duration.minutes(10))
    # The minimum of five sweeps is above zero only if all of them had the problem.
    minimum = partial(resources.metric, statistic="Minimum")
    pending = minimum(Metric.EVENTS_PENDING_AFTER_SWEEP)
    failures = resources.settings.failed_chains_threshold
    of_functions: list[_Row] = []
    for name, function in functions.items():
        crashed = f"The {name.lower()} failed: see its log."
        waits = f"The account's concurrency is used up: the {name.lower()} has to wait."
        of_functions.append((f"{name}Errors", function.metric_errors(), 0, crashed))
        of_functions.append((f"{name}Throttled", function.metric_throttles(), 0, waits))
    return [
        ("DeadLettersVisible", dead_letters, 0,
         "Requests were rejected or could not be applied: see the attribute `error` of the "
         "dead-lettered messages."),
        ("QueueBehind", oldest, two_attempts,
         "Requests wait longer than two attempts take: the consumer fails or is too slow."),
        *of_functions,
        (_SILENT, sweeps, 1, "No sweep for ten minutes: chains do not time out."),
        ("EventsPending", pending, 0,
         "For five minutes the sweeper could not publish events of finished chains: see its log "
         "for the responses of the bus."),
        ("SweepProblems", minimum(Metric.SWEEP_PROBLEMS), 0,
         "For five minutes the sweeper could not end some chains: see its log."),
        ("SweeperBehind", minimum(Metric.SWEEPS_INCOMPLETE), 0,
         "For five minutes no sweep reached the end of the chains that were due."),
        ("ChainsFailed", resources.metric(Metric.CHAINS_FAILED), failures,
         f"More than {failures} chains failed within five minutes: see their events, or "
         "`xorack list --status failed`."),
    ]  # fmt: skip
