"""The table of chains."""

from __future__ import annotations

from typing import Any

from aws_cdk import ArnFormat, RemovalPolicy, Stack, aws_dynamodb, aws_kms
from constructs import Construct

from xorack.aws.schema import DUE_AT, DUE_INDEX, DUE_SHARD, EXPIRES_AT
from xorack.aws.table_check import check_definition, check_replicas, check_time_to_live
from xorack.cdk.settings import Settings
from xorack.cdk.validation import check_place

_Attribute = aws_dynamodb.Attribute
_Type = aws_dynamodb.AttributeType


def create_table(
    scope: Construct, settings: Settings, encryption_key: aws_kms.IKey | None
) -> aws_dynamodb.Table:
    """Create the table: on demand, with backups, TTL and the index of deadlines."""
    recovery = aws_dynamodb.PointInTimeRecoverySpecification(point_in_time_recovery_enabled=True)
    insights = None
    if settings.contributor_insights:
        throttled = aws_dynamodb.ContributorInsightsMode.THROTTLED_KEYS
        insights = aws_dynamodb.ContributorInsightsSpecification(enabled=True, mode=throttled)
    table = aws_dynamodb.Table(
        scope,
        "Table",
        partition_key=_Attribute(name=settings.partition_key, type=_Type.STRING),
        billing_mode=aws_dynamodb.BillingMode.PAY_PER_REQUEST,
        point_in_time_recovery_specification=recovery,
        encryption=aws_dynamodb.TableEncryption.CUSTOMER_MANAGED if encryption_key else None,
        encryption_key=encryption_key,
        contributor_insights_specification=insights,
        time_to_live_attribute=EXPIRES_AT,
        deletion_protection=settings.deletion_protection,
        # A rollback cannot delete a protected table. The attempt would fail and block the next
        # deployment.
        removal_policy=RemovalPolicy.RETAIN
        if settings.deletion_protection
        else removal_policy(settings),
    )
    table.add_global_secondary_index(
        index_name=DUE_INDEX,
        contributor_insights_specification=insights,
        partition_key=_Attribute(name=DUE_SHARD, type=_Type.NUMBER),
        sort_key=_Attribute(name=DUE_AT, type=_Type.NUMBER),
        projection_type=aws_dynamodb.ProjectionType.KEYS_ONLY,
    )
    return table


def adopt_table(
    scope: Construct,
    settings: Settings,
    table: aws_dynamodb.ITable | None,
    encryption_key: aws_kms.IKey | None,
) -> aws_dynamodb.ITable | None:
    """Return the table that the user passes, as a construct or by name; None without one."""
    if settings.table_name is None:
        if table is not None:
            _check(table, scope, settings.partition_key)
        return table
    if table is not None:
        raise ValueError(
            f"table: {table.node.path} was passed, and the setting `table_name` is "
            f"{settings.table_name!r}: expected only one of the two"
        )
    return aws_dynamodb.Table.from_table_attributes(
        scope, "Table", table_name=settings.table_name, encryption_key=encryption_key
    )


def is_imported(table: aws_dynamodb.ITable) -> bool:
    """Return whether the table's definition is unknown until the functions' first call."""
    return _definition(table) is None


def key_of(table: aws_dynamodb.ITable, encryption_key: aws_kms.IKey | None) -> aws_kms.IKey | None:
    """Return the key of a table: its own, or the acker's if the table was imported without a key.

    A restored table has the key of the original table.
    """
    if table.encryption_key is not None or not is_imported(table):
        return table.encryption_key
    return encryption_key


def _check(table: aws_dynamodb.ITable, scope: Construct, partition_key: str) -> None:
    """Reject a table that cannot work. The definition of an imported table is unknown."""
    path, here = table.node.path, Stack.of(scope)
    # An imported table has the stack's environment, so only its ARN shows its account and region.
    arn = here.split_arn(table.table_arn, ArnFormat.SLASH_RESOURCE_NAME)
    for there in (table.env, arn):
        check_place(f"table: {path}", there, here)
    definition = _definition(table)
    if definition is None:
        return
    check_definition(path, definition, partition_key)
    if len(definition.get("Replicas") or ()) > 1:
        check_replicas(path, [replica["Region"] for replica in definition["Replicas"]])
    time_to_live = definition.get("TimeToLiveSpecification") or {}
    check_time_to_live(path, time_to_live.get("Enabled") and time_to_live.get("AttributeName"))


def _definition(table: aws_dynamodb.ITable) -> dict[str, Any] | None:
    """Return the properties of a table of this app with CloudFormation's names; else None."""
    resource: Any = table.node.default_child
    if not isinstance(resource, (aws_dynamodb.CfnTable, aws_dynamodb.CfnGlobalTable)):
        return None
    return dict(resource._render_properties(Stack.of(table).resolve(resource._cfn_properties)))


def index_arn(table: aws_dynamodb.ITable) -> str:
    return f"{table.table_arn}/index/{DUE_INDEX}"


def removal_policy(settings: Settings) -> RemovalPolicy:
    """Return the removal policy of resources that hold state."""
    # If the first deployment fails, no resource is retained, because all of them are empty.
    retain = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
    return retain if settings.removal_policy == "retain" else RemovalPolicy.DESTROY
