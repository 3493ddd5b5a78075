"""The network of the functions."""

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

    It must lead to DynamoDB, SQS and EventBridge: by endpoints (`dynamodb` as a gateway, `sqs` and
    `events` as interfaces with private DNS) or by a NAT gateway. Lambda polls the queue and sends
    logs and traces outside of it.

    Attributes:
        vpc: The VPC.
        subnets: Its subnets for the functions; the private ones by default.
        security_groups: Security groups of the functions; by default each function has a new one
            that allows HTTPS to all addresses, and nothing else.
    """

    vpc: cdk.aws_ec2.IVpc
    subnets: cdk.aws_ec2.SubnetSelection | None = None
    security_groups: Sequence[cdk.aws_ec2.ISecurityGroup] = ()

    def __post_init__(self) -> None:
        check_kind("vpc", self.vpc)

    def options(self, scope: Construct) -> dict[str, Any]:
        """Return the arguments of a function in the network."""
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
    """Allow Lambda to join a network with a function's role, and deny it the function's code."""
    actions = [f"ec2:{action}" for action in _NETWORK_ACTIONS]
    # Calls of the code have this key, calls of Lambda have not.
    code = {"Null": {"lambda:SourceFunctionArn": "false"}}
    denied = allow("*", *actions, effect=cdk.aws_iam.Effect.DENY, conditions=code)
    return [allow("*", *actions), denied]
