"""The stack: an acker, what it shares with others, and its outputs."""

from __future__ import annotations

import dataclasses

from aws_cdk import Annotations, Stack, aws_ec2, aws_events, aws_iam, aws_kms
from constructs import Construct

from infra.settings import StackSettings
from xorack.cdk.acker import Acker, AckerProps
from xorack.cdk.functions import Network


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
        acker = Acker(self, "Acker", **self._props(dataclasses.replace(settings, service=service)))
        for sender in settings.sender_list:
            acker.grant_send(_principal(sender))
        acker.add_outputs(exports=settings.exports, parameters=settings.parameter_prefix)

    def _props(self, settings: StackSettings) -> AckerProps:
        props: AckerProps = {"settings": settings}
        if arn := settings.event_bus_arn:
            props["bus"] = aws_events.EventBus.from_event_bus_arn(self, "Bus", arn)
        if arn := settings.encryption_key_arn:
            props["encryption_key"] = aws_kms.Key.from_key_arn(self, "Key", arn)
        if settings.vpc_id and settings.subnet_ids:
            props["network"] = self._network(settings.vpc_id, settings.subnet_ids)
        return props

    def _network(self, vpc_id: str, subnet_ids: str) -> Network:
        # Not from a look-up, which takes credentials at synthesis. The zones serve nothing here.
        vpc = aws_ec2.Vpc.from_vpc_attributes(
            self, "Vpc", vpc_id=vpc_id, availability_zones=["unknown"]
        )
        subnets = [aws_ec2.Subnet.from_subnet_id(self, one, one) for one in subnet_ids.split(",")]
        Annotations.of(self).acknowledge_warning("@aws-cdk/aws-ec2:noSubnetRouteTableId")
        return Network(vpc=vpc, subnets=aws_ec2.SubnetSelection(subnets=subnets))


def _principal(sender: str) -> aws_iam.IPrincipal:
    if sender.isdecimal():
        return aws_iam.AccountPrincipal(sender)
    if sender.startswith("arn:"):
        return aws_iam.ArnPrincipal(sender)
    return aws_iam.ServicePrincipal(sender)
