"""The event bus, and rules on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aws_cdk import Stack, aws_dynamodb, aws_events
from constructs import Construct

from xorack.cdk.validation import is_known_to_differ

_SOURCE: Final = "xorack"
_STATUSES: Final = ("acked", "failed")


def name_for(bus: aws_events.IEventBus, caller: Construct) -> str:
    """Return the name by which a caller reaches a bus: in another account, its ARN."""
    same_account = bus.env.account == Stack.of(caller).account
    return bus.event_bus_name if same_account else bus.event_bus_arn


class AckEvents(Construct):
    """The bus of the chains' events: a new one, or the user's.

    Attributes:
        bus: The bus.
        table: The table of the chains. Its ARN tells the events from those of other ackers.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        table: aws_dynamodb.ITable,
        bus: aws_events.IEventBus | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        self.table = table
        self.bus: aws_events.IEventBus = bus or aws_events.EventBus(
            self, "Bus", description="Chains that were acked or that failed"
        )

    def rule(
        self,
        construct_id: str,
        *,
        targets: Sequence[aws_events.IRuleTarget],
        statuses: Sequence[str] = _STATUSES,
    ) -> aws_events.Rule:
        """Send events of this acker's finished chains to targets.

        Args:
            construct_id: Id of the rule, unique on this bus.
            targets: Receivers of the events.
            statuses: `acked`, `failed` or both.

        Raises:
            ValueError: `statuses` is empty or has an unknown status, or the bus belongs to another
                account, where its rules must be created too.
        """
        if is_known_to_differ(self.bus.env.account, Stack.of(self).account):
            raise ValueError(
                f"rule: {self.bus.node.path} is a bus of account {self.bus.env.account}, expected "
                "one of this account: create the rule in the account of its bus"
            )
        if not statuses or not set(statuses) <= set(_STATUSES):
            raise ValueError(f"statuses is {list(statuses)!r}: expected some of {_STATUSES}")
        return aws_events.Rule(
            self,
            construct_id,
            event_bus=self.bus,
            event_pattern=aws_events.EventPattern(
                source=[_SOURCE], detail_type=list(statuses), resources=[self.table.table_arn]
            ),
            targets=list(targets),
        )
