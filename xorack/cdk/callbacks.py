"""The permission to complete callbacks, which the acker's functions need."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from aws_cdk import Stack, aws_iam
from constructs import Construct

from xorack.cdk.permissions import acknowledge, allow, arn_of_all
from xorack.cdk.validation import check_place


class _Kind(NamedTuple):
    """A kind of callback: the actions that complete it, and the type of the waiting resource."""

    actions: tuple[str, str]
    service: str
    resource: str
    attribute: str


KINDS: Final = {
    "step_functions": _Kind(
        ("states:SendTaskFailure", "states:SendTaskSuccess"),
        *("states", "stateMachine", "state_machine_arn"),
    ),
    "lambda": _Kind(
        (
            "lambda:SendDurableExecutionCallbackFailure",
            "lambda:SendDurableExecutionCallbackSuccess",
        ),
        *("lambda", "function", "function_arn"),
    ),
}


def kind_of(acker: Construct, place: Any, waiting: Any) -> str:
    """Return the kind of an execution's callbacks, or raise an error.

    `place` has the account and the region of an imported acker, as far as they are known.
    """
    kind = next((name for name, each in KINDS.items() if hasattr(waiting, each.attribute)), None)
    if kind is None:
        raise TypeError(f"waiting is {waiting!r}: expected an IStateMachine or an IFunction")
    for here in (place or Stack.of(acker), Stack.of(acker)):
        hint = ", because its tokens are valid only there"
        check_place(f"grant_resume: {waiting.node.path}", waiting.env, here, hint)
    return kind


def statement_of(kind: str, waiting: Any) -> aws_iam.PolicyStatement:
    arn = getattr(waiting, KINDS[kind].attribute)
    statement = allow(arn, *KINDS[kind].actions)
    if kind == "lambda":
        statement.add_resources(f"{arn}:*")  # a durable execution belongs to a version
    return statement


def statement_of_all(scope: Construct, kind: str) -> aws_iam.PolicyStatement:
    """Return a statement that permits all callbacks of a kind in the account and region."""
    actions, service, resource, _ = KINDS[kind]
    arn = arn_of_all(scope, service, resource)
    # cdk-nag prints ``${Token[AWS.Region.13]}`` as ``<AWS::Region>``.
    printed = re.sub(r"\$\{Token\[AWS\.(\w+)\.\d+\]\}", r"<AWS::\1>", arn)
    reason = f"The setting resume asks for each {resource} of the account"
    acknowledge(scope, f"AwsSolutions-IAM5[Resource::{printed}]", reason)
    return allow(arn, *actions)
