"""Events on an EventBridge bus: a `xorack.core.ports.Publisher`."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from functools import cached_property
from typing import Any

from botocore.exceptions import ClientError

from xorack.aws.client import NotAccepted, budget_of, error_code, make_client, send_entries
from xorack.aws.naming_time import NamingTime
from xorack.aws.retry import RetryPolicy
from xorack.core.chain import Chain
from xorack.core.event import SOURCE, event_detail
from xorack.core.ports import NO_TIME, Failure

_CONTENT = {
    "InvalidArgument",
    "MalformedDetail",
    "RedactionFailure",
    "RequestEntityTooLarge",
    "ValidationError",
    "ValidationException",
}
"""Codes of errors in the content of an entry. They do not mean that the bus fails."""
_DENIED = ("AccessDenied", "AccessDeniedException")


_KNOWN_SECONDS = 60.0
"""How long a bus counts as existing after a check."""


class BusCheck:
    """Checks that a bus exists, and remembers it for a minute. Threads may share an object.

    The check is needed because PutEvents reports success and drops the event without a bus.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known_until = -math.inf

    def ensure(self, bus_name: str, client: Any) -> None:
        """Raise the ClientError of DescribeEventBus, unless the bus existed within a minute."""
        now = self._clock()
        if now < self._known_until:
            return
        try:
            client.describe_event_bus(Name=bus_name)
        except ClientError as error:
            # The bus may belong to another account, which need not allow this call. If that bus
            # does not exist, EventBridge itself refuses the events.
            if not (bus_name.startswith("arn:") and error_code(error) in _DENIED):
                raise
        self._known_until = now + _KNOWN_SECONDS


class EventBus:
    """A `xorack.core.ports.Publisher` over an EventBridge bus."""

    batch_size = 10
    """The most entries of one PutEvents. An event has at most 28 KB, and a call takes 1 MB."""

    def __init__(
        self,
        bus_name: str,
        client: Any = None,
        *,
        find_table: Callable[[], str] | None = None,
        policy: RetryPolicy | None = None,
        naming: NamingTime | None = None,
        check: BusCheck | None = None,
    ) -> None:
        """Use a bus.

        ``find_table`` returns the ARN of the chains' table, which distinguishes two ackers on one
        bus. ``naming`` limits the time for naming units; by default it uses the client's budget.
        All publishers of a process may share a ``check``.
        """
        self.bus_name = bus_name
        self.client = make_client("events") if client is None else client
        self.policy = policy or RetryPolicy(attempts=5)
        self._budget = budget_of(self.client)
        self._naming = naming or NamingTime(self._budget)
        self._find_table = find_table
        self._check = check or BusCheck()

    def publish(self, chains: Sequence[Chain]) -> dict[str, Failure]:
        by_tag = {chain.tag: chain for chain in chains}
        return send_entries(by_tag, self._put_events, self.policy, self._budget)

    @cached_property
    def _resources(self) -> list[str]:
        return [] if self._find_table is None else [self._find_table()]

    def entry(self, chain: Chain) -> dict[str, Any]:
        """Return a chain's event as an entry for PutEvents."""
        return {
            "EventBusName": self.bus_name,
            "Source": SOURCE,
            "DetailType": chain.status,
            "Resources": self._resources,
            "Time": datetime.fromtimestamp((chain.ended_at or 0) / 1000, timezone.utc),
            "Detail": json.dumps(event_detail(chain), ensure_ascii=False, separators=(",", ":")),
        }

    def _put_events(self, chains: Mapping[str, Chain]) -> dict[str, NotAccepted]:
        made = {tag: self._naming.in_time(chain, self.entry) for tag, chain in chains.items()}
        entries = {tag: entry for tag, entry in made.items() if entry is not None}
        no_time = NotAccepted(NO_TIME.reason, permanent=True, kind=NO_TIME.kind)
        unsent = {tag: no_time for tag in chains if tag not in entries}
        if not entries:
            return unsent
        self._check.ensure(self.bus_name, self.client)
        return unsent | self._put_entries(entries)

    def _put_entries(self, entries: dict[str, dict[str, Any]]) -> dict[str, NotAccepted]:
        try:
            response = self.client.put_events(Entries=list(entries.values()))
        except ClientError as error:
            if error_code(error) not in _CONTENT:
                raise
            if len(entries) == 1:
                return dict.fromkeys(entries, _failure(error_code(error), str(error)))
            # One invalid entry fails the entire call. Sending each entry alone shows which entry is
            # invalid.
            separate = [self._put_entries({tag: entry}) for tag, entry in entries.items()]
            return {tag: failure for result in separate for tag, failure in result.items()}
        if not response.get("FailedEntryCount"):
            return {}
        return {
            tag: _failure(entry["ErrorCode"], entry.get("ErrorMessage"))
            for tag, entry in zip(entries, response.get("Entries", []), strict=True)
            if entry.get("ErrorCode")
        }


def _failure(code: str, message: object) -> NotAccepted:
    refused = code in _CONTENT
    reason = f"{code}: {message}"
    return NotAccepted(reason, refused, "refused" if refused else "outage")
