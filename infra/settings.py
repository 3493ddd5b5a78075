"""Settings of this repository's stack, besides those of its acker."""

from __future__ import annotations

from dataclasses import dataclass

from xorack.cdk.settings import Settings, flag, text

_STACK_NAME = "[A-Za-z][A-Za-z0-9-]{0,127}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSettings(Settings):
    """Settings of the standalone stack.

    Attributes:
        stack_name: Name of the stack; two stacks share nothing.
        termination_protection: CloudFormation rejects deletion of the stack.
    """

    stack_name: str = text(
        "xorack", _STACK_NAME, "1 to 128 letters, digits and hyphens, a letter first"
    )
    termination_protection: bool = flag(False)
