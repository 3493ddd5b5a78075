"""Whose waiting executions the functions may resume: state machines and durable functions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import jsii
from aws_cdk import Annotations, Stack, aws_iam, aws_lambda
from constructs import Construct, DependencyGroup

from xorack.aws.schema import RESUME_KINDS
from xorack.cdk.permissions import acknowledge, allow, arn_of_all
from xorack.cdk.settings import Settings
from xorack.cdk.validation import is_known_to_differ

_ACTIONS: Final = {
    "step_functions": ("states:SendTaskFailure", "states:SendTaskSuccess"),
    "lambda": (
        "lambda:SendDurableExecutionCallbackFailure",
        "lambda:SendDurableExecutionCallbackSuccess",
    ),
}
_ANY: Final = {
    "step_functions": ("states", "stateMachine", "state_machine"),
    "lambda": ("lambda", "function", "function"),
}
"""Kind -> service and resource of an ARN, and the name of the construct's attribute."""


class ResumeAccess:
    """The permission of an acker's functions to resume executions; it may grow."""

    def __init__(self, scope: Construct, settings: Settings, in_network: bool) -> None:
        self._scope, self._in_network = scope, in_network
        self._arns: dict[str, list[str]] = {kind: [] for kind in RESUME_KINDS}
        self._members: list[tuple[aws_lambda.Function, aws_iam.PolicyDocument]] = []
        stack, named = Stack.of(scope), None
        for kind, arns in settings.resume_targets.items():
            self._arns[kind] += arns or [self._all(kind)]
            for arn in arns:
                region, account = arn.split(":")[3:5]
                named = named or (account, region)  # a stack may know its own at deployment only
                for here in (named, (stack.account, stack.region)):
                    _check_place("setting resume", arn, (account, region), here)

    def add_function(self, function: aws_lambda.Function, access: aws_iam.PolicyDocument) -> None:
        """Let a function resume, by its environment and the document of its role's policy."""
        self._members.append((function, access))
        for kind, arns in self._arns.items():
            for arn in arns:
                access.add_statements(_statement(kind, arn))
        self._name_kinds(function)

    def allow(self, waiting: Any) -> aws_iam.Grant:
        """Let the functions resume executions of a state machine or a durable function."""
        kind = "step_functions" if hasattr(waiting, "state_machine_arn") else "lambda"
        arn = getattr(waiting, f"{_ANY[kind][2]}_arn", None)
        if arn is None:
            raise TypeError(f"waiting is {waiting!r}: expected an IStateMachine or an IFunction")
        stack, there = Stack.of(self._scope), (waiting.env.account, waiting.env.region)
        here = stack.account, stack.region
        _check_place("grant_resume", waiting.node.path, there, here)
        self._arns[kind].append(arn)
        statement = _statement(kind, arn)
        for function, _ in self._members:
            self._name_kinds(function)
        return aws_iam.Grant.add_to_principal(
            grantee=_Functions([access for _, access in self._members]),
            actions=statement.actions,
            resource_arns=statement.resources,
        )

    def _name_kinds(self, function: aws_lambda.Function) -> None:
        kinds = [kind for kind, arns in self._arns.items() if arns]
        function.add_environment("RESUME", ",".join(kinds))
        if kinds and self._in_network:
            services = ", ".join(sorted({_ANY[kind][0] for kind in kinds}))
            Annotations.of(self._scope).add_warning_v2(
                "xorack:resume-network",
                f"the network must lead to the services that resume executions: {services}",
            )

    def _all(self, kind: str) -> str:
        service, resource, _ = _ANY[kind]
        arn = arn_of_all(self._scope, service, resource)
        # cdk-nag prints ``${Token[AWS.Region.13]}`` as ``<AWS::Region>``.
        printed = re.sub(r"\$\{Token\[AWS\.(\w+)\.\d+\]\}", r"<AWS::\1>", arn)
        reason = f"The setting resume asks for each {resource} of the account"
        acknowledge(self._scope, f"AwsSolutions-IAM5[Resource::{printed}]", reason)
        return arn


@jsii.implements(aws_iam.IPrincipal)
class _Functions:
    """The roles of the functions as one grantee: a grant goes to their inline policies."""

    assume_role_action = "sts:AssumeRole"
    principal_account = None

    def __init__(self, policies: Sequence[aws_iam.PolicyDocument]) -> None:
        self._policies = policies

    @property
    def grant_principal(self) -> aws_iam.IPrincipal:
        return self

    @property
    def policy_fragment(self) -> aws_iam.PrincipalPolicyFragment:
        return aws_iam.ServicePrincipal("lambda.amazonaws.com").policy_fragment

    def add_to_principal_policy(
        self, statement: aws_iam.PolicyStatement
    ) -> aws_iam.AddToPrincipalPolicyResult:
        for policy in self._policies:
            policy.add_statements(statement.copy())
        # No resource holds these statements but the roles themselves.
        return aws_iam.AddToPrincipalPolicyResult(
            statement_added=True, policy_dependable=DependencyGroup()
        )


def _check_place(source: str, name: str, there: tuple[str, str], here: tuple[str, str]) -> None:
    """Raise ValueError if somebody waits in another account or region, as far as known."""
    for what, other, own in zip(("account", "region"), there, here, strict=True):
        if is_known_to_differ(own, other):
            raise ValueError(
                f"{source}: {name} is in the {what} {other}, expected {own}: its tokens are valid "
                "there only"
            )


def _statement(kind: str, arn: str) -> aws_iam.PolicyStatement:
    statement = allow(arn, *_ACTIONS[kind])
    if kind == "lambda" and not arn.endswith("*"):
        statement.add_resources(f"{arn}:*")  # a durable execution belongs to a version
    return statement
