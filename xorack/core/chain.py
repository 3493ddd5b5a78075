"""A chain: the state of all units that descend from one root unit. An immutable value."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from xorack.core.marks import INLINE_MARKS, MARK_BYTES

__all__ = ["NEVER_CREATED", "TIMED_OUT", "Chain", "Status"]

Status = Literal["pending", "open", "acked", "failed"]

TIMED_OUT = "timed out"
NEVER_CREATED = "never created"


@dataclass(frozen=True, slots=True)
class Chain:
    """The state of a chain. Times are milliseconds since the epoch, durations milliseconds.

    Attributes:
        tag: The name.
        stamp: XOR of all stamps so far; empty before the first.
        status: ``pending`` (not created yet), ``open``, ``acked`` or ``failed``.
        started: Units started; 0 if senders do not report counts.
        finished: Units finished; likewise.
        version: Number of writes by xorack; 0 for an item of xor-ack-dynamodb.
        first_seen_at: Time of the first write. It tells a chain from an earlier one of its tag.
        created_at: Time of the create. None: no create yet, or another program created the chain.
        last_stamp_at: Time of the last stamp.
        ended_at: Time of the end, ``acked`` or ``failed``.
        deadline: Time at which the chain times out. None for never.
        idle_timeout: Longest time without a stamp. None for no limit.
        due_at: Time at which the sweeper must look at the chain, at or before the deadline. It does
            not follow every stamp: each change costs an index write.
        detail: JSON text from the create, for the events.
        failing: Reason of a ``fail`` that came before the create.
        reason: Reason of the failure.
        marks: Marks of the latest applied requests, 16 bytes each, oldest first.
        spilled: Number of marks that were spilled.
        event_pending: True if the event may still have to be published.
        extended: True if an ``extend`` was applied: it overrides the create's timeout.
    """

    tag: str
    stamp: bytes = b""
    status: Status = "pending"
    started: int = 0
    finished: int = 0
    version: int = 0
    first_seen_at: int | None = None
    created_at: int | None = None
    last_stamp_at: int | None = None
    ended_at: int | None = None
    deadline: int | None = None
    idle_timeout: int | None = None
    due_at: int | None = None
    detail: str | None = None
    failing: str | None = None
    reason: str | None = None
    marks: bytes = field(default=b"", repr=False)
    spilled: int = 0
    event_pending: bool = False
    extended: bool = False

    @property
    def final(self) -> bool:
        """True if the chain is ``acked`` or ``failed``: nothing changes it any more."""
        return self.status in ("acked", "failed")

    @property
    def created(self) -> bool:
        """True if the create was applied. Senders may give any reason, `NEVER_CREATED` too."""
        if self.created_at is not None:
            return True
        return self.status != "pending" and self.reason != NEVER_CREATED

    @property
    def effective_deadline(self) -> int | None:
        """Time at which an unfinished chain fails if no request comes; None for never."""
        times = [self.deadline]
        if self.idle_timeout is not None and self.last_stamp_at is not None:
            times.append(self.last_stamp_at + self.idle_timeout)
        return min((time for time in times if time is not None), default=None)

    def overflow(self, incoming: int) -> bytes:
        """Return the marks to spill before ``incoming`` requests are applied; mostly none.

        All inline marks are spilled, not just the excess: the next overflow is then
        ``INLINE_MARKS`` requests away.
        """
        inline = len(self.marks) // MARK_BYTES
        return self.marks if inline + incoming > INLINE_MARKS else b""

    def without_marks(self, spilled: bytes) -> Chain:
        """Return the chain without the marks at the head of its list, which were spilled."""
        count = len(spilled) // MARK_BYTES
        return replace(self, marks=self.marks[len(spilled) :], spilled=self.spilled + count)
