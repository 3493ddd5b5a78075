"""The stack: an acker and its outputs."""

from __future__ import annotations

import dataclasses

from aws_cdk import CfnOutput, Stack
from constructs import Construct

from infra.settings import StackSettings
from xorack.cdk.acker import Acker


class XorackStack(Stack):
    """A stack with one acker; its outputs name what users and operators need."""

    def __init__(self, scope: Construct, settings: StackSettings) -> None:
        super().__init__(
            scope,
            settings.stack_name,
            description="xorack: reports when a piece of work and all that came out of it is done",
            termination_protection=settings.termination_protection,
        )
        service = settings.service or settings.stack_name
        acker = Acker(self, "Acker", settings=dataclasses.replace(settings, service=service))
        dead_letters = acker.dead_letters.queue_url
        outputs = {
            "TableName": (acker.table.table_name, "Table of chains"),
            "QueueUrl": (acker.queue.queue_url, "Queue of requests"),
            "DeadLetterQueueUrl": (dead_letters, "Rejected requests and dead-lettered messages"),
            "EventBusName": (acker.events.bus.event_bus_name, "Bus of the chains' events"),
            "ConsumerName": (acker.consumer.function_name, "Applies requests"),
            "RetentionSeconds": (str(settings.retention_days * 86_400), "Life of finished chains"),
            "SweeperName": (acker.sweeper.function_name, "Times chains out"),
        }
        if acker.dashboard is not None:
            outputs["DashboardName"] = (acker.dashboard.dashboard_name, "Dashboard")
        for name, (value, description) in outputs.items():
            CfnOutput(self, name, value=value, description=description)
