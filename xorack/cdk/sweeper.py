"""The sweeper: ends chains whose time is up and tells events that are still owed."""

from __future__ import annotations

from aws_cdk import Duration, aws_dynamodb, aws_events, aws_events_targets, aws_sqs
from constructs import Construct

from xorack.cdk.function import Network, PythonFunction, allow, write_with
from xorack.cdk.settings import Settings


class Sweeper(Construct):
    """The function that runs each minute, and the rule that runs it.

    Two of them at once do no harm, since each write looks again at what it changes.

    Attributes:
        function: The function.
        rule: The clock.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        table: aws_dynamodb.ITable,
        index_arn: str,
        dead_letters: aws_sqs.IQueue,
        bus: aws_events.IEventBus,
        network: Network | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        python = PythonFunction(
            self,
            "Python",
            settings=settings,
            handler="lambda_src.sweeper.handler",
            description="Ends chains whose time is up and tells events that are owed",
            timeout_seconds=settings.sweeper_timeout_seconds,
            environment={
                "TABLE_NAME": table.table_name,
                "EVENT_BUS_NAME": bus.event_bus_name,
                "DEAD_LETTER_QUEUE_URL": dead_letters.queue_url,
            },
            statements=[
                allow(["dynamodb:Query"], [index_arn]),
                allow(
                    ["dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:UpdateItem"],
                    [table.table_arn],
                ),
                allow(["events:PutEvents"], [bus.event_bus_arn]),
                *write_with(table.encryption_key),
            ],
            network=network,
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
