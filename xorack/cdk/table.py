"""The table: where chains live."""

from __future__ import annotations

from typing import Final

from aws_cdk import RemovalPolicy, aws_dynamodb, aws_kms
from constructs import Construct

from xorack.cdk.settings import Settings

INDEX_NAME: Final = "due"
TTL_ATTRIBUTE: Final = "expires_at"


class ChainTable(Construct):
    """One item a chain, on demand, with point-in-time recovery, TTL and the index of deadlines.

    The index is sparse: only items that have both of its attributes are in it, which are those that
    the sweeper has something to do about. Its partition key is a shard number, so that neither the
    writes of the consumers nor the sweeper's query fall on one partition.

    Attributes:
        table: The table.
        index_arn: ARN of the index of deadlines.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        encryption_key: aws_kms.IKey | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        number = aws_dynamodb.AttributeType.NUMBER
        self.table = aws_dynamodb.Table(
            self,
            "Table",
            partition_key=aws_dynamodb.Attribute(
                name=settings.partition_key, type=aws_dynamodb.AttributeType.STRING
            ),
            billing_mode=aws_dynamodb.BillingMode.PAY_PER_REQUEST,
            point_in_time_recovery_specification=aws_dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            encryption=(
                None if encryption_key is None else aws_dynamodb.TableEncryption.CUSTOMER_MANAGED
            ),
            encryption_key=encryption_key,
            time_to_live_attribute=TTL_ATTRIBUTE,
            deletion_protection=settings.deletion_protection,
            removal_policy=removal_policy(settings),
        )
        self.table.add_global_secondary_index(
            index_name=INDEX_NAME,
            partition_key=aws_dynamodb.Attribute(name="due_shard", type=number),
            sort_key=aws_dynamodb.Attribute(name="due_at", type=number),
            projection_type=aws_dynamodb.ProjectionType.KEYS_ONLY,
        )
        self.index_arn = f"{self.table.table_arn}/index/{INDEX_NAME}"


def removal_policy(settings: Settings) -> RemovalPolicy:
    """What becomes of a resource that holds something when the stack goes."""
    return RemovalPolicy.DESTROY if settings.removal_policy == "destroy" else RemovalPolicy.RETAIN
