"""Whose waiting executions the functions may resume: state machines and durable functions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from aws_cdk import Stack, aws_iam, aws_lambda
from constructs import Construct

from xorack.aws.schema import RESUME_KINDS
from xorack.cdk.permissions import acknowledge, allow, arn_of_all, combined
from xorack.cdk.settings import Settings
from xorack.cdk.validation import is_known_to_differ

ACTIONS: Final = {
    "step_functions": ("states:SendTaskFailure", "states:SendTaskSuccess"),
    "lambda": (
        "lambda:SendDurableExecutionCallbackFailure",
        "lambda:SendDurableExecutionCallbackSuccess",
    ),
}
_ANY: Final = {
    "step_functions": ("states", "stateMachine", "state_machine_arn"),
    "lambda": ("lambda", "function", "function_arn"),
}
"""Kind -> service and resource of an ARN, and the construct's attribute with it."""


def _statement(kind: str, arn: str) -> aws_iam.PolicyStatement:
    statement = allow(arn, *ACTIONS[kind])
    if kind == "lambda" and not arn.endswith("*"):
        statement.add_resources(f"{arn}:*")  # a durable execution belongs to a version
    return statement


class CallbackAccess:
    """The permission of an acker's functions to resume executions; it may grow."""

    def __init__(
        self, scope: Construct, functions: Sequence[aws_lambda.Function], settings: Settings
    ) -> None:
        self._scope, self._functions = scope, functions
        self._kinds = dict.fromkeys(RESUME_KINDS, False)
        for kind in RESUME_KINDS:
            if settings.resume in (kind, "all"):
                self._allow(kind, self._all(kind))
        self._name_kinds()

    def allow(self, waiting: Any) -> aws_iam.Grant:
        """Let the functions resume executions of a state machine or a durable function."""
        kind = "step_functions" if hasattr(waiting, "state_machine_arn") else "lambda"
        arn = getattr(waiting, _ANY[kind][2], None)
        if arn is None:
            raise TypeError(f"waiting is {waiting!r}: expected an IStateMachine or an IFunction")
        stack, env = Stack.of(self._scope), waiting.env
        for what, other, own in (
            ("account", env.account, stack.account),
            ("region", env.region, stack.region),
        ):
            if is_known_to_differ(own, other):
                raise ValueError(
                    f"grant_resume: {waiting.node.path} is in the {what} {other}, expected {own}: "
                    "its tokens are valid there only"
                )
        other_stack = Stack.of(waiting)
        is_imported = waiting.node.default_child is None
        if other_stack is stack or is_imported:
            grant = self._allow(kind, arn)
        else:
            grant = self._allow_from(other_stack, kind, arn)
        self._name_kinds()
        return grant

    def _allow_from(self, stack: Stack, kind: str, arn: str) -> aws_iam.Grant:
        """Add the permission in the stack of the execution, which then depends on the acker's.

        In a policy of the acker's stack, its ARN would make both stacks depend on each other if
        the execution also sends requests.
        """
        self._kinds[kind] = True
        statement, grants = _statement(kind, arn), []
        scope = Construct(stack, f"ResumedBy{self._scope.node.addr}{len(stack.node.children)}")
        for name, function in zip(("Consumer", "Sweeper"), self._functions, strict=True):
            own: Any = function.role
            # Imported by its name, since the function's role takes no other policies.
            role = aws_iam.Role.from_role_name(scope, name, own.role_name)
            grant = aws_iam.Grant.add_to_principal(
                grantee=role, actions=statement.actions, resource_arns=statement.resources
            )
            grants.append(grant)
        return combined(grants)

    def _allow(self, kind: str, arn: str) -> aws_iam.Grant:
        self._kinds[kind] = True
        statement = _statement(kind, arn)
        roles: list[Any] = [function.role for function in self._functions]
        return combined(role.accept(statement) for role in roles)

    def _name_kinds(self) -> None:
        kinds = [kind for kind, is_allowed in self._kinds.items() if is_allowed]
        for function in self._functions:
            function.add_environment("RESUME", ",".join(kinds))

    def _all(self, kind: str) -> str:
        service, resource, _ = _ANY[kind]
        arn = arn_of_all(self._scope, service, resource)
        # cdk-nag prints ``${Token[AWS.Region.13]}`` as ``<AWS::Region>``.
        printed = re.sub(r"\$\{Token\[AWS\.(\w+)\.\d+\]\}", r"<AWS::\1>", arn)
        reason = f"The setting resume asks for each {resource} of the account"
        acknowledge(self._scope, f"AwsSolutions-IAM5[Resource::{printed}]", reason)
        return arn
