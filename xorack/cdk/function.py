"""The frame of all functions: code, role, log group, environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aws_cdk import (
    Acknowledgment,
    Duration,
    Validations,
    aws_cloudwatch,
    aws_dynamodb,
    aws_ec2,
    aws_events,
    aws_iam,
    aws_kms,
    aws_lambda,
    aws_logs,
    aws_sqs,
)
from constructs import Construct

from xorack.aws.schema import METRIC_NAMESPACE
from xorack.cdk import code
from xorack.cdk.permissions import allow, forbid_code
from xorack.cdk.queue import pending_timeout_seconds
from xorack.cdk.resume import ResumeAccess
from xorack.cdk.settings import Settings
from xorack.cdk.table import removal_policy
from xorack.cdk.validation import check_kind

_RUNTIME: Final = aws_lambda.Runtime.PYTHON_3_13
_ARCHITECTURES: Final = {
    "arm64": aws_lambda.Architecture.ARM_64,
    "x86_64": aws_lambda.Architecture.X86_64,
}
# Lambda joins the network with the function's role.
_NETWORK_ACTIONS: Final = (
    "ec2:AssignPrivateIpAddresses", "ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces", "ec2:DescribeSecurityGroups", "ec2:DescribeSubnets",
    "ec2:DescribeVpcs", "ec2:UnassignPrivateIpAddresses",
)  # fmt: skip


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
        service: Value of the metrics' dimension `service`.
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
        return aws_cloudwatch.Metric(
            namespace=METRIC_NAMESPACE,
            metric_name=name,
            dimensions_map={"service": self.service},
            label=label,
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
    role = aws_iam.Role(
        scope,
        "Role",
        assumed_by=aws_iam.ServicePrincipal("lambda.amazonaws.com"),
        description=f"Permissions of {handler}",
        inline_policies={"Access": access},
    )
    _acknowledge_findings(scope, [*statements, *on_all])
    return aws_lambda.Function(
        scope,
        "Function",
        description=description,
        runtime=_RUNTIME,
        architecture=_ARCHITECTURES[settings.architecture],
        code=aws_lambda.Code.from_asset(str(code.assemble_code())),
        handler=handler,
        memory_size=settings.memory_mb,
        timeout=Duration.seconds(timeout_seconds),
        role=role.without_policy_updates(),
        log_group=logs,
        # Lambda then writes the lines of Python's `logging`, and its own, as JSON.
        logging_format=aws_lambda.LoggingFormat.JSON,
        application_log_level_v2=aws_lambda.ApplicationLogLevel[settings.log_level],
        system_log_level_v2=aws_lambda.SystemLogLevel.INFO,
        tracing=aws_lambda.Tracing.ACTIVE if settings.tracing else aws_lambda.Tracing.DISABLED,
        environment_encryption=key,
        environment={
            "TABLE_NAME": resources.table.table_name,
            "PARTITION_KEY": settings.partition_key,
            "DEFAULT_TIMEOUT_SECONDS": str(settings.default_timeout_seconds),
            "PENDING_TIMEOUT_SECONDS": str(pending_timeout_seconds(settings, resources.queue)),
            "RETENTION_SECONDS": str(settings.retention_seconds),
            "POWERTOOLS_SERVICE_NAME": resources.service,
            "POWERTOOLS_METRICS_NAMESPACE": METRIC_NAMESPACE,
            **({"TRACING": "true"} if settings.tracing else {}),
            **quiet,
        },
        vpc=network.vpc if network else None,
        vpc_subnets=network.subnets if network else None,
        security_groups=_security_groups(scope, network),
    )


def _security_groups(
    scope: Construct, network: Network | None
) -> list[aws_ec2.ISecurityGroup] | None:
    """Return a function's security groups in a network; None without one."""
    if network is None:
        return None
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
    """Return the statements of actions that accept no resource."""
    statements = []
    if resources.settings.tracing:
        statements.append(allow("*", "xray:PutTraceSegments", "xray:PutTelemetryRecords"))
    if resources.network is not None:
        statements += [allow("*", *_NETWORK_ACTIONS), forbid_code(_NETWORK_ACTIONS)]
    return statements


def _acknowledge_findings(scope: Construct, statements: Sequence[aws_iam.PolicyStatement]) -> None:
    """Acknowledge the findings of cdk-nag, with reasons."""
    reasons = {
        "AwsSolutions-L1": "Python 3.13 is supported until 2029; a newer runtime needs a run of "
        "the tests for it"
    }
    if any("*" in statement.resources for statement in statements):
        reasons["AwsSolutions-IAM5[Resource::*]"] = (
            "The actions of X-Ray and those that join a network accept no resource"
        )
    for rule, reason in reasons.items():
        Validations.of(scope).acknowledge(Acknowledgment(id=rule, reason=reason))
