"""Events that travel by EventBridge."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from xorack.aws.client import NotTaken, make_client, send_entries
from xorack.core.chain import Chain
from xorack.core.event import SOURCE, event_detail
from xorack.core.retry import RetryPolicy

__all__ = ["EventBus"]

_ENTRIES = 10
"""Most entries of one PutEvents; an event of ours has at most some 10 KB, of 256 allowed."""


class EventBus:
    """A `xorack.core.ports.Publisher` over an EventBridge bus."""

    def __init__(
        self, bus_name: str, client: Any = None, *, policy: RetryPolicy | None = None
    ) -> None:
        """Use a bus.

        Args:
            bus_name: Its name.
            client: A boto3 EventBridge client; one of the default chain if None.
            policy: When to try again what was not accepted.
        """
        self.bus_name = bus_name
        self.client = make_client("events") if client is None else client
        self.policy = policy or RetryPolicy(attempts=5)

    def publish(self, chains: Sequence[Chain]) -> dict[str, str]:
        """See `xorack.core.ports.Publisher.publish`."""
        failures: dict[str, str] = {}
        for at in range(0, len(chains), _ENTRIES):
            failures.update(self._publish_batch(chains[at : at + _ENTRIES]))
        return failures

    def entry(self, chain: Chain) -> dict[str, Any]:
        """A chain's event as an entry of PutEvents."""
        ended = datetime.fromtimestamp((chain.ended_at or 0) / 1000, timezone.utc)
        return {
            "EventBusName": self.bus_name,
            "Source": SOURCE,
            "DetailType": chain.status,
            "Time": ended,
            "Detail": json.dumps(event_detail(chain), separators=(",", ":")),
        }

    def _publish_batch(self, chains: Sequence[Chain]) -> dict[str, str]:
        def call(left: Mapping[int, Chain]) -> dict[int, NotTaken]:
            answer = self.client.put_events(Entries=[self.entry(chain) for chain in left.values()])
            if answer.get("FailedEntryCount"):
                return {
                    position: NotTaken(f"{entry['ErrorCode']}: {entry.get('ErrorMessage')}")
                    for position, entry in zip(left, answer.get("Entries", []), strict=True)
                    if entry.get("ErrorCode")
                }
            return {}

        left = send_entries(dict(enumerate(chains)), call, self.policy)
        return {chains[position].tag: why for position, why in left.items()}
