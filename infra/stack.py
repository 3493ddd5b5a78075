"""The stack: an acker and its outputs."""

from __future__ import annotations

import dataclasses

from aws_cdk import CfnOutput, Stack
from constructs import Construct

from xorack.cdk.acker import Acker
from xorack.cdk.settings import Settings


class XorackStack(Stack):
    """A stack with one acker; its outputs name what users and operators need."""

    def __init__(self, scope: Construct, construct_id: str, settings: Settings) -> None:
        super().__init__(
            scope,
            construct_id,
            description="xorack: reports when a piece of work and all that came out of it is done",
        )
        service = settings.service or construct_id
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
