"""The table of chains."""

from __future__ import annotations

from aws_cdk import RemovalPolicy, aws_dynamodb, aws_kms
from constructs import Construct

from xorack.aws.schema import DUE_AT, DUE_INDEX, DUE_SHARD, EXPIRES_AT
from xorack.cdk.settings import Settings

_Attribute = aws_dynamodb.Attribute
_Type = aws_dynamodb.AttributeType


def create_table(
    scope: Construct, settings: Settings, encryption_key: aws_kms.IKey | None
) -> aws_dynamodb.Table:
    """Create the table: on demand, with point-in-time recovery, TTL and the index of deadlines.

    The index is sparse: it holds unfinished chains only. Its partition key is a shard number, which
    spreads the consumers' writes and the sweeper's queries over partitions.
    """
    recovery = aws_dynamodb.PointInTimeRecoverySpecification(point_in_time_recovery_enabled=True)
    table = aws_dynamodb.Table(
        scope,
        "Table",
        partition_key=_Attribute(name=settings.partition_key, type=_Type.STRING),
        billing_mode=aws_dynamodb.BillingMode.PAY_PER_REQUEST,
        point_in_time_recovery_specification=recovery,
        encryption=aws_dynamodb.TableEncryption.CUSTOMER_MANAGED if encryption_key else None,
        encryption_key=encryption_key,
        time_to_live_attribute=EXPIRES_AT,
        deletion_protection=settings.deletion_protection,
        removal_policy=removal_policy(settings),
        warm_throughput=_warm(settings.warm_read_units, settings.warm_write_units),
        max_read_request_units=settings.max_read_units,
        max_write_request_units=settings.max_write_units,
    )
    table.add_global_secondary_index(
        index_name=DUE_INDEX,
        partition_key=_Attribute(name=DUE_SHARD, type=_Type.NUMBER),
        sort_key=_Attribute(name=DUE_AT, type=_Type.NUMBER),
        projection_type=aws_dynamodb.ProjectionType.KEYS_ONLY,
        # An index that throttles also throttles its table. It has no maximum for the same reason.
        warm_throughput=_warm(None, settings.warm_write_units),
    )
    return table


def _warm(reads: int | None, writes: int | None) -> aws_dynamodb.WarmThroughput | None:
    if reads is None and writes is None:
        return None
    return aws_dynamodb.WarmThroughput(read_units_per_second=reads, write_units_per_second=writes)


def index_arn(table: aws_dynamodb.ITable) -> str:
    """Return the ARN of the index of deadlines."""
    return f"{table.table_arn}/index/{DUE_INDEX}"


def removal_policy(settings: Settings) -> RemovalPolicy:
    """Return the removal policy of resources that hold state."""
    return RemovalPolicy[settings.removal_policy.upper()]
