"""The status of chains: reading it, listing it, and ending a chain by hand."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from xorack.core.chain import EVENT, Chain
from xorack.core.clock import milliseconds
from xorack.core.errors import TagNotFound
from xorack.core.event import outstanding_of, rfc3339
from xorack.core.ports import ChainStore, Publisher
from xorack.core.request import Request, validate_tag
from xorack.core.stamp import TRACED_LENGTHS

if TYPE_CHECKING:
    from xorack.aws.dynamodb_store import DynamoDBStore
    from xorack.core.peeling import Outstanding

__all__ = ["SOON_MS", "STATUSES", "ChainStatus", "fail_chain", "read_status"]

STATUSES = ("pending", "open", "acked", "failed")
SOON_MS = 600_000
"""A deadline within this time is soon."""


@dataclass(frozen=True)
class ChainStatus:
    """The status of a chain at the moment `now`. Times are milliseconds since 1970."""

    chain: Chain
    now: int

    @property
    def percent(self) -> float | None:
        """Finished of started units, 0 to 100; None if the senders report no counts."""
        chain = self.chain
        if chain.status == "acked":
            return 100.0
        if chain.started <= 0:
            return None
        # Rounded down: only an acked chain is at 100 %. The finished may outnumber the started
        # while messages overtake each other.
        return min(chain.finished * 1000 // chain.started, 999) / 10

    @property
    def age_ms(self) -> int | None:
        """Milliseconds from the create, or else the first request, to the end or to now."""
        chain = self.chain
        begin = chain.first_seen_at if chain.created_at is None else chain.created_at
        return None if begin is None else max(0, (chain.ended_at or self.now) - begin)

    @property
    def deadline(self) -> int | None:
        """Time of failure by the timeout or the idle timeout; None: never, or it has ended."""
        return None if self.chain.final else self.chain.effective_deadline

    @property
    def urgency(self) -> Literal["ok", "soon", "late"]:
        """The distance of the deadline; ``soon`` is within `SOON_MS`."""
        if self.deadline is None or self.deadline > self.now + SOON_MS:
            return "ok"
        return "soon" if self.deadline > self.now else "late"

    @property
    def reason(self) -> str | None:
        """Why the chain failed, or will fail once it is created."""
        return self.chain.reason or self.chain.failing

    @cached_property
    def _peeled(self) -> Outstanding:
        return outstanding_of(self.chain)

    @property
    def outstanding(self) -> list[int]:
        """The ids of the outstanding units that the stamp reveals, in order."""
        return sorted(self._peeled.ids)

    @property
    def outstanding_complete(self) -> bool:
        """True if `outstanding` has all outstanding units."""
        return self._peeled.complete

    @property
    def outstanding_note(self) -> str:
        """A text on the outstanding units that are not named; empty if all are."""
        if self.outstanding_complete:
            return ""
        left = self.chain.started - self.chain.finished
        if self._peeled.ids:
            return f"and more: {left:,} units in all" if left > 0 else "and more"
        count = f"{left:,} units" if left > 0 else "some units"
        too_many = len(self.chain.stamp) in TRACED_LENGTHS and left > 1
        return f"{count}, " + ("too many to name" if too_many else "this stamp names none")

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that `xorack show --json` prints."""
        chain = self.chain
        return {
            "tag": chain.tag,
            "status": chain.status,
            "percent": self.percent,
            "started": chain.started,
            "finished": chain.finished,
            "created_at": rfc3339(chain.created_at),
            "last_stamp_at": rfc3339(chain.last_stamp_at),
            "ended_at": rfc3339(chain.ended_at),
            "age_seconds": None if self.age_ms is None else self.age_ms / 1000,
            "deadline": rfc3339(self.deadline),
            "reason": self.reason,
            "event_pending": chain.event_pending,
            "resume": next(iter(json.loads(chain.resume or "{}")), None),
            "resume_pending": chain.resume_pending,
            "outstanding": [f"{unit:016x}" for unit in self.outstanding],
            "outstanding_complete": self.outstanding_complete,
            "stamp_bytes": len(chain.stamp),
        }


def read_status(store: ChainStore, tag: str) -> ChainStatus:
    """Read the status of one chain, consistently.

    Raises:
        InvalidRequest: The tag is invalid.
        NotAChain: The item under this tag is not a chain.
        TagNotFound: The chain does not exist.
        Unavailable: Try again.
    """
    chain = store.read([validate_tag(tag)]).get(tag)
    if chain is None:
        raise TagNotFound(tag)
    return ChainStatus(chain, milliseconds())


def fail_chain(
    store: DynamoDBStore, tag: str, reason: str, publisher: Publisher | None
) -> tuple[ChainStatus, bool]:
    """End a chain as failed, for a reason of at most 1,024 bytes, and publish its event.

    Without a publisher, or if it cannot be reached, the event stays pending: the stack's sweeper
    publishes it within some minutes.

    Returns:
        The status afterwards; True if this call ended the chain or marked it as failing.

    Raises:
        InvalidRequest: The tag or the reason is invalid.
        TagNotFound: The chain does not exist.
        StaleLocalData: Others kept writing the chain until the retries were spent.
    """
    # Read-only callers, such as the dashboard's widget, do not load these.
    from xorack.acker.chain_writer import ChainWriter
    from xorack.acker.outbox import Outbox
    from xorack.core.transitions import Limits

    writer = ChainWriter(store, limits=Limits(retention=store.retention))
    request = Request("fail", tag, f"fail-{uuid.uuid4().hex}", reason=reason)
    chain, (outcome,) = writer.apply(tag, [request], must_exist=True)
    if chain is None:
        raise TagNotFound(tag)
    if outcome.error is not None:
        raise outcome.error
    if chain.event_pending and publisher is not None:
        Outbox(writer, {EVENT: publisher}).publish([chain])
        chain = store.read([tag]).get(tag, chain)
    return ChainStatus(chain, milliseconds()), outcome.kind == "applied"
