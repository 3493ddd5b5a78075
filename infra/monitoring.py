"""Alarms: what somebody has to look at."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import (
    Duration,
    aws_cloudwatch,
    aws_cloudwatch_actions,
    aws_lambda,
    aws_sns,
    aws_sqs,
)
from constructs import Construct

from infra.settings import Settings

_MISSING_IS_FINE = aws_cloudwatch.TreatMissingData.NOT_BREACHING
_MISSING_IS_BAD = aws_cloudwatch.TreatMissingData.BREACHING


class Monitoring(Construct):
    """Alarms on dead letters, on a queue that falls behind, and on the functions.

    A metric that CloudWatch has no value of means that nothing happened, and is no alarm; only the
    sweeper is expected to happen.

    Attributes:
        alarms: The alarms, by construct id.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        queue: aws_sqs.IQueue,
        dead_letters: aws_sqs.IQueue,
        consumer: aws_lambda.IFunction,
        sweeper: aws_lambda.IFunction,
    ) -> None:
        super().__init__(scope, construct_id)
        self.alarms: dict[str, aws_cloudwatch.Alarm] = {}
        self._topic = (
            aws_sns.Topic.from_topic_arn(self, "Topic", settings.alarm_topic_arn)
            if settings.alarm_topic_arn
            else None
        )
        minute, five, ten = (Duration.minutes(n) for n in (1, 5, 10))
        # Visible ones: what SQS itself moves to a dead-letter queue does not count as sent to it.
        self._alarm(
            "DeadLettersVisible",
            dead_letters.metric_approximate_number_of_messages_visible(
                period=minute, statistic="Maximum"
            ),
            "Requests were refused or could not be applied: see the dead letters' `error`.",
        )
        # As long as a message may take with its retries is no delay.
        self._alarm(
            "QueueBehind",
            queue.metric_approximate_age_of_oldest_message(period=five, statistic="Maximum"),
            "Stamps wait for longer than two tries take: the consumer fails or does not keep up.",
            above=2 * settings.visibility_timeout_seconds,
        )
        functions: Mapping[str, aws_lambda.IFunction] = {"Consumer": consumer, "Sweeper": sweeper}
        for name, function in functions.items():
            self._alarm(
                f"{name}Errors",
                function.metric_errors(period=five, statistic="Sum"),
                f"The {name.lower()} crashed or ran out of time: see its log.",
            )
            self._alarm(
                f"{name}Throttled",
                function.metric_throttles(period=five, statistic="Sum"),
                f"The account's concurrency is used up: the {name.lower()} has to wait.",
            )
        self._alarm(
            "SweeperSilent",
            sweeper.metric_invocations(period=ten, statistic="Sum"),
            "No sweep for ten minutes: deadlines pass unnoticed.",
            above=1,
            comparison=aws_cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            missing=_MISSING_IS_BAD,
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
            alarm.add_alarm_action(aws_cloudwatch_actions.SnsAction(self._topic))
        self.alarms[construct_id] = alarm
