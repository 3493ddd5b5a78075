"""What somebody brings to an acker: of the right kind, and where it can be used.

What is wrong with it would otherwise show when it is deployed, or when a function is denied a call.
"""

from __future__ import annotations

from typing import Any

from aws_cdk import Stack, Token, aws_iam, aws_kms
from constructs import Construct


def check_kind(name: str, value: object, attribute: str, kind: str) -> None:
    """Refuse what is of another kind.

    Args:
        name: What it is called.
        value: What was given; None is as good as nothing.
        attribute: What all of the kind have, and nothing else.
        kind: What was expected, in words.

    Raises:
        TypeError: It is something else.
    """
    if value is not None and not hasattr(value, attribute):
        raise TypeError(f"{name} is {value!r}: expected {kind}")


def check_region(name: str, resource: Any, scope: Construct) -> None:
    """Refuse what is in another region, as far as regions are known before the deployment.

    Args:
        name: What it is called.
        resource: What was given; None is as good as nothing.
        scope: Who is to use it.

    Raises:
        ValueError: It is elsewhere.
    """
    if resource is None:
        return
    here, there = Stack.of(scope).region, resource.env.region
    if known_to_differ(here, there):
        raise ValueError(f"{name}: {resource.node.path} is in {there}, expected {here}")


def check_key(name: str, key: aws_kms.IKey | None) -> None:
    """Refuse an alias: a role's statement on one allows nothing.

    Args:
        name: What it is called.
        key: What was given; None is as good as nothing.

    Raises:
        ValueError: It is an alias.
    """
    if key is not None and hasattr(key, "alias_name"):
        raise ValueError(
            f"{name}: {key.node.path} is an alias, expected the key that it stands for (by its "
            "ARN, or `Key.from_lookup`): a role cannot be allowed an alias"
        )


def check_grantee(grantee: object) -> None:
    """Refuse what no right can be given to.

    Args:
        grantee: What was given.

    Raises:
        TypeError: It is no grantee.
    """
    if not hasattr(grantee, "grant_principal"):
        raise TypeError(f"grantee is {grantee!r}: expected an IGrantable, such as a role")


def who(grantee: aws_iam.IGrantable) -> str:
    """Somebody, in words.

    Args:
        grantee: Who.
    """
    for name in ("service", "arn"):  # of principals that are no constructs
        if hasattr(grantee, name):
            return str(getattr(grantee, name))
    node = getattr(grantee, "node", None)
    return type(grantee).__name__ if node is None else str(node.path)


def from_outside(grantee: aws_iam.IGrantable, account: str) -> bool:
    """Whether somebody has no policy in an account that a right could be added to.

    Args:
        grantee: Who.
        account: The account.

    Returns:
        True for a service, and for whoever is known to be of another account.
    """
    theirs = grantee.grant_principal.principal_account
    return theirs is None or known_to_differ(theirs, account)


def known_to_differ(one: str, other: str) -> bool:
    """Whether two accounts, or regions, differ for sure: some are known at the deployment only.

    Args:
        one: An account or region.
        other: Another.
    """
    return one != other and not Token.is_unresolved(one) and not Token.is_unresolved(other)
