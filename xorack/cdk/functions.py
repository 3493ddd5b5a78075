"""The functions: consumer, sweeper, widget, and the frame of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aws_cdk import (
    Duration,
    aws_cloudwatch,
    aws_dynamodb,
    aws_ec2,
    aws_events,
    aws_events_targets,
    aws_iam,
    aws_kms,
    aws_lambda,
    aws_logs,
    aws_sqs,
)
from constructs import Construct

from xorack.aws.schema import DUE_INDEX, METRIC_NAMESPACE
from xorack.cdk import code
from xorack.cdk.events import name_for
from xorack.cdk.permissions import (
    READ_WITH_KEY,
    SEND_WITH_KEY,
    WRITE_WITH_KEY,
    acknowledge,
    allow,
    allow_events,
    allow_key,
    forbid_code,
)
from xorack.cdk.queue import pending_timeout_seconds
from xorack.cdk.resume import ResumeAccess
from xorack.cdk.settings import Settings
from xorack.cdk.table import index_arn, is_imported, removal_policy
from xorack.cdk.validation import check_kind

_RUNTIME: Final = getattr(aws_lambda.Runtime, "PYTHON_{}_{}".format(*code.LAMBDA_PYTHON))
_ARCHITECTURES: Final = {
    "arm64": aws_lambda.Architecture.ARM_64,
    "x86_64": aws_lambda.Architecture.X86_64,
}
_READ: Final = ("dynamodb:BatchGetItem", "dynamodb:GetItem")
_RECEIVE: Final = ("sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage")
_WIDGET_TIMEOUT_SECONDS: Final = 15
_ALIAS: Final = "live"
"""The alias of each function's version that runs: code and environment change in one step."""
# Lambda joins the network with the function's role.
_NETWORK_ACTIONS: Final = (
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
    "ec2:UnassignPrivateIpAddresses",
)


