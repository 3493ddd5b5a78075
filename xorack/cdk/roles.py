"""The roles of the functions: a closed role for each function, or the user's role for both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import aws_cdk as cdk
from constructs import Construct, DependencyGroup

from xorack.cdk.permissions import combined
from xorack.cdk.validation import is_immutable


class ClosedRole(cdk.aws_iam.Role):
    """A function's role with one inline policy. Once it is closed, a grant to it is an error."""

    def __init__(
        self, scope: Construct, handler: str, access: Sequence[cdk.aws_iam.PolicyStatement]
    ) -> None:
        self._access = cdk.aws_iam.PolicyDocument(statements=[*access])
        self.is_closed = False
        super().__init__(
            scope,
            "Role",
            assumed_by=cdk.aws_iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"Permissions of {handler}",
            inline_policies={"Access": self._access},
        )

    def add_to_principal_policy(
        self, statement: cdk.aws_iam.PolicyStatement
    ) -> cdk.aws_iam.AddToPrincipalPolicyResult:
        self._check(", ".join(statement.actions))
        self._access.add_statements(statement)
        return cdk.aws_iam.AddToPrincipalPolicyResult(
            statement_added=True, policy_dependable=DependencyGroup()
        )

    def attach_inline_policy(self, policy: cdk.aws_iam.Policy) -> None:
        self._check(policy.node.path)

    def add_managed_policy(self, policy: cdk.aws_iam.IManagedPolicy) -> None:
        # Before the role is closed, this policy is AWS's policy for a VPC, whose actions are
        # allowed anyway.
        if self.is_closed:
            # An aspect may have to add an organisation's policy to all roles.
            super().add_managed_policy(policy)
            cdk.Annotations.of(self).add_warning_v2(
                "xorack:managed-policy",
                f"the role {self.node.path} gets the managed policy {policy.managed_policy_arn}: "
                "acknowledge this if it only denies, or if your organisation adds it to all roles",
            )

    def _check(self, source: str) -> None:
        if self.is_closed:
            raise ValueError(
                f"{source}: the role {self.node.path} takes no further permissions, because it is "
                "reserved for xorack: grant them to a function of yours, such as a target of "
                "`events.rule`"
            )


def own_role(scope: Construct, role: cdk.aws_iam.IRole | None) -> cdk.aws_iam.IRole | None:
    """Return the user's role in the form for the functions, with its policy in the acker's stack.

    A role in another stack of the app would get a policy there. Then the two stacks would depend
    on each other.
    """
    if role is None or is_immutable(role):
        return role
    return cdk.aws_iam.Role.from_role_arn(scope, "Role", role.role_arn)


def name_policy(role: cdk.aws_iam.IRole) -> None:
    """Name the policy that the stack attaches to a role which other stacks may use, too.

    The CDK's name is the same for equal paths in two stacks. A role has only one inline policy of a
    name, so the second stack would replace the policy of the first stack.
    """
    # A closed or an immutable role has no policy of the stack. The construct id of a policy depends
    # on a feature flag of the CDK.
    for policy in role.node.children:
        if not isinstance(policy, cdk.aws_iam.Policy):
            continue
        stack_uuid = cdk.Fn.select(2, cdk.Fn.split("/", cdk.Aws.STACK_ID))
        name = cdk.Fn.join("-", ["xorack", stack_uuid, role.node.addr])
        resource: Any = policy.node.default_child
        resource.policy_name = name


def grant_to(
    roles: Sequence[cdk.aws_iam.IRole], statement: cdk.aws_iam.PolicyStatement
) -> cdk.aws_iam.Grant:
    """Add one of the acker's own permissions to roles, even to closed roles."""
    closed: Any = [role for role in roles if isinstance(role, ClosedRole)]
    for role in closed:
        role.is_closed = False
    grants = [
        cdk.aws_iam.Grant.add_to_principal(
            grantee=role, actions=statement.actions, resource_arns=statement.resources
        )
        for role in roles
    ]
    for role in closed:
        role.is_closed = True
    for role in roles:
        name_policy(role)
    return combined(grants)
