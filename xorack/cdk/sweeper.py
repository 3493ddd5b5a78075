"""The sweeper: ends chains whose time is up and tells events that are still owed."""

from __future__ import annotations

from aws_cdk import Duration, aws_events, aws_events_targets
from constructs import Construct

from xorack.cdk.function import PythonFunction, Surroundings, allow, write_with


class Sweeper(Construct):
    """The function that runs each minute, and the rule that runs it.

    Two of them at once do no harm, since each write looks again at what it changes.

    Attributes:
        function: The function.
        rule: The clock.
    """

    def __init__(self, scope: Construct, construct_id: str, around: Surroundings) -> None:
        super().__init__(scope, construct_id)
        python = PythonFunction(
            self,
            "Python",
            around,
            name="sweeper",
            description="Ends chains whose time is up and tells events that are owed",
            timeout_seconds=around.settings.sweeper_timeout_seconds,
            statements=[
                allow(["dynamodb:Query"], [around.index_arn]),
                allow(
                    ["dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:UpdateItem"],
                    [around.table.table_arn],
                ),
                allow(["events:PutEvents"], [around.bus.event_bus_arn]),
                *write_with(around.table.encryption_key),
            ],
        )
        self.function = python.function
        # A sweep that failed is not tried again: the next one is at most a minute away.
        self.function.configure_async_invoke(retry_attempts=0, max_event_age=Duration.seconds(60))
        self.rule = aws_events.Rule(
            self,
            "EachMinute",
            schedule=aws_events.Schedule.rate(Duration.minutes(1)),
            targets=[aws_events_targets.LambdaFunction(self.function)],
        )