@dataclass(frozen=True, kw_only=True)
class Network:
    """A VPC for the functions.

    It must lead to DynamoDB, SQS and EventBridge: by endpoints (`dynamodb` as a gateway, `sqs` and
    `events` as interfaces with private DNS) or by a NAT gateway. Lambda polls the queue and sends
    logs and traces outside of it.

    Attributes:
        vpc: The VPC.
        subnets: Its subnets for the functions; the private ones by default.
        security_groups: Security groups of the functions; by default each function has a new one
            that allows HTTPS to all addresses, and nothing else.
    """

    vpc: aws_ec2.IVpc
    subnets: aws_ec2.SubnetSelection | None = None
    security_groups: Sequence[aws_ec2.ISecurityGroup] = ()

    def __post_init__(self) -> None:
        check_kind("vpc", self.vpc)


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resources of one acker, for its functions and its monitoring.

    Attributes:
        service: The acker's name: the metrics' dimension, and part of the dashboard's name.
        resume: Whose waiting executions the functions may resume.
        encryption_key: Key of the functions' logs and environments; AWS's own if None.
        policies: The policies of the functions' roles, by the functions' names.
    """

    settings: Settings
    service: str
    table: aws_dynamodb.ITable
    queue: aws_sqs.IQueue
    dead_letters: aws_sqs.IQueue
    bus: aws_events.IEventBus
    resume: ResumeAccess
    encryption_key: aws_kms.IKey | None = None
    network: Network | None = None
    policies: dict[str, aws_iam.PolicyDocument] = field(default_factory=dict)

    def metric(self, name: str, label: str | None = None, **options: Any) -> aws_cloudwatch.Metric:
        """Return a metric that the functions emit: by default its sum over five minutes."""
        return emitted(self.service, name, label=label, **options)

    def table_metrics(self, name: str) -> dict[str, aws_cloudwatch.Metric]:
        """Return a metric of reads and writes, of the table and of its index, as ``read_table``."""
        table = {"TableName": self.table.table_name}
        places = {"table": table, "index": {**table, "GlobalSecondaryIndexName": DUE_INDEX}}
        return {
            f"{verb.lower()}_{place}": self.table.metric(
                name.format(verb), dimensions_map=dimensions, statistic="Sum"
            )
            for verb in ("Read", "Write")
            for place, dimensions in places.items()
        }


def emitted(service: str, name: str, **options: Any) -> aws_cloudwatch.Metric:
    """Return a metric that the functions of an acker emit."""
    return aws_cloudwatch.Metric(
        namespace=METRIC_NAMESPACE,
        metric_name=name,
        dimensions_map={"service": service},
        **{"statistic": "Sum", **options},
    )


def create_function(
    parent: Construct,
    resources: Resources,
    name: str,
    description: str,
    timeout_seconds: int,
    statements: Sequence[aws_iam.PolicyStatement],
) -> aws_lambda.Function:
    """Create a function with a role and a log group of its own.

    Its code is the module `name` of `lambda_src`; `statements` are its permissions besides
    logging. The role is closed: neither the CDK nor a later construct adds permissions to it.
    """
    scope = Construct(parent, "Python")
    settings, network = resources.settings, resources.network
    quiet = {"POWERTOOLS_METRICS_DISABLED": "true"} if settings.monitoring == "minimal" else {}
    policy, key = removal_policy(settings), resources.encryption_key
    logs = aws_logs.LogGroup(scope, "Logs", encryption_key=key, removal_policy=policy)
    resource: Any = logs.node.default_child
    resource.retention_in_days = settings.log_retention_days
    handler = f"lambda_src.{name}.handler"
    log = allow(logs.log_group_arn, "logs:CreateLogStream", "logs:PutLogEvents")
    on_all = _statements_on_all_resources(resources)
    access = aws_iam.PolicyDocument(statements=[log, *statements, *on_all])
    resources.policies[name] = access
    role = _ClosedRole(
        scope,
        "Role",
        assumed_by=aws_iam.ServicePrincipal("lambda.amazonaws.com"),
        description=f"Permissions of {handler}",
        inline_policies={"Access": access},
    )
    acknowledge(
        scope,
        "AwsSolutions-L1",
        "Python 3.13 is supported until 2029; a newer runtime needs a run of the tests for it",
    )
    if any("*" in one.resources for one in [*statements, *on_all]):
        reason = "The actions of X-Ray and those that join a network accept no resource"
        acknowledge(scope, "AwsSolutions-IAM5[Resource::*]", reason)
    function = aws_lambda.Function(
        scope,
        "Function",
        description=description,
        runtime=_RUNTIME,
        architecture=_ARCHITECTURES[settings.architecture],
        code=aws_lambda.Code.from_asset(str(code.assemble_code())),
        handler=handler,
        memory_size=settings.memory_mb,
        timeout=Duration.seconds(timeout_seconds),
        role=role,
        log_group=logs,
        # Lambda then writes the lines of Python's `logging`, and its own, as JSON.
        logging_format=aws_lambda.LoggingFormat.JSON,
        application_log_level_v2=aws_lambda.ApplicationLogLevel.INFO,
        system_log_level_v2=aws_lambda.SystemLogLevel.INFO,
        tracing=aws_lambda.Tracing.ACTIVE if settings.tracing else aws_lambda.Tracing.DISABLED,
        environment_encryption=key,
        environment={
            "TABLE_NAME": resources.table.table_name,
            "PARTITION_KEY": settings.partition_key,
            "DEFAULT_TIMEOUT_SECONDS": str(settings.default_timeout_seconds),
            **({"MASK": settings.mask} if settings.mask else {}),
            "PENDING_TIMEOUT_SECONDS": str(pending_timeout_seconds(resources.queue)),
            "RETENTION_SECONDS": str(settings.retention_seconds),
            "POWERTOOLS_SERVICE_NAME": resources.service,
            "POWERTOOLS_METRICS_NAMESPACE": METRIC_NAMESPACE,
            **quiet,
        },
        vpc=network.vpc if network else None,
        vpc_subnets=network.subnets if network else None,
        security_groups=_security_groups(scope, network) if network else None,
    )
    role.is_closed = True
    return function


class _ClosedRole(aws_iam.Role):
    """A role with inline policies only. Once it is closed, a grant to it is an error.

    What the CDK itself adds while it creates the function is in the policies already.
    """

    is_closed = False

    def add_to_principal_policy(
        self, statement: aws_iam.PolicyStatement
    ) -> aws_iam.AddToPrincipalPolicyResult:
        self._refuse(", ".join(statement.actions))
        return aws_iam.AddToPrincipalPolicyResult(statement_added=True)

    def attach_inline_policy(self, policy: aws_iam.Policy) -> None:
        self._refuse(policy.node.path)

    def add_managed_policy(self, policy: aws_iam.IManagedPolicy) -> None:
        self._refuse(str(policy.managed_policy_arn))

    def _refuse(self, what: str) -> None:
        if self.is_closed:
            raise ValueError(
                f"{what}: the role {self.node.path} takes no further permissions, since its code "
                "is xorack's alone: grant it to a function of yours, such as a target of "
                "`events.rule`"
            )


def create_consumer(scope: Construct, resources: Resources) -> aws_lambda.Function:
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
            allow_events(resources.bus),
            *allow_key(table.encryption_key, *WRITE_WITH_KEY),
            *allow_key(queue.encryption_master_key, *READ_WITH_KEY),
            *allow_key(dead_letters.encryption_master_key, *SEND_WITH_KEY),
        ],
    )
    _add_environment("consumer", function, resources)
    # SqsEventSource would grant more than the poller needs.
    aws_lambda.EventSourceMapping(
        scope,
        "Messages",
        target=function.add_alias(_ALIAS),
        event_source_arn=queue.queue_arn,
        batch_size=settings.batch_size,
        max_batching_window=Duration.seconds(settings.batch_window_seconds),
        max_concurrency=settings.max_concurrency,
        report_batch_item_failures=True,
    )
    return function


def create_sweeper(scope: Construct, resources: Resources) -> aws_lambda.Function:
    """Create the function that times chains out, and the rule that runs it each minute.

    Two concurrent sweeps do no harm: each write is conditional.
    """
    table = resources.table
    function = create_function(
        scope,
        resources,
        name="sweeper",
        description="Ends chains whose deadline has passed, and publishes pending events",
        timeout_seconds=resources.settings.function_timeout_seconds,
        statements=[
            allow(index_arn(table), "dynamodb:Query"),
            allow(table.table_arn, *_READ, "dynamodb:UpdateItem", *_check(table)),
            allow_events(resources.bus),
            *allow_key(table.encryption_key, *WRITE_WITH_KEY),
        ],
    )
    _add_environment("sweeper", function, resources)
    # The next sweep replaces the retry of one that failed, or that Lambda did not take.
    retries: Any = {"retry_attempts": 0, "max_event_age": Duration.seconds(60)}
    alias = function.add_alias(_ALIAS, **retries)
    aws_events.Rule(
        scope,
        "EachMinute",
        schedule=aws_events.Schedule.rate(Duration.minutes(1)),
        targets=[aws_events_targets.LambdaFunction(alias, **retries)],
    )
    return function


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
    return ("dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive") if is_imported(table) else ()


def _add_environment(name: str, function: aws_lambda.Function, resources: Resources) -> None:
    """Add what a function needs that ends chains to its environment."""
    function.add_environment("EVENT_BUS_NAME", name_for(resources.bus, function))
    function.add_environment("TABLE_ARN", resources.table.table_arn)
    function.add_environment("DEAD_LETTER_QUEUE_URL", resources.dead_letters.queue_url)
    if is_imported(resources.table):
        function.add_environment("CHECK_TABLE", "true")
    resources.resume.add_function(function, resources.policies[name])


def _security_groups(scope: Construct, network: Network) -> list[aws_ec2.ISecurityGroup]:
    if network.security_groups:
        return list(network.security_groups)
    group = aws_ec2.SecurityGroup(
        scope,
        "SecurityGroup",
        vpc=network.vpc,
        description="Calls of a function of xorack: HTTPS to DynamoDB, SQS and EventBridge",
        allow_all_outbound=False,
    )
    group.add_egress_rule(aws_ec2.Peer.any_ipv4(), aws_ec2.Port.HTTPS)
    return [group]


def _statements_on_all_resources(resources: Resources) -> list[aws_iam.PolicyStatement]:
    statements = []
    if resources.settings.tracing:
        statements.append(allow("*", "xray:PutTraceSegments", "xray:PutTelemetryRecords"))
    if resources.network is not None:
        statements += [allow("*", *_NETWORK_ACTIONS), forbid_code(_NETWORK_ACTIONS)]
    return statements
