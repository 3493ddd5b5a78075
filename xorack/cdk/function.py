"""What the functions have in common: code, role, log group, settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aws_cdk import (
    Acknowledgment,
    ArnFormat,
    Duration,
    Stack,
    Validations,
    aws_dynamodb,
    aws_ec2,
    aws_events,
    aws_iam,
    aws_kms,
    aws_lambda,
    aws_logs,
    aws_sqs,
    aws_ssm,
)
from constructs import Construct

from xorack.cdk.code import functions_code
from xorack.cdk.settings import Settings
from xorack.cdk.table import removal_policy
from xorack.cdk.validation import check_kind

_RUNTIME: Final = aws_lambda.Runtime.PYTHON_3_13
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
"""What Lambda does in a function's name to join it to a network."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network of one's own for the functions, instead of Lambda's.

    It must lead to DynamoDB, SQS and EventBridge: by endpoints (`dynamodb` as a gateway, `sqs` and
    `events` as interfaces with private DNS) or by a NAT gateway. What else Lambda does for a
    function (polling the queue, logs, traces) does not go through it.

    Attributes:
        vpc: The VPC.
        subnets: Which of its subnets; the private ones by default.
        security_groups: What the functions may reach; a group that lets them reach everything is
            made where there is none.
    """

    vpc: aws_ec2.IVpc
    subnets: aws_ec2.SubnetSelection | None = None
    security_groups: Sequence[aws_ec2.ISecurityGroup] = ()

    def __post_init__(self) -> None:
        check_kind("vpc", self.vpc or "", "vpc_id", "an IVpc")


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What an acker's functions work with, and how they are run: the same for all of them.

    Attributes:
        settings: The acker's settings.
        table: Where chains live.
        index_arn: Its index of deadlines.
        dead_letters: Where refused requests go.
        bus: Where the ends of chains are told.
        encryption_key: What their logs are encrypted with; CloudWatch's own key if None.
        network: Where they run; in Lambda's network if None.
    """

    settings: Settings
    table: aws_dynamodb.ITable
    index_arn: str
    dead_letters: aws_sqs.IQueue
    bus: aws_events.IEventBus
    encryption_key: aws_kms.IKey | None = None
    network: Network | None = None


class PythonFunction(Construct):
    """A Lambda function with a role and a log group of its own.

    The role is written out by hand and closed: neither the CDK nor a later construct adds to it, so
    what the function may do is what is read here and held by a test.

    Attributes:
        function: The function.
        log_group: Where it logs.
        role: What it may do.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        around: Surroundings,
        *,
        name: str,
        description: str,
        timeout_seconds: int,
        statements: Sequence[aws_iam.PolicyStatement],
        only_reads: bool = False,
    ) -> None:
        """Make a function.

        Args:
            scope: Where it belongs.
            construct_id: Its name there.
            around: What it works with.
            name: Its module in `lambda_src`.
            description: What it does.
            timeout_seconds: How long one call may take.
            statements: What it may do besides logging.
            only_reads: Whether it only looks at chains: then it is told of the table alone.
        """
        super().__init__(scope, construct_id)
        settings, network = around.settings, around.network
        handler = f"lambda_src.{name}.handler"
        environment = {"TABLE_NAME": around.table.table_name}
        if not only_reads:
            environment["EVENT_BUS_NAME"] = _name_of(around.bus, self)
            environment["DEAD_LETTER_QUEUE_URL"] = around.dead_letters.queue_url
        self.log_group = aws_logs.LogGroup(
            self,
            "Logs",
            encryption_key=around.encryption_key,
            retention=_log_retention(settings.log_retention_days),
            removal_policy=removal_policy(settings),
        )
        allowed = [
            allow(
                ["logs:CreateLogStream", "logs:PutLogEvents"],
                # CloudFormation's ARN of a log group ends in `:*`, its streams.
                [self.log_group.log_group_arn],
            ),
            *statements,
        ]
        if settings.tracing:
            # X-Ray has no resources to name.
            allowed.append(allow(["xray:PutTraceSegments", "xray:PutTelemetryRecords"], ["*"]))
        if network is not None:
            allowed.append(allow(_NETWORK_ACTIONS, ["*"]))
        self.role = aws_iam.Role(
            self,
            "Role",
            assumed_by=aws_iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"What {handler} may do",
            inline_policies={"Access": aws_iam.PolicyDocument(statements=allowed)},
        )
        arm = settings.architecture == "arm64"
        self.function = aws_lambda.Function(
            self,
            "Function",
            description=description,
            runtime=_RUNTIME,
            architecture=aws_lambda.Architecture.ARM_64 if arm else aws_lambda.Architecture.X86_64,
            code=functions_code(),
            handler=handler,
            layers=[_powertools(self, settings)],
            memory_size=settings.memory_mb,
            timeout=Duration.seconds(timeout_seconds),
            role=self.role.without_policy_updates(),
            log_group=self.log_group,
            # Lambda then writes its own lines (START, REPORT, crashes) as JSON too, and tells
            # Powertools the level, which prefers it to its own setting.
            logging_format=aws_lambda.LoggingFormat.JSON,
            application_log_level_v2=aws_lambda.ApplicationLogLevel[settings.log_level],
            system_log_level_v2=aws_lambda.SystemLogLevel.INFO,
            tracing=(
                aws_lambda.Tracing.ACTIVE if settings.tracing else aws_lambda.Tracing.DISABLED
            ),
            environment={
                **environment,
                "PARTITION_KEY": settings.partition_key,
                "DEFAULT_TIMEOUT_SECONDS": str(settings.default_timeout_seconds),
                "RETENTION_SECONDS": str(settings.retention_seconds),
                "POWERTOOLS_SERVICE_NAME": settings.service_name,
                "POWERTOOLS_METRICS_NAMESPACE": "xorack",
                "POWERTOOLS_LOG_LEVEL": settings.log_level,
            },
            vpc=None if network is None else network.vpc,
            vpc_subnets=None if network is None else network.subnets,
            security_groups=(
                list(network.security_groups) or None if network is not None else None
            ),
        )
        acknowledged = {
            "AwsSolutions-L1": "Python 3.13 is supported until 2029; a newer runtime comes with a "
            "layer of Powertools and a run of the tests for it, not by itself",
        }
        if settings.tracing or network is not None:
            acknowledged["AwsSolutions-IAM5[Resource::*]"] = (
                "X-Ray's actions, and those by which Lambda joins a network, know no resources"
            )
        for rule, reason in acknowledged.items():
            Validations.of(self).acknowledge(Acknowledgment(id=rule, reason=reason))


def allow(actions: Sequence[str], resources: Sequence[str]) -> aws_iam.PolicyStatement:
    """A statement that allows these actions on these resources."""
    return aws_iam.PolicyStatement(actions=list(actions), resources=list(resources))


def read_with(key: aws_kms.IKey | None) -> list[aws_iam.PolicyStatement]:
    """What reading takes besides where a table or a queue is encrypted with a key of one's own."""
    return [] if key is None else [allow(["kms:Decrypt", "kms:DescribeKey"], [key.key_arn])]


