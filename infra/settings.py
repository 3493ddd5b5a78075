"""The settings of this repository's stack, in addition to the settings of its acker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from xorack.cdk.settings import Settings, text

_STACK_NAME: Final = "[A-Za-z][A-Za-z0-9-]{0,127}"
_SENDER: Final = (
    r"\d{12}|arn:aws[a-z-]*:iam::\d{12}:(role|user)/[\w+=,.@/-]+|[a-z0-9.-]+\.amazonaws\.com"
)
_BUS: Final = r"arn:aws[a-z-]*:events:[a-z0-9-]+:\d{12}:event-bus/[\w./-]{1,256}"
_KEY: Final = (
    r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/"
    "(mrk-[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSettings(Settings):
    """The settings of the standalone stack.

    Attributes:
        stack_name: The name of the stack. Two stacks share nothing.
        senders: Principals that may send, separated by commas: account numbers, ARNs of roles and
            users, services. Principals of this account need only a policy of their own.
        event_bus_arn: The ARN of the bus for events. By default, the stack creates a bus.
        encryption_key_arn: The ARN of the key for the table, the queues, the logs and environments.
    """

    stack_name: str = text(
        "xorack", _STACK_NAME, "1 to 128 letters, digits and hyphens, a letter first"
    )
    senders: str | None = text(
        None,
        f"({_SENDER})(,({_SENDER}))*",
        "accounts (12 digits), ARNs of roles or users, services such as events.amazonaws.com, "
        "separated by commas",
    )
    event_bus_arn: str | None = text(None, _BUS, "the ARN of an event bus")
    encryption_key_arn: str | None = text(None, _KEY, "the ARN of a KMS key, not of an alias")

    @property
    def sender_list(self) -> list[str]:
        return self.senders.split(",") if self.senders else []
