"""What programs and operators need to find an acker: outputs, exports, SSM parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import CfnOutput, Stack, aws_ssm
from constructs import Construct

from xorack.cdk.events import name_for

if TYPE_CHECKING:
    from xorack.cdk.acker import Acker


def create_outputs(acker: Acker, exports: bool, parameters: str | None) -> None:
    """Add the outputs to the acker's stack, by the names that `xorack --stack` reads."""
    dead_letters, bus = acker.dead_letters, acker.events.bus
    outputs = {
        "TableName": (acker.table.table_name, "Table of chains"),
        "TableArn": (acker.table.table_arn, "Its ARN, also the resource of events"),
        "QueueUrl": (acker.queue.queue_url, "Queue of requests"),
        "QueueArn": (acker.queue.queue_arn, "Its ARN"),
        "DeadLetterQueueUrl": (dead_letters.queue_url, "Rejected and dead-lettered messages"),
        "DeadLetterQueueArn": (dead_letters.queue_arn, "Its ARN"),
        "EventBusName": (name_for(bus, acker), "Bus of the chains' events"),
        "EventBusArn": (bus.event_bus_arn, "Its ARN"),
        "ConsumerName": (acker.consumer.function_name, "Applies requests"),
        "ConsumerArn": (acker.consumer.function_arn, "Its ARN; its alias is live"),
        "RetentionSeconds": (str(acker.settings.retention_seconds), "Life of finished chains"),
        "SweeperName": (acker.sweeper.function_name, "Times chains out"),
        "SweeperArn": (acker.sweeper.function_arn, "Its ARN; its alias is live"),
    }
    if acker.dashboard is not None:
        outputs["DashboardName"] = (acker.dashboard.dashboard_name, "Dashboard")
    stack, scope = Stack.of(acker), Construct(acker, "Parameters")
    for name, (value, description) in outputs.items():
        export = f"{stack.stack_name}-{name}" if exports else None
        CfnOutput(stack, name, value=value, description=description, export_name=export)
        if parameters is not None:
            path = f"{parameters.rstrip('/')}/{name}"
            aws_ssm.StringParameter(
                scope, name, parameter_name=path, string_value=value, description=description
            )
