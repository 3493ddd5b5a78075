"""What shows unfinished chains on the dashboard."""

from __future__ import annotations

from constructs import Construct

from xorack.cdk.function import PythonFunction, Surroundings, allow, read_with

_TIMEOUT_SECONDS = 15


class ChainsWidget(Construct):
    """The function behind a custom widget of CloudWatch: reads chains, and changes nothing.

    CloudWatch invokes it in the name of whoever looks at the dashboard, who needs
    `lambda:InvokeFunction` on it.

    Attributes:
        function: The function.
    """

    def __init__(self, scope: Construct, construct_id: str, around: Surroundings) -> None:
        super().__init__(scope, construct_id)
        self.function = PythonFunction(
            self,
            "Python",
            around,
            name="widget",
            description="Shows the unfinished chains that are due first on the dashboard",
            timeout_seconds=_TIMEOUT_SECONDS,
            statements=[
                allow(["dynamodb:Query"], [around.index_arn]),
                allow(["dynamodb:BatchGetItem", "dynamodb:GetItem"], [around.table.table_arn]),
                *read_with(around.table.encryption_key),
            ],
            only_reads=True,
        ).function
