"""The functions' network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import aws_cdk as cdk
from constructs import Construct

from xorack.cdk.permissions import allow
from xorack.cdk.validation import check_kind

_NETWORK_ACTIONS: Final = (
    *("AssignPrivateIpAddresses", "CreateNetworkInterface", "DeleteNetworkInterface"),
    *("DescribeNetworkInterfaces", "DescribeSecurityGroups", "DescribeSubnets", "DescribeVpcs"),
    "UnassignPrivateIpAddresses",
)


@dataclass(frozen=True, kw_only=True)
class Network:
    """A VPC for the functions.

    It must have routes to DynamoDB, SQS and EventBridge, by endpoints or a NAT gateway. The
    endpoints are `dynamodb` as a gateway, and `sqs` and `events` as interfaces with private DNS.
    Lambda polls the queue and sends logs and traces from outside the network.

    Attributes:
        vpc: The VPC.
        subnets: The subnets of the VPC for the functions. By default, the private subnets.
        security_groups: Security groups of the functions. By default, each function has a new group
            that allows only HTTPS, to all addresses.
    """

    vpc: cdk.aws_ec2.IVpc
    subnets: cdk.aws_ec2.SubnetSelection | None = None
    security_groups: Sequence[cdk.aws_ec2.ISecurityGroup] = ()

    def __post_init__(self) -> None:
        check_kind("vpc", self.vpc)

    def options(self, scope: Construct) -> dict[str, Any]:
        """Return the arguments for a function in this network."""
        groups = list(self.security_groups)
        if not groups:
            group = cdk.aws_ec2.SecurityGroup(
                scope,
                "SecurityGroup",
                vpc=self.vpc,
                description="Calls of a function of xorack: HTTPS to DynamoDB, SQS and EventBridge",
                allow_all_outbound=False,
            )
            group.add_egress_rule(cdk.aws_ec2.Peer.any_ipv4(), cdk.aws_ec2.Port.HTTPS)
            groups = [group]
        return {"vpc": self.vpc, "vpc_subnets": self.subnets, "security_groups": groups}


def join_network() -> list[cdk.aws_iam.PolicyStatement]:
    """Allow Lambda to join a network with a function's role, but deny it to the function's code."""
    actions = [f"ec2:{action}" for action in _NETWORK_ACTIONS]
    # Calls by the function's code have this key, and calls by Lambda do not have it.
    code = {"Null": {"lambda:SourceFunctionArn": "false"}}
    denied = allow("*", *actions, effect=cdk.aws_iam.Effect.DENY, conditions=code)
    return [allow("*", *actions), denied]
