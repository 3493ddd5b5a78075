"""A chain: the state of all units that descend from one root unit. An immutable value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, NamedTuple

Status = Literal["pending", "open", "acked", "failed"]

TIMED_OUT = "timed out"
NEVER_CREATED = "never created"
EVENT = "event"
"""The report of events."""
PARENTS = "parents"
"""The report of the chains of which a chain is a unit."""
END_OF_TIME = 253_402_300_799_999
"""The end of the year 9999, in milliseconds since the epoch."""


_CELLS = 16


class Parent(NamedTuple):
    """A unit of other chains that a chain is: what a token says of it.

    Attributes:
        cells: The size of the stamps of these chains; 0 for plain ones.
    """

    unit: int
    tags: tuple[str, ...]
    cells: int = _CELLS

    @classmethod
    def of_json(cls, raw: Mapping[str, Any]) -> Parent:
        """Read what `to_json` has written."""
        cells = raw.get("cells", _CELLS) if raw["kind"] == "traced" else 0
        return cls(int(raw["unit"], 16), tuple(raw["tags"]), cells)

    def to_json(self) -> dict[str, Any]:
        kind = "traced" if self.cells else "plain"
        cells = {"cells": self.cells} if self.cells not in (0, _CELLS) else {}
        return {"unit": f"{self.unit:016x}", "tags": list(self.tags), "kind": kind, **cells}


@dataclass(frozen=True, slots=True)
class Counts:
    """Units as the senders count them; 0 if they report no counts.

    Attributes:
        tolerated_units: Most outstanding units with which the chain is acked at its deadline.
    """

    started: int = 0
    finished: int = 0
    tolerated_units: int = 0

    @property
    def outstanding(self) -> int:
        return self.started - self.finished

    @property
    def within_tolerance(self) -> bool:
        """True if units are outstanding, and no more than the create tolerates at the deadline."""
        return 0 < self.outstanding <= self.tolerated_units


@dataclass(frozen=True, slots=True)
class Deadlines:
    """When an unfinished chain ends by time.

    Attributes:
        deadline: Time at which the chain times out once it is created. None for never.
        pending_deadline: Time at which the chain fails if its create has not arrived. None for
            never, and once the create has arrived.
        idle_timeout: Longest time without a stamp or an ``extend``. None for no limit.
        extended: Time at which the last ``extend`` was applied; it overrides the create's timeout.
            0 for none.
    """

    deadline: int | None = None
    pending_deadline: int | None = None
    idle_timeout: int | None = None
    extended: int = 0


@dataclass(frozen=True, slots=True)
class Reports:
    """The reports of a chain's end: an event on the bus, a callback, and what its parents get.

    Attributes:
        event_pending, resume_pending, parents_pending: The report may still have to be made.
        resume: JSON text from the create: the callback's kind and token. None once it was sent or
            given up, because a token is a secret.
        resume_sent_at: Time when the create that names the callback was sent.
        resumed_at: Time at which the callback was made.
        resume_failed: Why no callback was made: the last refusal after a day of them, or the
            answer that the callback is gone.
        refused_at: Time at which a service first refused the event or the callback.
        refused: JSON text of the reports that refuse the report: see `refusals`.
    """

    event_pending: bool = False
    resume_pending: bool = False
    parents_pending: bool = False
    resume: str | None = field(default=None, repr=False)
    resume_sent_at: int | None = None
    resumed_at: int | None = None
    resume_failed: str | None = None
    refused_at: int | None = None
    refused: str | None = None

    @property
    def refusals(self) -> dict[str, tuple[int, int]]:
        """Channels that refuse the end, to the times of the first refusal and the next attempt."""
        refusals: dict[str, tuple[int, int]] = json.loads(self.refused or "{}")
        return refusals


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What arrived after the chain's end.

    Attributes:
        repeated, late: Creates of the same content, and late requests.
        last_late_at: Time of the last arrival: it prolongs the tombstone.
    """

    repeated: int = 0
    late: int = 0
    last_late_at: int | None = None


