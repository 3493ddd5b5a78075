"""Checks of resources that users pass (table, queues, bus, key, topic, network, grantee).

Without these checks, a mistake would show only at the deployment, or when a function's call is
denied.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aws_cdk import Annotations, CfnResource, Stack, Token, Tokenization, aws_iam, aws_kms
from constructs import Construct

# The expected type of each argument, and an attribute that only this type has.
_KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "settings": ("a Settings", "visibility_timeout_seconds"),
    "table": ("an ITable", "table_arn"),
    "queue": ("an IQueue", "queue_arn"),
    "dead_letters": ("an IQueue", "queue_arn"),
    "bus": ("an IEventBus", "event_bus_arn"),
    "encryption_key": ("an IKey", "key_arn"),
    "alarm_topic": ("an ITopic", "topic_arn"),
    "network": ("a Network", "security_groups"),
    "role": ("an IRole", "role_arn"),
    "vpc": ("an IVpc", "vpc_id"),
    "grantee": ("an IGrantable, such as a role", "grant_principal"),
}


def check_kind(name: str, value: object) -> None:
    """Raise TypeError if an argument has another type."""
    kind, attribute = _KINDS[name]
    if not hasattr(value, attribute):
        raise TypeError(f"{name} is {value!r}: expected {kind}")


_CLAIMED: Final = "UsedByAcker"
"""The id of a construct in each resource that an acker uses."""
_PLACES: Final = ("account", "region")
_OF_THE_ACCOUNT: Final = ("queue", "dead_letters", "role")
"""Arguments that must be in the stack's account. For others, alarms have no metrics of a queue, and
Lambda does not accept a role."""


def check_arguments(scope: Construct, arguments: Mapping[str, Any]) -> None:
    """Check the types, regions and accounts of an acker's arguments. None means the default."""
    stack = Stack.of(scope)
    for name, value in arguments.items():
        if value is None:
            continue
        check_kind(name, value)
        if hasattr(value, "env"):
            places = _PLACES if name in _OF_THE_ACCOUNT else ("region",)
            check_place(f"{name}: {value.node.path}", value.env, stack, places=places)
        if name == "encryption_key":
            check_key(name, value)


def check_place(
    subject: str, there: Any, here: Any, hint: str = "", places: Sequence[str] = _PLACES
) -> None:
    """Raise ValueError if `there` is known to be in another account or region than `here`."""
    for place in places:
        actual, expected = getattr(there, place), getattr(here, place)
        if None not in (actual, expected) and is_known_to_differ(actual, expected):
            raise ValueError(f"{subject} is in the {place} {actual}, expected {expected}{hint}")


def check_key(name: str, key: aws_kms.IKey) -> None:
    """Raise ValueError for an alias, because a role's statement on an alias has no effect."""
    if hasattr(key, "alias_name") or ":alias/" in key.key_arn:
        raise ValueError(
            f"{name}: {key.node.path} is an alias, expected its key (by its ARN, or "
            "`Key.from_lookup`), because a role's permission on an alias has no effect"
        )


def check_service(service: str) -> None:
    """Raise ValueError if a bus or a dashboard cannot have this name."""
    is_known = not Token.is_unresolved(service)
    if is_known and not re.fullmatch("[A-Za-z0-9_-]{1,128}", service):
        raise ValueError(
            f"service: {service!r}, expected 1 to 128 letters, digits, _ and -, because the bus "
            "and the dashboard have this name"
        )


def claim(**resources: Any) -> None:
    """Mark the resources of an acker; raise ValueError if another acker has one of them."""
    for name, resource in resources.items():
        if resource.node.try_find_child(_CLAIMED) is not None:
            raise ValueError(
                f"{name}: another acker uses {resource.node.path}: give each acker its own, "
                "because two ackers would each get a part of the contents"
            )
        Construct(resource, _CLAIMED)


def warn_if_nothing_is_attached(
    scope: Construct, grantee: aws_iam.IGrantable, action: str, arn: str
) -> None:
    """Warn of a role to which no policy can be attached, so that a grant to it has no effect.

    The CDK reports success when it extends an immutable role.
    """
    principal: Any = grantee.grant_principal
    role_arn = getattr(principal, "role_arn", None)
    if role_arn is None:
        return
    names = ("/aws-service-role/", "/aws-reserved/")
    is_fixed = not Token.is_unresolved(role_arn) and any(name in role_arn for name in names)
    if is_fixed or is_immutable(principal):
        Annotations.of(scope).add_warning_v2(
            f"xorack:nothing-attached:{principal.node.addr}",
            f"no policy can be attached to the role {principal.node.path}: allow it {action} on "
            f"{Stack.of(scope).resolve(arn)} yourself, and everything else that docs/security.md "
            "lists, then acknowledge this",
        )


def is_immutable(role: Any) -> bool:
    """Return whether a role is imported or immutable, judging by constructs that the CDK adds."""
    scope, name = role.node.scope, role.node.id
    is_import = scope is not None and scope.node.try_find_child(f"MutableRole{name}") is not None
    return is_import or name.startswith("ImmutableRole")


def is_external(grantee: aws_iam.IGrantable, account: str) -> bool:
    """Return whether a grantee is a service or in another account, as far as this is known.

    Such a grantee has no policy in this account, so only the policies of resources can give it
    permissions.
    """
    principal = grantee.grant_principal
    # A function or state machine that was imported by its ARN has an unknown principal.
    principal_account = getattr(principal, "principal_account", None)
    # A role, user or group is a construct. An ARN or an account has no policy that can be extended.
    return (
        not hasattr(principal, "node")
        or principal_account is None
        or is_known_to_differ(principal_account, account)
    )


def has_own_policy(resource: Any) -> bool:
    """Return whether the resource is in this app, so that the CDK can change its policy."""
    return isinstance(resource.node.default_child, CfnResource)


def as_text(number: float) -> str:
    """Return a number as text, even if it is known only at the deployment."""
    return Tokenization.stringify_number(number)


def is_known_to_differ(first: str, second: str) -> bool:
    """Compare accounts or regions. Return False if one of them is known only at the deployment."""
    return first != second and not (Token.is_unresolved(first) or Token.is_unresolved(second))
