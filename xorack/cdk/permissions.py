"""Statements of IAM policies and key policies, and answers to findings about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from aws_cdk import (
    Acknowledgment,
    ArnFormat,
    Stack,
    Validations,
    aws_events,
    aws_iam,
    aws_kms,
    aws_sns,
)
from constructs import Construct

from xorack.cdk.events import SOURCE, STATUSES

# Actions on a customer-managed key: to read a table or a queue, to send, to write.
READ_WITH_KEY: Final = ("kms:Decrypt", "kms:DescribeKey")
SEND_WITH_KEY: Final = ("kms:Decrypt", "kms:GenerateDataKey")
WRITE_WITH_KEY: Final = (
    *READ_WITH_KEY,
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)
_LOGS_WITH_KEY: Final = (
    "kms:Decrypt*",
    "kms:Describe*",
    "kms:Encrypt*",
    "kms:GenerateDataKey*",
    "kms:ReEncrypt*",
)


# Services that use the key for a function's role; the role itself cannot.
_SERVICES: Final = ("dynamodb.*", "lambda.*", "sqs.*")


def allow(resource: str, *actions: str) -> aws_iam.PolicyStatement:
    return aws_iam.PolicyStatement(actions=list(actions), resources=[resource])


def allow_key(key: aws_kms.IKey | None, *actions: str) -> list[aws_iam.PolicyStatement]:
    """Allow actions on a key through the services that use it; nothing without a key."""
    if key is None:
        return []
    statement = allow(key.key_arn, *actions)
    statement.add_condition("StringLike", {"kms:ViaService": list(_SERVICES)})
    return [statement]


def allow_events(bus: aws_events.IEventBus) -> aws_iam.PolicyStatement:
    """Allow events of this source on a bus: others' are not these functions' to claim."""
    statement = allow(bus.event_bus_arn, "events:PutEvents")
    # `events:source` has several values in a call of several entries.
    matches = {"events:source": SOURCE, "events:detail-type": [*STATUSES]}
    statement.add_condition("ForAllValues:StringEquals", matches)
    return statement


def forbid_code(actions: Sequence[str]) -> aws_iam.PolicyStatement:
    """Deny a function's own code the actions that only Lambda needs the role for."""
    return aws_iam.PolicyStatement(
        effect=aws_iam.Effect.DENY,
        actions=list(actions),
        resources=["*"],
        # Calls of the code have this key, calls of Lambda to join a network have not.
        conditions={"Null": {"lambda:SourceFunctionArn": "false"}},
    )


def for_account(grantee: aws_iam.IGrantable, account: str) -> aws_iam.IGrantable:
    """Restrict a service to one account, unless its principal has conditions already.

    Anybody may tell a service to send to a queue whose policy admits the service.
    """
    principal = grantee.grant_principal
    fragment = principal.policy_fragment
    if "Service" not in fragment.principal_json or fragment.conditions:
        return grantee
    return aws_iam.PrincipalWithConditions(
        principal, {"StringEquals": {"aws:SourceAccount": account}}
    )


def arn_of_all(scope: Construct, service: str, resource: str) -> str:
    """Return the ARN that stands for all resources of a kind in the stack's account and region."""
    colon = ArnFormat.COLON_RESOURCE_NAME
    return Stack.of(scope).format_arn(
        service=service, resource=resource, resource_name="*", arn_format=colon
    )


def allow_alarms_to_use(topic: aws_sns.ITopic, scope: Construct) -> None:
    """Let the alarms of this account publish to a topic of this app, and use its key.

    A topic that requires TLS has a policy, which replaces the one that would admit them. The
    policies of an imported topic and of its key do not change.
    """
    stack = Stack.of(scope)
    common: dict[str, Any] = {
        "principals": [aws_iam.ServicePrincipal("cloudwatch.amazonaws.com")],
        "conditions": {
            "StringEquals": {"aws:SourceAccount": stack.account},
            "ArnLike": {"aws:SourceArn": arn_of_all(scope, "cloudwatch", "alarm")},
        },
    }
    publish = aws_iam.PolicyStatement(
        actions=["sns:Publish"], resources=[topic.topic_arn], **common
    )
    topic.add_to_resource_policy(publish)
    if topic.master_key is not None:
        use = ["kms:Decrypt", "kms:GenerateDataKey*"]
        topic.master_key.add_to_resource_policy(
            aws_iam.PolicyStatement(actions=use, resources=["*"], **common)
        )


def allow_logs_to_use(key: aws_kms.IKey, scope: Construct) -> None:
    """Let CloudWatch Logs encrypt this account's log groups with a key of this app.

    The key cannot name its log groups, since they name the key. The policy of an imported key does
    not change.
    """
    key.add_to_resource_policy(logs_statement(scope))


def logs_statement(scope: Construct) -> aws_iam.PolicyStatement:
    """Return what the policy of a key needs so that CloudWatch Logs can use it."""
    stack, log_groups = Stack.of(scope), arn_of_all(scope, "logs", "log-group")
    return aws_iam.PolicyStatement(
        principals=[aws_iam.ServicePrincipal(f"logs.{stack.region}.{stack.url_suffix}")],
        actions=list(_LOGS_WITH_KEY),
        resources=["*"],
        conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": log_groups}},
    )


def acknowledge(scope: Construct, finding: str, reason: str) -> None:
    Validations.of(scope).acknowledge(Acknowledgment(id=finding, reason=reason))
