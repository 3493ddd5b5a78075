"""Events on an EventBridge bus: a `xorack.core.ports.Publisher`."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from functools import cached_property
from typing import Any

from botocore.exceptions import ClientError

from xorack.aws.client import NotAccepted, budget_of, error_code, make_client, send_entries
from xorack.aws.retry import RetryPolicy
from xorack.core.chain import Chain
from xorack.core.delivery import Refusal
from xorack.core.errors import UnavailableError
from xorack.core.event import SOURCE, event_detail
from xorack.core.ports import NO_TIME

__all__ = ["EventBus"]

_CONTENT = frozenset(
    {
        "InvalidArgument",
        "MalformedDetail",
        "RedactionFailure",
        "RequestEntityTooLarge",
        "ValidationError",
        "ValidationException",
    }
)
"""The codes that are about what an entry contains, and not about the bus."""
_NAMING_SHARE = 0.25
"""Share of an invocation's time in which events of failed chains are made. Senders may choose ids
whose names take long to read out of a stamp; the next sweep goes on with them."""


class EventBus:
    """A `xorack.core.ports.Publisher` over an EventBridge bus."""

    batch_size = 10
    """Most entries of one PutEvents. An event has at most some 28 KB of the 1 MB of a call."""

    def __init__(
        self,
        bus_name: str,
        client: Any = None,
        *,
        find_table: Callable[[], str] | None = None,
        policy: RetryPolicy | None = None,
    ) -> None:
        """Use a bus.

        Args:
            bus_name: The name of the bus.
            client: A boto3 EventBridge client; by default one of the default credential chain.
            find_table: Returns the ARN of the chains' table, by which two ackers on one bus are
                told apart. By default the events do not name it.
            policy: The limits of retries for entries that were not accepted.
        """
        self.bus_name = bus_name
        self.client = make_client("events") if client is None else client
        self.policy = policy or RetryPolicy(attempts=5)
        self._budget = budget_of(self.client)
        self._find_table = find_table
        self._naming = threading.Lock()

    def publish(self, chains: Sequence[Chain]) -> dict[str, str]:
        """See `xorack.core.ports.Publisher.publish`."""
        left = send_entries(dict(enumerate(chains)), self._put_events, self.policy, self._budget)
        return {chains[position].tag: reason for position, reason in left.items()}

    @cached_property
    def _resources(self) -> list[str]:
        return [] if self._find_table is None else [self._find_table()]

    def entry(self, chain: Chain) -> dict[str, Any]:
        """Return a chain's event as an entry of PutEvents."""
        return {
            "EventBusName": self.bus_name,
            "Source": SOURCE,
            "DetailType": chain.status,
            "Resources": self._resources,
            "Time": datetime.fromtimestamp((chain.ended_at or 0) / 1000, timezone.utc),
            "Detail": json.dumps(event_detail(chain), ensure_ascii=False, separators=(",", ":")),
        }

    @cached_property
    def _naming_seconds(self) -> float:
        return _NAMING_SHARE * self._budget.left()

    def _entry_in_time(self, chain: Chain) -> dict[str, Any] | None:
        """Return a chain's entry; None if there is no time to make it."""
        if chain.status != "failed":
            return self.entry(chain) if self._budget.left() > 0 else None
        # One at a time: threads that compute do not speed each other up, and the time adds up.
        with self._naming:
            left = self._budget.left()
            if left <= 0 or self._naming_seconds <= 0:
                return None
            entry = self.entry(chain)
            self._naming_seconds -= left - self._budget.left()
            return entry

    def _put_events(self, chains: Mapping[int, Chain]) -> dict[int, NotAccepted]:
        entries: dict[int, dict[str, Any]] = {}
        for position, chain in chains.items():
            if entry := self._entry_in_time(chain):
                entries[position] = entry
        if not entries:
            raise UnavailableError(TimeoutError(NO_TIME))
        unsent = {position: NotAccepted(NO_TIME) for position in chains if position not in entries}
        return unsent | self._put_entries(entries)

    def _put_entries(self, entries: dict[int, dict[str, Any]]) -> dict[int, NotAccepted]:
        try:
            response = self.client.put_events(Entries=list(entries.values()))
        except ClientError as error:
            if error_code(error) not in _CONTENT:
                raise
            if len(entries) == 1:
                return dict.fromkeys(entries, _failure(error_code(error), str(error)))
            # One entry fails the whole call: find it.
            alone = [self._put_entries({position: entry}) for position, entry in entries.items()]
            return {position: failure for one in alone for position, failure in one.items()}
        if not response.get("FailedEntryCount"):
            return {}
        return {
            position: _failure(entry["ErrorCode"], entry.get("ErrorMessage"))
            for position, entry in zip(entries, response.get("Entries", []), strict=True)
            if entry.get("ErrorCode")
        }


def _failure(code: str, message: object) -> NotAccepted:
    refused = code in _CONTENT
    reason = f"{code}: {message}"
    return NotAccepted(Refusal(reason) if refused else reason, permanent=refused)