def send_with(key: aws_kms.IKey | None) -> list[aws_iam.PolicyStatement]:
    """What sending takes besides where a queue is encrypted with a key of one's own."""
    return [] if key is None else [allow(["kms:Decrypt", "kms:GenerateDataKey"], [key.key_arn])]


def write_with(key: aws_kms.IKey | None) -> list[aws_iam.PolicyStatement]:
    """What writing takes besides where a table is encrypted with a key of one's own."""
    actions = (
        "Decrypt", "DescribeKey", "Encrypt", "GenerateDataKey", "GenerateDataKeyWithoutPlaintext",
        "ReEncryptFrom", "ReEncryptTo",
    )  # fmt: skip
    return [] if key is None else [allow([f"kms:{name}" for name in actions], [key.key_arn])]


def let_logs_use(key: aws_kms.IKey, scope: Construct) -> None:
    """Let CloudWatch Logs encrypt this account's log groups with a key that is made in this app.

    It cannot be said which log groups: they name the key, so the key cannot name them. Of an
    imported key the policy is its owner's business.

    Args:
        key: The key.
        scope: Where the log groups are.
    """
    stack = Stack.of(scope)
    logs = stack.format_arn(
        service="logs",
        resource="log-group",
        resource_name="*",
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )
    key.add_to_resource_policy(
        aws_iam.PolicyStatement(
            principals=[aws_iam.ServicePrincipal(f"logs.{stack.region}.{stack.url_suffix}")],
            actions=[
                "kms:Decrypt*",
                "kms:Describe*",
                "kms:Encrypt*",
                "kms:GenerateDataKey*",
                "kms:ReEncrypt*",
            ],
            resources=["*"],
            conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": logs}},
        )
    )


def _name_of(bus: aws_events.IEventBus, scope: Construct) -> str:
    """What events are put to: by a name alone, EventBridge would look in this account."""
    mine = bus.env.account == Stack.of(scope).account
    return bus.event_bus_name if mine else bus.event_bus_arn


def _powertools(scope: Construct, settings: Settings) -> aws_lambda.ILayerVersion:
    """AWS's public layer of Powertools, of the region that is deployed to.

    CloudFormation reads the parameter as it deploys, so that synthesis stays offline.
    """
    name = (
        f"/aws/service/powertools/python/{settings.architecture}"
        f"/{_RUNTIME.name}/{settings.powertools_version}"
    )
    arn = aws_ssm.StringParameter.value_for_string_parameter(scope, name)
    return aws_lambda.LayerVersion.from_layer_version_arn(scope, "Powertools", arn)


def _log_retention(days: int) -> aws_logs.RetentionDays:
    """CloudWatch's name for a number of days."""
    return _RETENTIONS[days]


_DAY: Final = aws_logs.RetentionDays
_RETENTIONS: Final = {
    1: _DAY.ONE_DAY, 3: _DAY.THREE_DAYS, 5: _DAY.FIVE_DAYS, 7: _DAY.ONE_WEEK, 14: _DAY.TWO_WEEKS,
    30: _DAY.ONE_MONTH, 60: _DAY.TWO_MONTHS, 90: _DAY.THREE_MONTHS, 120: _DAY.FOUR_MONTHS,
    150: _DAY.FIVE_MONTHS, 180: _DAY.SIX_MONTHS, 365: _DAY.ONE_YEAR, 400: _DAY.THIRTEEN_MONTHS,
    545: _DAY.EIGHTEEN_MONTHS, 731: _DAY.TWO_YEARS, 1096: _DAY.THREE_YEARS, 1827: _DAY.FIVE_YEARS,
    2192: _DAY.SIX_YEARS, 2557: _DAY.SEVEN_YEARS, 2922: _DAY.EIGHT_YEARS, 3288: _DAY.NINE_YEARS,
    3653: _DAY.TEN_YEARS,
}  # fmt: skip
