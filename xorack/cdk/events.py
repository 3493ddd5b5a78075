"""The bus on which a chain's end is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aws_cdk import Stack, aws_events
from constructs import Construct

from xorack.cdk.validation import known_to_differ

SOURCE: Final = "xorack"
STATUSES: Final = ("acked", "failed")


class AckEvents(Construct):
    """The bus: one of its own, so that subscribers and permissions concern chains alone, or yours.

    Rules tell the events by their `source`, so that they may share a bus with others.

    Attributes:
        bus: The bus.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, bus: aws_events.IEventBus | None = None
    ) -> None:
        super().__init__(scope, construct_id)
        self.bus: aws_events.IEventBus = bus or aws_events.EventBus(
            self, "Bus", description="Chains that were acked or that failed"
        )

    def rule(
        self,
        construct_id: str,
        *,
        targets: Sequence[aws_events.IRuleTarget],
        statuses: Sequence[str] = STATUSES,
    ) -> aws_events.Rule:
        """Subscribe targets to the ends of chains.

        Args:
            construct_id: The rule's id among the rules of this bus.
            targets: Who is told.
            statuses: Which ends: `acked`, `failed` or both.

        Returns:
            The rule.

        Raises:
            ValueError: A status is neither `acked` nor `failed`, or there is none; or the bus is
                another account's, which alone can make rules on it.
        """
        if known_to_differ(self.bus.env.account, Stack.of(self).account):
            raise ValueError(
                f"rule: {self.bus.node.path} is a bus of account {self.bus.env.account}, expected "
                "one of this account: a rule has to be made in the account of its bus"
            )
        if not statuses or not set(statuses) <= set(STATUSES):
            raise ValueError(f"statuses is {list(statuses)!r}: expected some of {STATUSES}")
        return aws_events.Rule(
            self,
            construct_id,
            event_bus=self.bus,
            event_pattern=aws_events.EventPattern(source=[SOURCE], detail_type=list(statuses)),
            targets=list(targets),
        )
