"""The acker as one construct, for this project's stack and for anybody's."""

from __future__ import annotations

from aws_cdk import aws_iam
from constructs import Construct

from infra.consumer import Consumer
from infra.events import AckEvents
from infra.monitoring import Monitoring
from infra.queue import StampQueue
from infra.settings import Settings
from infra.sweeper import Sweeper
from infra.table import ChainTable


class Acker(Construct):
    """Everything that turns stamps on a queue into events on a bus.

    Example:
        In a stack of your own::

            acker = Acker(self, "Acker", settings=Settings(batch_size=500))
            acker.grant_send(my_producer)
            acker.events.rule("Done", targets=[targets.SqsQueue(done)], statuses=["acked"])

    Attributes:
        table: Where chains live (`table.table`).
        queue: The queue and its dead letters (`queue.queue`, `queue.dead_letters`).
        events: The bus (`events.bus`), and rules on it (`events.rule`).
        consumer: What applies requests (`consumer.function`).
        sweeper: What ends chains whose time is up (`sweeper.function`).
        monitoring: The alarms.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, settings: Settings | None = None
    ) -> None:
        super().__init__(scope, construct_id)
        settings = settings or Settings()
        self.table = ChainTable(self, "Chains", settings=settings)
        self.queue = StampQueue(self, "Stamps", settings=settings)
        self.events = AckEvents(self, "Events")
        self.consumer = Consumer(
            self,
            "Consumer",
            settings=settings,
            table=self.table.table,
            queue=self.queue.queue,
            dead_letters=self.queue.dead_letters,
            bus=self.events.bus,
        )
        self.sweeper = Sweeper(
            self,
            "Sweeper",
            settings=settings,
            table=self.table.table,
            index_arn=self.table.index_arn,
            dead_letters=self.queue.dead_letters,
            bus=self.events.bus,
        )
        self.monitoring = Monitoring(
            self,
            "Monitoring",
            settings=settings,
            queue=self.queue.queue,
            dead_letters=self.queue.dead_letters,
            consumer=self.consumer.function,
            sweeper=self.sweeper.function,
        )

    def grant_send(self, grantee: aws_iam.IGrantable) -> aws_iam.Grant:
        """Let somebody send requests: a Spark job, a producer.

        Args:
            grantee: Who may.

        Returns:
            The grant.
        """
        return aws_iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["sqs:SendMessage"],
            resource_arns=[self.queue.queue.queue_arn],
        )

    def grant_read(self, grantee: aws_iam.IGrantable) -> aws_iam.Grant:
        """Let somebody look at chains: a dashboard, `xorack show` and `xorack list`.

        Args:
            grantee: Who may.

        Returns:
            The grant.
        """
        return aws_iam.Grant.add_to_principal(
            grantee=grantee,
            actions=[
                "dynamodb:BatchGetItem",
                "dynamodb:GetItem",
                "dynamodb:Query",
                "dynamodb:Scan",
            ],
            resource_arns=[self.table.table.table_arn, self.table.index_arn],
        )
