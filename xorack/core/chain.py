"""A chain: the state of all units that descend from one root unit. An immutable value."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Literal

Status = Literal["pending", "open", "acked", "failed"]

TIMED_OUT = "timed out"
NEVER_CREATED = "never created"
EVENT = "event"
"""The channel of events."""
END_OF_TIME = 253_402_300_799_999
"""The end of the year 9999, in milliseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The state of a chain. Times are milliseconds since the epoch, durations milliseconds.

    Attributes, as far as their names do not say it:
        stamp: XOR of all stamps so far; empty before the first.
        status: ``pending`` is not created yet.
        started, finished: Units; 0 if senders do not report counts.
        version: Number of writes by xorack; 0 for an item of xor-ack-dynamodb.
        first_seen_at: Time of the first write. None for an item of xor-ack-dynamodb.
        nonce: 32 random bits of the first write. None for a chain that older code started.
        created_at: Time of the create. None: no create yet, or another program created the chain.
        deadline: Time at which the chain times out once it is created. None for never.
        pending_deadline: Time at which the chain fails if its create has not come. None for never,
            and once the create has come.
        idle_timeout: Longest time without a stamp. None for no limit.
        tolerated_units: Most outstanding units with which the chain is acked at its deadline.
        due_at: Time at which the sweeper must look at the chain, at or before the deadline. It does
            not follow every stamp: each change costs an index write.
        detail: JSON text from the create, for the events.
        resume: JSON text from the create: the callback's kind and token. None once it was sent or
            given up: a token is a secret.
        resume_sent_at: Time when the create that names who waits was sent.
        note: JSON text of what a sender found out: ``text``, ``missing``, ``missing_count``.
        failing: Reason of a ``fail`` that came before the create.
        marks: Marks of the latest applied requests, 16 bytes each, oldest first.
        spilled: Number of marks that were spilled, all kept until ``marks_until``.
        event_pending, resume_pending: The report may still have to be made.
        refused_at: Time at which a service first refused the event or the callback.
        refused: JSON text of what a service refuses: see `refusals`.
        resume_failed: Reason of the last refusal, once a day of refusals has ended the attempts.
        extended: True if an ``extend`` was applied: it overrides the create's timeout.
        repeated, late: Creates of the same content, and late requests, that came after the end.
        last_late_at: Time at which something came after the end last: it prolongs the tombstone.
    """

    tag: str
    stamp: bytes = b""
    status: Status = "pending"
    started: int = 0
    finished: int = 0
    version: int = 0
    first_seen_at: int | None = None
    nonce: int | None = None
    created_at: int | None = None
    last_stamp_at: int | None = None
    ended_at: int | None = None
    deadline: int | None = None
    pending_deadline: int | None = None
    idle_timeout: int | None = None
    tolerated_units: int = 0
    due_at: int | None = None
    detail: str | None = None
    resume: str | None = field(default=None, repr=False)
    resume_sent_at: int | None = None
    note: str | None = None
    failing: str | None = None
    reason: str | None = None
    marks: bytes = field(default=b"", repr=False)
    spilled: int = 0
    marks_until: int | None = None
    event_pending: bool = False
    resume_pending: bool = False
    refused_at: int | None = None
    refused: str | None = None
    resumed_at: int | None = None
    resume_failed: str | None = None
    extended: bool = False
    repeated: int = 0
    late: int = 0
    last_late_at: int | None = None

    @property
    def generation(self) -> tuple[int | None, int | None]:
        """What tells the chain from earlier and later ones of its tag."""
        return self.first_seen_at, self.nonce

    @property
    def final(self) -> bool:
        """True if the chain is ``acked`` or ``failed``: nothing changes it any more."""
        return self.status in ("acked", "failed")

    @property
    def created(self) -> bool:
        """True if the create was applied."""
        if self.created_at is not None:
            return True
        return self.status != "pending" and self.reason != NEVER_CREATED

    @property
    def adopted(self) -> bool:
        """True if xor-ack-dynamodb created the item: its counts miss the units from before."""
        return self.created and self.created_at is None

    @property
    def within_tolerance(self) -> bool:
        """True if units are outstanding, and no more than the create tolerates at the deadline."""
        return 0 < self.started - self.finished <= self.tolerated_units

    @property
    def tolerated(self) -> bool:
        """True if the chain was acked at its deadline with units outstanding."""
        return self.status == "acked" and self.within_tolerance

    @property
    def undelivered(self) -> tuple[str, ...]:
        """The channels, `EVENT` and the kind of `resume`, that may not know of the end yet."""
        if not self.final:
            return ()  # whatever another program wrote
        event = (EVENT,) if self.event_pending else ()
        return (*event, *json.loads(self.resume or "{}")) if self.resume_pending else event

    @property
    def refusals(self) -> dict[str, tuple[int, int]]:
        """Channels that refuse the end, to the times of the first refusal and the next attempt."""
        refusals: dict[str, tuple[int, int]] = json.loads(self.refused or "{}")
        return refusals

    def due_channels(self, now: int) -> list[str]:
        """Return the channels in `undelivered` on which to report the end now."""
        refusals = self.refusals
        return [one for one in self.undelivered if one not in refusals or refusals[one][1] <= now]

    @property
    def effective_deadline(self) -> int | None:
        """Time at which an unfinished chain fails if no request comes; None for never."""
        if self.status == "pending":
            return self.pending_deadline
        times = [self.deadline]
        if self.idle_timeout is not None and self.last_stamp_at is not None:
            times.append(self.last_stamp_at + self.idle_timeout)
        return min((time for time in times if time is not None), default=None)

    @property
    def latest_end(self) -> int:
        """Time at which the chain has ended or will have, unless an extend or its create comes."""
        if self.ended_at is not None:
            return self.ended_at
        deadline = self.pending_deadline if self.status == "pending" else self.deadline
        if deadline is None:
            return END_OF_TIME
        return max(deadline, self.deadline or 0)

    def with_late(self, repeated: int, late: int, now: int) -> Chain:
        assert self.final, "what comes before the end is applied, not counted"
        assert min(repeated, late) >= 0
        return replace(
            self,
            version=self.version + 1,
            repeated=self.repeated + repeated,
            late=self.late + late,
            last_late_at=now,
        )
