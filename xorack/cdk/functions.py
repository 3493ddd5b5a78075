"""The two functions, consumer and sweeper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import aws_cdk as cdk
from constructs import Construct

from xorack.aws.schema import ALIAS, METRIC_NAMESPACE
from xorack.cdk import code
from xorack.cdk.events import name_for
from xorack.cdk.grants import AckerParts
from xorack.cdk.network import join_network
from xorack.cdk.permissions import (
    READ_WITH_KEY,
    SEND_WITH_KEY,
    WRITE_WITH_KEY,
    acknowledge,
    allow,
    allow_events,
    allow_key,
)
from xorack.cdk.queue import pending_timeout_seconds
from xorack.cdk.roles import ClosedRole
from xorack.cdk.table import index_arn, is_imported, removal_policy
from xorack.cdk.validation import as_text

_RUNTIME: Final = getattr(cdk.aws_lambda.Runtime, "PYTHON_{}_{}".format(*code.LAMBDA_PYTHON))
_READ: Final = ("dynamodb:BatchGetItem", "dynamodb:GetItem")
_RECEIVE: Final = ("sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage")


def _environment(scope: Construct, acker: AckerParts) -> dict[str, str]:
    """Return the variables that both functions read."""
    settings = acker.settings
    return {
        "TABLE_NAME": acker.table.table_name,
        "TABLE_ARN": acker.table.table_arn,
        "EVENT_BUS_NAME": name_for(acker.events.bus, scope),
        "PARTITION_KEY": settings.partition_key,
        "DEAD_LETTER_QUEUE_URL": acker.dead_letters.queue_url,
        "DEFAULT_TIMEOUT_SECONDS": as_text(settings.default_timeout_seconds),
        **({"MASK": settings.mask} if settings.mask else {}),
        "PENDING_TIMEOUT_SECONDS": str(pending_timeout_seconds(acker.queue)),
        "RESUME": "",
        "RETENTION_SECONDS": as_text(settings.retention_seconds),
        "POWERTOOLS_SERVICE_NAME": acker.name,
        "POWERTOOLS_METRICS_NAMESPACE": METRIC_NAMESPACE,
        **({"CHECK_TABLE": "true"} if is_imported(acker.table) else {}),
        **({"POWERTOOLS_METRICS_DISABLED": "true"} if settings.monitoring == "minimal" else {}),
    }


def _create_logs(scope: Construct, acker: AckerParts) -> cdk.aws_logs.LogGroup:
    """Create the log group of a function."""
    policy, key = removal_policy(acker.settings), acker.encryption_key
    logs = cdk.aws_logs.LogGroup(scope, "Logs", encryption_key=key, removal_policy=policy)
    resource: Any = logs.node.default_child
    resource.retention_in_days = acker.settings.log_retention_days
    return logs


def _role_with(
    access: Sequence[cdk.aws_iam.PolicyStatement], scope: Construct, acker: AckerParts, handler: str
) -> cdk.aws_iam.IRole:
    """Return the user's role, or a new one, with these permissions."""
    if acker.own_role is None:
        return ClosedRole(scope, handler, access)
    for statement in access:
        acker.own_role.add_to_principal_policy(statement)
    return acker.own_role


def _acknowledge_findings(scope: Construct, acker: AckerParts) -> None:
    """Acknowledge the findings of cdk-nag about a function."""
    acknowledge(
        scope,
        "AwsSolutions-L1",
        "Python 3.13 is supported until 2029; a newer runtime needs a run of the tests",
    )
    if acker.settings.tracing or acker.network:
        reason = "The actions of X-Ray and those that join a network accept no resource"
        owner: Any = acker.own_role or scope
        acknowledge(owner, "AwsSolutions-IAM5[Resource::*]", reason)


