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
"""The report that is an event on the bus."""
PARENTS = "parents"
"""The report to the chains in which this chain is a unit."""
END_OF_TIME = 253_402_300_799_999
"""The end of the year 9999, in milliseconds since the epoch."""


_CELLS = 16


class Parent(NamedTuple):
    """A unit of other chains, which a chain stands for. A token has the same fields.

    Attributes:
        cells: The cells of these chains' stamps; 0 for plain stamps.
    """

    unit: int
    tags: tuple[str, ...]
    cells: int = _CELLS

    @classmethod
    def of_json(cls, raw: Mapping[str, Any]) -> Parent:
        """Read what `to_json` wrote."""
        cells = raw.get("cells", _CELLS) if raw["kind"] == "traced" else 0
        return cls(int(raw["unit"], 16), tuple(raw["tags"]), cells)

    def to_json(self) -> dict[str, Any]:
        kind = "traced" if self.cells else "plain"
        cells = {"cells": self.cells} if self.cells not in (0, _CELLS) else {}
        return {"unit": f"{self.unit:016x}", "tags": list(self.tags), "kind": kind, **cells}


@dataclass(frozen=True, slots=True)
class Counts:
    """The numbers of units that the senders report; 0 if they report none.

    Attributes:
        tolerated_units: The most outstanding units with which the chain is acked at its deadline.
    """

    started: int = 0
    finished: int = 0
    tolerated_units: int = 0

    @property
    def outstanding(self) -> int:
        return self.started - self.finished

    @property
    def within_tolerance(self) -> bool:
        """Return whether units are outstanding, and at most as many as the create tolerates."""
        return 0 < self.outstanding <= self.tolerated_units


@dataclass(frozen=True, slots=True)
class Deadlines:
    """The times at which an unfinished chain ends without a request.

    Attributes:
        deadline: Time at which a created chain times out. None: never.
        pending_deadline: Time at which a chain fails if its create has not arrived. None: never, or
            the create has arrived.
        idle_timeout: Longest time without a stamp or an ``extend``. None: no limit.
        extended: Time at which the last ``extend`` was applied, which overrides the create's
            timeout. 0: there was none.
    """

    deadline: int | None = None
    pending_deadline: int | None = None
    idle_timeout: int | None = None
    extended: int = 0


@dataclass(frozen=True, slots=True)
class Reports:
    """The reports of a chain's end: the event on the bus, the callback, the stamps of parents.

    Attributes:
        event_pending, resume_pending, parents_pending: Whether the report may not have been made.
        resume: JSON text from the create: the callback's kind and token. The token is a secret, so
            this is None after the callback was made or given up.
        resume_sent_at: Time when the create that names the callback was sent.
        resumed_at: Time at which the callback was made.
        resume_failed: Why no callback was made: the last refusal after a day of refusals, or the
            answer that the callback is gone.
        refused_at: Time at which a service first refused the event or the callback.
        refused: JSON text of the refused reports: see `refusals`.
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
        """Return the refused reports, each with the times of its first refusal and next attempt."""
        refusals: dict[str, tuple[int, int]] = json.loads(self.refused or "{}")
        return refusals


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Counts of the requests that arrived after the chain's end.

    Attributes:
        repeated, late: The numbers of repeated creates and of late requests.
        last_late_at: Time of the last arrival. It prolongs the tombstone.
    """

    repeated: int = 0
    late: int = 0
    last_late_at: int | None = None


