"""Statements for IAM policies and key policies, and acknowledgements of findings about them."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from typing import Any, Final

import aws_cdk as cdk
from constructs import Construct

from xorack.cdk.events import SOURCE, STATUSES
from xorack.cdk.validation import has_own_policy

# Actions on a customer-managed key that reading, sending and writing need.
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


def allow(resource: str, *actions: str, **more: Any) -> cdk.aws_iam.PolicyStatement:
    return cdk.aws_iam.PolicyStatement(actions=[*actions], resources=[resource], **more)


def allow_key(key: cdk.aws_kms.IKey | None, *actions: str) -> list[cdk.aws_iam.PolicyStatement]:
    """Allow a function's role to use a key, but only through the services that it calls."""
    services = {"StringLike": {"kms:ViaService": ["dynamodb.*", "lambda.*", "sqs.*"]}}
    return [] if key is None else [allow(key.key_arn, *actions, conditions=services)]


def allow_events(bus: cdk.aws_events.IEventBus) -> list[cdk.aws_iam.PolicyStatement]:
    """Allow describing a bus, and putting events on it that have the source `xorack`."""
    # A call with several entries has several values of `events:source`.
    own_events = {"events:source": SOURCE, "events:detail-type": [*STATUSES]}
    conditions = {"ForAllValues:StringEquals": own_events}
    put = allow(bus.event_bus_arn, "events:PutEvents", conditions=conditions)
    return [put, allow(bus.event_bus_arn, "events:DescribeEventBus")]


def for_account(grantee: cdk.aws_iam.IGrantable, account: str) -> cdk.aws_iam.IGrantable:
    """Restrict a service to one account, unless its principal has conditions.

    If a queue's policy allows a service, anyone can make the service send to the queue.
    """
    principal = grantee.grant_principal
    fragment = principal.policy_fragment
    if "Service" not in fragment.principal_json or fragment.conditions:
        return grantee
    return cdk.aws_iam.PrincipalWithConditions(
        principal, {"StringEquals": {"aws:SourceAccount": account}}
    )


def arn_of_all(scope: Construct, service: str, resource: str) -> str:
    """Return the ARN of all resources of a kind in the stack's account and region."""
    colon = cdk.ArnFormat.COLON_RESOURCE_NAME
    return cdk.Stack.of(scope).format_arn(
        service=service, resource=resource, resource_name="*", arn_format=colon
    )


def allow_alarms_to_use(topic: cdk.aws_sns.ITopic, scope: Construct) -> None:
    """Allow the alarms of this account to publish to a topic of this app, and to use its key.

    A topic that requires TLS has a policy, which replaces the default policy for alarms.
    """
    common: dict[str, Any] = {
        "principals": [cdk.aws_iam.ServicePrincipal("cloudwatch.amazonaws.com")],
        "conditions": {
            "StringEquals": {"aws:SourceAccount": cdk.Stack.of(scope).account},
            "ArnLike": {"aws:SourceArn": arn_of_all(scope, "cloudwatch", "alarm")},
        },
    }
    topic.add_to_resource_policy(allow(topic.topic_arn, "sns:Publish", **common))
    if topic.master_key is not None:
        use = allow("*", "kms:Decrypt", "kms:GenerateDataKey*", **common)
        topic.master_key.add_to_resource_policy(use)


def logs_statement(scope: Construct) -> cdk.aws_iam.PolicyStatement:
    """Allow CloudWatch Logs to encrypt this account's log groups with the key of the policy.

    The statement cannot name the acker's log groups, because they refer to the key.
    """
    stack, log_groups = cdk.Stack.of(scope), arn_of_all(scope, "logs", "log-group")
    actions = ("Decrypt", "Describe", "Encrypt", "GenerateDataKey", "ReEncrypt")
    return allow(
        "*",
        *(f"kms:{action}*" for action in actions),
        principals=[cdk.aws_iam.ServicePrincipal(f"logs.{stack.region}.{stack.url_suffix}")],
        conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": log_groups}},
    )


def check_policy(
    source: str, resource: Any, grantee: cdk.aws_iam.IGrantable, arn: str, *actions: str
) -> None:
    """Raise ValueError if the policy of an imported resource has to allow a grantee."""
    if resource is None or has_own_policy(resource):
        return
    statement = allow(arn, *actions, principals=[grantee.grant_principal])
    raise ValueError(
        f"{source}: the policy of {resource.node.path} cannot be changed, because it was imported. "
        f"It needs the statement {as_json(resource, statement)}. Set policies_ready=true once it "
        "exists"
    )


def as_json(scope: Construct, statement: cdk.aws_iam.PolicyStatement) -> str:
    return json.dumps(cdk.Stack.of(scope).resolve(statement.to_statement_json()), sort_keys=True)


def combined(grants: Iterable[cdk.aws_iam.Grant]) -> cdk.aws_iam.Grant:
    return functools.reduce(lambda first, other: first.combine(other), grants)


def acknowledge(scope: Construct, finding: str, reason: str) -> None:
    cdk.Validations.of(scope).acknowledge(cdk.Acknowledgment(id=finding, reason=reason))