@dataclass(frozen=True, slots=True)
class Chain:
    """The state of a chain. Times are milliseconds since the epoch, durations milliseconds.

    Attributes, as far as their names do not say it:
        stamp: XOR of all stamps so far; empty before the first.
        status: ``pending`` is not created yet.
        version: Number of writes by xorack; 0 for an item of xor-ack-dynamodb.
        first_seen_at: Time of the first write. None for an item of xor-ack-dynamodb.
        nonce: 32 random bits of the first write. None for a chain that older code started.
        created_at: Time when the create was sent, as far as it is known. None: no create yet, or
            another program created the chain.
        due_at: Time at which the sweeper must look at the chain, at or before the deadline. It does
            not follow every stamp, because each change costs an index write.
        detail: JSON text from the create, for the events.
        parents: JSON text from the create: the units of other chains that this chain is.
        fail_parent: True if these chains fail as soon as this one does.
        note: JSON text of what a sender found out: ``text``, ``missing``, ``missing_count``.
        failing: Reason of a ``fail`` that arrived before the create.
        reason: Why the chain failed.
        marks: Marks of the latest applied requests, 16 bytes each, oldest first.
        spilled: Number of marks that were spilled, all kept until ``marks_until``.
    """

    tag: str
    stamp: bytes = b""
    status: Status = "pending"
    version: int = 0
    first_seen_at: int | None = None
    nonce: int | None = None
    created_at: int | None = None
    last_stamp_at: int | None = None
    ended_at: int | None = None
    due_at: int | None = None
    detail: str | None = None
    parents: str | None = None
    fail_parent: bool = False
    note: str | None = None
    failing: str | None = None
    reason: str | None = None
    marks: bytes = field(default=b"", repr=False)
    spilled: int = 0
    marks_until: int | None = None
    counts: Counts = Counts()
    deadlines: Deadlines = Deadlines()
    reports: Reports = Reports()
    tombstone: Tombstone = Tombstone()

    @classmethod
    def of_attributes(cls, tag: str, attributes: Mapping[str, Any]) -> Chain:
        """Return the chain with these `ATTRIBUTES`; those that are left out have their default."""
        own = {name: value for name, value in attributes.items() if name not in _PART_OF}
        of_parts: dict[str, dict[str, Any]] = {}
        for name in attributes.keys() & _PART_OF.keys():
            of_parts.setdefault(_PART_OF[name], {})[name] = attributes[name]
        parts = {part: PARTS[part](**values) for part, values in of_parts.items()}
        return cls(tag, **own, **parts)

    def attributes(self) -> dict[str, Any]:
        """Return the values of all `ATTRIBUTES`, by name."""
        return {
            name: getattr(getattr(self, part) if part else self, name)
            for name, part in _PART_OF_EACH
        }

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
    def tolerated(self) -> bool:
        """True if the chain was acked at its deadline with units outstanding."""
        return self.status == "acked" and self.counts.within_tolerance

    @property
    def pending_reports(self) -> tuple[str, ...]:
        """The reports that may not know of the end yet: `PARENTS`, `EVENT`, a kind of callback."""
        if not self.final:
            return ()  # whatever another program wrote
        parents = (PARENTS,) if self.reports.parents_pending else ()
        event = (EVENT,) if self.reports.event_pending else ()
        callback = json.loads(self.reports.resume or "{}") if self.reports.resume_pending else ()
        return (*parents, *event, *callback)

    def due_reports(self, now: int) -> list[str]:
        """Return the reports in `pending_reports` on which to report the end now."""
        refusals = self.reports.refusals
        return [
            one for one in self.pending_reports if one not in refusals or refusals[one][1] <= now
        ]

    @property
    def effective_deadline(self) -> int | None:
        """Time at which an unfinished chain fails if no request comes; None for never."""
        if self.status == "pending":
            return self.deadlines.pending_deadline
        times = [self.deadlines.deadline]
        if self.deadlines.idle_timeout is not None and self.last_stamp_at is not None:
            last = max(self.last_stamp_at, self.deadlines.extended)
            times.append(last + self.deadlines.idle_timeout)
        return min((time for time in times if time is not None), default=None)

    @property
    def latest_end(self) -> int:
        """Time at which the chain has ended or will have, unless an extend or its create comes."""
        if self.ended_at is not None:
            return self.ended_at
        created = self.deadlines.deadline
        deadline = self.deadlines.pending_deadline if self.status == "pending" else created
        return END_OF_TIME if deadline is None else max(deadline, created or 0)

    @property
    def parent_units(self) -> list[Parent]:
        """The units of other chains that this chain is."""
        return [Parent.of_json(one) for one in json.loads(self.parents or "[]")]

    @property
    def parent_tags(self) -> list[str]:
        return sorted(tag for parent in self.parent_units for tag in parent.tags)

    def with_late(self, repeated: int, late: int, now: int) -> Chain:
        assert self.final, "what comes before the end is applied, not counted"
        assert min(repeated, late) >= 0
        before = self.tombstone
        tombstone = Tombstone(before.repeated + repeated, before.late + late, now)
        return replace(self, version=self.version + 1, tombstone=tombstone)


PARTS: Final[dict[str, type]] = {
    "counts": Counts,
    "deadlines": Deadlines,
    "reports": Reports,
    "tombstone": Tombstone,
}
_PART_OF = {one.name: name for name, part in PARTS.items() for one in fields(part)}
_OWN = [one for one in fields(Chain) if one.name not in PARTS and one.name != "tag"]
ATTRIBUTES: Final = {
    one.name: str(one.type).removesuffix(" | None")
    for part in (_OWN, *map(fields, PARTS.values()))
    for one in part
}
"""The attributes of a chain and of its parts, besides the tag, with their types."""
_PART_OF_EACH = [(name, _PART_OF.get(name)) for name in ATTRIBUTES]
