"""The three functions: consumer, sweeper, widget."""

from __future__ import annotations

from typing import Any, Final

from aws_cdk import (
    Duration,
    aws_dynamodb,
    aws_events,
    aws_events_targets,
    aws_lambda,
)
from constructs import Construct

from xorack.cdk.events import name_for
from xorack.cdk.function import Resources, create_function
from xorack.cdk.permissions import READ_WITH_KEY, SEND_WITH_KEY, WRITE_WITH_KEY, allow, allow_key
from xorack.cdk.table import index_arn, is_imported

_READ: Final = ("dynamodb:BatchGetItem", "dynamodb:GetItem")
_RECEIVE: Final = ("sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage")
_WIDGET_TIMEOUT_SECONDS: Final = 15
_ALIAS: Final = "live"
"""The alias of each function's version that runs."""


def create_consumer(scope: Construct, resources: Resources) -> aws_lambda.Alias:
    """Create the function that applies requests to chains, and the mapping from the queue to it.

    The mapping reports partial failures: SQS delivers only the failed messages of a batch again.
    """
    settings, table = resources.settings, resources.table
    queue, dead_letters = resources.queue, resources.dead_letters
    function = create_function(
        scope,
        resources,
        name="consumer",
        description="Applies the queue's requests to chains",
        timeout_seconds=settings.function_timeout_seconds,
        statements=[
            allow(table.table_arn, *_READ, "dynamodb:UpdateItem", *_check(table)),
            allow(queue.queue_arn, *_RECEIVE),  # Lambda polls with the function's role
            allow(dead_letters.queue_arn, "sqs:SendMessage"),
            allow(resources.bus.event_bus_arn, "events:PutEvents"),
            *allow_key(table.encryption_key, *WRITE_WITH_KEY),
            *allow_key(queue.encryption_master_key, *READ_WITH_KEY),
            *allow_key(dead_letters.encryption_master_key, *SEND_WITH_KEY),
        ],
    )
    _add_environment("consumer", function, resources)
    alias = function.add_alias(_ALIAS)
    pollers = aws_lambda.ProvisionedPollerConfig(
        minimum_pollers=settings.min_pollers, maximum_pollers=settings.max_pollers
    )
    # SqsEventSource would grant more than the poller needs.
    aws_lambda.EventSourceMapping(
        scope,
        "Messages",
        target=alias,
        event_source_arn=queue.queue_arn,
        batch_size=settings.batch_size,
        max_batching_window=Duration.seconds(settings.batch_window_seconds),
        max_concurrency=None if settings.has_pollers else settings.consumer_concurrency,
        provisioned_poller_config=pollers if settings.has_pollers else None,
        report_batch_item_failures=True,
    )
    return alias


def create_sweeper(scope: Construct, resources: Resources) -> aws_lambda.Alias:
    """Create the function that times chains out, and the rule that runs it each minute.

    Two concurrent sweeps do no harm: each write is conditional.
    """
    table = resources.table
    function = create_function(
        scope,
        resources,
        name="sweeper",
        description="Ends chains whose deadline has passed, and publishes pending events",
        timeout_seconds=resources.settings.sweeper_timeout_seconds,
        statements=[
            allow(index_arn(table), "dynamodb:Query"),
            allow(table.table_arn, *_READ, "dynamodb:UpdateItem", *_check(table)),
            allow(resources.bus.event_bus_arn, "events:PutEvents"),
            *allow_key(table.encryption_key, *WRITE_WITH_KEY),
        ],
    )
    _add_environment("sweeper", function, resources)
    if (reserved := resources.settings.sweeper_reserved_concurrency) is not None:
        resource: Any = function.node.default_child
        resource.reserved_concurrent_executions = reserved
    # The next sweep replaces the retry of one that failed, or that Lambda did not take.
    retries: Any = {"retry_attempts": 0, "max_event_age": Duration.seconds(60)}
    alias = function.add_alias(_ALIAS, **retries)
    aws_events.Rule(
        scope,
        "EachMinute",
        schedule=aws_events.Schedule.rate(Duration.minutes(1)),
        targets=[aws_events_targets.LambdaFunction(alias, **retries)],
    )
    return alias


def create_widget(scope: Construct, resources: Resources) -> aws_lambda.Alias:
    """Create the function behind the dashboard's custom widget; it only reads.

    CloudWatch invokes its alias with the rights of the dashboard's user, who needs
    `lambda:InvokeFunction` on that.
    """
    table, dead_letters = resources.table, resources.dead_letters
    function = create_function(
        scope,
        resources,
        name="widget",
        description="Shows unfinished chains and dead-lettered messages on the dashboard",
        timeout_seconds=_WIDGET_TIMEOUT_SECONDS,
        statements=[
            allow(index_arn(table), "dynamodb:Query"),
            allow(table.table_arn, *_READ),
            allow(dead_letters.queue_arn, "sqs:GetQueueAttributes", "sqs:ReceiveMessage"),
            *allow_key(table.encryption_key, *READ_WITH_KEY),
            *allow_key(dead_letters.encryption_master_key, *READ_WITH_KEY),
        ],
    )
    function.add_environment("DEAD_LETTER_QUEUE_URL", dead_letters.queue_url)
    return function.add_alias(_ALIAS)


def _check(table: aws_dynamodb.ITable) -> tuple[str, ...]:
    """Return the actions that check a table, if the functions must."""
    return ("dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive") if is_imported(table) else ()


def _add_environment(name: str, function: aws_lambda.Function, resources: Resources) -> None:
    """Add what a function needs that ends chains to its environment."""
    function.add_environment("EVENT_BUS_NAME", name_for(resources.bus, function))
    function.add_environment("TABLE_ARN", resources.table.table_arn)
    function.add_environment("DEAD_LETTER_QUEUE_URL", resources.dead_letters.queue_url)
    if is_imported(resources.table):
        function.add_environment("CHECK_TABLE", "true")
    resources.resume.add_function(function, resources.policies[name])