@dataclass(frozen=True, slots=True)
class Chain:
    """The state of a chain. Times are milliseconds since the epoch, durations milliseconds.

    The names of most attributes describe them. These need more words:

    Attributes:
        stamp: XOR of all stamps so far; empty before the first.
        status: ``pending`` means that the create has not arrived.
        version: Number of writes by xorack; 0 for an item of xor-ack-dynamodb.
        first_seen_at: Time of the first write. None for an item of xor-ack-dynamodb.
        nonce: 32 random bits of the first write. None for a chain that older code started.
        created_at: Time when the create was sent, if it is known. None: the create has not arrived,
            or another program created the chain.
        due_at: Time at which the sweeper must read the chain, at or before the deadline. It does
            not follow every stamp, because each change costs a write to the index.
        detail: JSON text from the create, for the events.
        parents: JSON text from the create: the units of other chains that this chain stands for.
        fail_parent: True if these chains fail as soon as this chain fails.
        note: JSON text that a sender added: ``text``, ``missing``, ``missing_count``. A note about
            a failed chain that stands for a unit also has ``chain``, its tag.
        children: JSON text: how many chains that stand for units of this chain have ended ``acked``
            and ``failed``, and ``failed_tags``, the first failed ones.
        failing: Reason of a ``fail`` that arrived before the create.
        reason: Why the chain failed.
        marks: Marks of the latest applied requests, 16 bytes each, oldest first.
        end_levels: A bit for each level of buckets to which marks of children's ends were spilled.
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
    children: str | None = None
    failing: str | None = None
    reason: str | None = None
    marks: bytes = field(default=b"", repr=False)
    spilled: int = 0
    end_levels: int = 0
    marks_until: int | None = None
    counts: Counts = Counts()
    deadlines: Deadlines = Deadlines()
    reports: Reports = Reports()
    tombstone: Tombstone = Tombstone()

    @classmethod
    def of_attributes(cls, tag: str, attributes: Mapping[str, Any]) -> Chain:
        """Return the chain with these `ATTRIBUTES`.

        Attributes that are left out have their defaults.
        """
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
        """The first write of the chain, which distinguishes it from other chains of its tag."""
        return self.first_seen_at, self.nonce

    @property
    def final(self) -> bool:
        """Return whether the chain is ``acked`` or ``failed``. An ended chain never changes."""
        return self.status in ("acked", "failed")

    @property
    def created(self) -> bool:
        """Return whether the create was applied."""
        if self.created_at is not None:
            return True
        return self.status != "pending" and self.reason != NEVER_CREATED

    @property
    def adopted(self) -> bool:
        """Return whether xor-ack-dynamodb created the item. Its counts lack the earlier units."""
        return self.created and self.created_at is None

    @property
    def tolerated(self) -> bool:
        """Return whether the chain was acked at its deadline with units outstanding."""
        return self.status == "acked" and self.counts.within_tolerance

    @property
    def pending_reports(self) -> tuple[str, ...]:
        """The reports that may not have been made: `PARENTS`, `EVENT` or a kind of callback."""
        if not self.final:
            return ()  # another program may have written flags of reports
        parents = (PARENTS,) if self.reports.parents_pending else ()
        event = (EVENT,) if self.reports.event_pending else ()
        callback = json.loads(self.reports.resume or "{}") if self.reports.resume_pending else ()
        return (*parents, *event, *callback)

    def due_reports(self, now: int) -> list[str]:
        """Return the pending reports whose next attempt is due."""
        next_attempts = {report: at for report, (_, at) in self.reports.refusals.items()}
        return [name for name in self.pending_reports if next_attempts.get(name, now) <= now]

    @property
    def effective_deadline(self) -> int | None:
        """Time at which an unfinished chain fails if no request arrives. None: never."""
        if self.status == "pending":
            return self.deadlines.pending_deadline
        times = [self.deadlines.deadline]
        if self.deadlines.idle_timeout is not None and self.last_stamp_at is not None:
            last = max(self.last_stamp_at, self.deadlines.extended)
            times.append(last + self.deadlines.idle_timeout)
        return min((time for time in times if time is not None), default=None)

    @property
    def latest_end(self) -> int:
        """Time at which the chain ended, or ends at the latest if no extend or create arrives."""
        if self.ended_at is not None:
            return self.ended_at
        created = self.deadlines.deadline
        deadline = self.deadlines.pending_deadline if self.status == "pending" else created
        return END_OF_TIME if deadline is None else max(deadline, created or 0)

    @property
    def ended_children(self) -> dict[str, Any]:
        """The counts of ended children in `children`, or zeros."""
        ended: dict[str, Any] = {"acked": 0, "failed": 0, "failed_tags": []}
        ended.update(json.loads(self.children or "{}"))
        return ended

    @property
    def parent_units(self) -> list[Parent]:
        """The units of other chains that this chain stands for."""
        return [Parent.of_json(parent) for parent in json.loads(self.parents or "[]")]

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
_PART_OF = {each.name: name for name, part in PARTS.items() for each in fields(part)}
_OWN = [each for each in fields(Chain) if each.name not in PARTS and each.name != "tag"]
ATTRIBUTES: Final = {
    each.name: str(each.type).removesuffix(" | None")
    for part in (_OWN, *map(fields, PARTS.values()))
    for each in part
}
"""The attributes of a chain and of its parts without the tag, with their types."""
_PART_OF_EACH = [(name, _PART_OF.get(name)) for name in ATTRIBUTES]
