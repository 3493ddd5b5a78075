"""Statements of IAM policies and key policies."""

from __future__ import annotations

from typing import Final

from aws_cdk import ArnFormat, Stack, aws_iam, aws_kms
from constructs import Construct

# Actions on a customer-managed key: to read a table or a queue, to send, to write.
READ_WITH_KEY: Final = ("kms:Decrypt", "kms:DescribeKey")
SEND_WITH_KEY: Final = ("kms:Decrypt", "kms:GenerateDataKey")
WRITE_WITH_KEY: Final = (
    *READ_WITH_KEY, "kms:Encrypt", "kms:GenerateDataKey", "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom", "kms:ReEncryptTo",
)  # fmt: skip
_LOGS_WITH_KEY: Final = (
    "kms:Decrypt*", "kms:Describe*", "kms:Encrypt*", "kms:GenerateDataKey*", "kms:ReEncrypt*",
)  # fmt: skip


def allow(resource: str, *actions: str) -> aws_iam.PolicyStatement:
    """Allow actions on a resource."""
    return aws_iam.PolicyStatement(actions=list(actions), resources=[resource])


def allow_key(key: aws_kms.IKey | None, *actions: str) -> list[aws_iam.PolicyStatement]:
    """Allow actions on a key; nothing without a key."""
    return [] if key is None else [allow(key.key_arn, *actions)]


def allow_logs_to_use(key: aws_kms.IKey, scope: Construct) -> None:
    """Let CloudWatch Logs encrypt this account's log groups with a key of this app.

    The key cannot name its log groups, since they name the key. The policy of an imported key does
    not change.
    """
    stack = Stack.of(scope)
    log_groups = stack.format_arn(
        service="logs",
        resource="log-group",
        resource_name="*",
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )
    key.add_to_resource_policy(
        aws_iam.PolicyStatement(
            principals=[aws_iam.ServicePrincipal(f"logs.{stack.region}.{stack.url_suffix}")],
            actions=list(_LOGS_WITH_KEY),
            resources=["*"],
            conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": log_groups}},
        )
    )
