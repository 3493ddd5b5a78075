"""The stack: an acker, its grants, and its outputs."""

from __future__ import annotations

from typing import Final

from aws_cdk import Stack, aws_events, aws_iam, aws_kms
from constructs import Construct

from infra.settings import StackSettings
from xorack.cdk.acker import Acker

DESCRIPTION: Final = (
    "xorack: reports when a piece of work and everything that came out of it is done"
)


class XorackStack(Stack):
    """A stack with one acker. Its outputs name the resources that users and operators need."""

    def __init__(self, scope: Construct, settings: StackSettings) -> None:
        super().__init__(
            scope,
            settings.stack_name,
            description=DESCRIPTION,
        )
        add_acker(self, settings, settings.stack_name)


def add_acker(stack: Stack, settings: StackSettings, stack_name: str) -> Acker:
    """Add the acker, its grants and its outputs to a stack.

    `stack_name` may be a token if the deployment decides on the name.
    """
    buses, bus, key = aws_events.EventBus, settings.event_bus_arn, settings.encryption_key_arn
    acker = Acker(
        stack,
        "Acker",
        settings=settings,
        service=stack_name,
        bus=buses.from_event_bus_arn(stack, "Bus", bus) if bus else None,
        encryption_key=aws_kms.Key.from_key_arn(stack, "Key", key) if key else None,
    )
    for sender in settings.sender_list:
        acker.grant_send(_principal(sender))
    acker.add_outputs(stack_name=stack_name)
    return acker


def _principal(sender: str) -> aws_iam.IPrincipal:
    if sender.isdecimal():
        return aws_iam.AccountPrincipal(sender)
    if sender.startswith("arn:"):
        return aws_iam.ArnPrincipal(sender)
    return aws_iam.ServicePrincipal(sender)
