"""The stack: an acker and the names that its users need."""

from __future__ import annotations

import dataclasses

from aws_cdk import CfnOutput, Stack
from constructs import Construct

from xorack.cdk.acker import Acker
from xorack.cdk.settings import Settings


class XorackStack(Stack):
    """One acker, and as outputs where to send stamps and where to listen.

    Attributes:
        acker: The acker.
    """

    def __init__(self, scope: Construct, construct_id: str, *, settings: Settings) -> None:
        super().__init__(
            scope,
            construct_id,
            description="xorack: knows when everything that came out of a file was processed",
        )
        if settings.service is None:
            settings = dataclasses.replace(settings, service=construct_id)
        self.acker = Acker(self, "Acker", settings=settings)
        outputs = {
            "TableName": (self.acker.table.table.table_name, "The chains"),
            "QueueUrl": (self.acker.queue.queue.queue_url, "Where to send stamps"),
            "DeadLetterQueueUrl": (
                self.acker.queue.dead_letters.queue_url,
                "What was refused or could not be applied",
            ),
            "EventBusName": (self.acker.events.bus.event_bus_name, "Where acks are told"),
            "ConsumerName": (self.acker.consumer.function.function_name, "Applies stamps"),
            "SweeperName": (self.acker.sweeper.function.function_name, "Watches deadlines"),
        }
        dashboard = self.acker.monitoring.dashboard
        if dashboard is not None:
            outputs["DashboardName"] = (dashboard.dashboard_name, "What is going on")
        for name, (value, description) in outputs.items():
            CfnOutput(self, name, value=value, description=description)