def _create_function(
    parent: Construct,
    acker: AckerParts,
    name: str,
    description: str,
    statements: Sequence[cdk.aws_iam.PolicyStatement],
) -> cdk.aws_lambda.Function:
    """Create a function for the module `name` of `lambda_src`, with its own role and log group."""
    scope, handler = Construct(parent, "Python"), f"lambda_src.{name}.handler"
    settings, network, key = acker.settings, acker.network, acker.encryption_key
    logs = _create_logs(scope, acker)
    log = allow(logs.log_group_arn, "logs:CreateLogStream", "logs:PutLogEvents")
    joining = join_network() if network else []
    access = [log, *statements, *joining]
    role = _role_with(access, scope, acker, handler)
    _acknowledge_findings(scope, acker)
    function = cdk.aws_lambda.Function(
        scope,
        "Function",
        description=description,
        runtime=_RUNTIME,
        architecture=cdk.aws_lambda.Architecture.custom(settings.architecture),
        code=cdk.aws_lambda.Code.from_asset(str(code.assemble_code())),
        handler=handler,
        memory_size=settings.memory_mb,
        timeout=cdk.Duration.seconds(settings.function_timeout_seconds),
        role=role,
        log_group=logs,
        # With this format, Lambda writes its own lines and the lines of Python's `logging` as JSON.
        logging_format=cdk.aws_lambda.LoggingFormat.JSON,
        application_log_level_v2=cdk.aws_lambda.ApplicationLogLevel.INFO,
        system_log_level_v2=cdk.aws_lambda.SystemLogLevel.INFO,
        tracing=getattr(cdk.aws_lambda.Tracing, "ACTIVE" if settings.tracing else "DISABLED"),
        environment_encryption=key,
        environment=_environment(scope, acker),
        **(network.options(scope) if network else {}),
    )
    if isinstance(role, ClosedRole):
        role.is_closed = True
    return function


def _write_access(acker: AckerParts) -> list[cdk.aws_iam.PolicyStatement]:
    """Return the permissions to change chains and to publish their events."""
    write = allow(acker.table.table_arn, *_READ, "dynamodb:UpdateItem")
    if is_imported(acker.table):
        write.add_actions("dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive")
    key = allow_key(acker.table_key, *WRITE_WITH_KEY)
    return [write, *allow_events(acker.events.bus), *key]


def create_consumer(scope: Construct, acker: AckerParts) -> cdk.aws_lambda.Function:
    """Create the function that applies requests, and the mapping from the queue to it."""
    settings, queue, dead_letters = acker.settings, acker.queue, acker.dead_letters
    function = _create_function(
        scope,
        acker,
        "consumer",
        "Applies the queue's requests to chains",
        [
            *_write_access(acker),
            allow(queue.queue_arn, *_RECEIVE),  # Lambda polls the queue with the function's role
            allow(dead_letters.queue_arn, "sqs:SendMessage"),
            *allow_key(queue.encryption_master_key, *READ_WITH_KEY),
            *allow_key(dead_letters.encryption_master_key, *SEND_WITH_KEY),
        ],
    )
    # SqsEventSource would grant more permissions than the poller needs.
    cdk.aws_lambda.EventSourceMapping(
        scope,
        "Messages",
        target=function.add_alias(ALIAS),
        event_source_arn=queue.queue_arn,
        batch_size=settings.batch_size,
        max_batching_window=cdk.Duration.seconds(settings.batch_window_seconds),
        max_concurrency=settings.max_concurrency,
        report_batch_item_failures=True,  # only a batch's failed messages are delivered again
    )
    return function


def create_sweeper(scope: Construct, acker: AckerParts) -> cdk.aws_lambda.Function:
    """Create the function that ends chains at their deadline, and the rule that runs it."""
    function = _create_function(
        scope,
        acker,
        "sweeper",
        "Ends chains whose deadline has passed, and publishes pending events",
        [*_write_access(acker), allow(index_arn(acker.table), "dynamodb:Query")],
    )
    # A failed sweep is not retried, because the next sweep replaces it.
    retries: Any = {"retry_attempts": 0, "max_event_age": cdk.Duration.seconds(60)}
    alias = function.add_alias(ALIAS, **retries)
    cdk.aws_events.Rule(
        scope,
        "EachMinute",
        schedule=cdk.aws_events.Schedule.rate(cdk.Duration.minutes(1)),
        targets=[cdk.aws_events_targets.LambdaFunction(alias, **retries)],
    )
    return function
