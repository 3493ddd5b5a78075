"""What shows unfinished chains on the dashboard."""

from __future__ import annotations

from aws_cdk import aws_dynamodb
from constructs import Construct

from xorack.cdk.function import Network, PythonFunction, allow, read_with
from xorack.cdk.settings import Settings

_TIMEOUT_SECONDS = 15


class ChainsWidget(Construct):
    """The function behind a custom widget of CloudWatch: reads chains, and changes nothing.

    CloudWatch invokes it in the name of whoever looks at the dashboard, who needs
    `lambda:InvokeFunction` on it.

    Attributes:
        function: The function.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        table: aws_dynamodb.ITable,
        index_arn: str,
        network: Network | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        self.function = PythonFunction(
            self,
            "Python",
            settings=settings,
            handler="lambda_src.widget.handler",
            description="Shows the unfinished chains that are due first on the dashboard",
            timeout_seconds=_TIMEOUT_SECONDS,
            environment={"TABLE_NAME": table.table_name},
            statements=[
                allow(["dynamodb:Query"], [index_arn]),
                allow(["dynamodb:BatchGetItem", "dynamodb:GetItem"], [table.table_arn]),
                *read_with(table.encryption_key),
            ],
            network=network,
        ).function
