"""The status of chains: their progress, deadline and outstanding units."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from xorack.aws.clock import milliseconds
from xorack.core.chain import TIMED_OUT, Chain
from xorack.core.errors import TagNotFound
from xorack.core.event import outstanding_of, outstanding_units, rfc3339
from xorack.core.partition_names import partition_names
from xorack.core.ports import ChainStore
from xorack.core.request import validate_tag
from xorack.core.stamp import TRACED_LENGTHS
from xorack.core.text import cut, plural, span

STATUSES = ("pending", "open", "acked", "failed")
SOON_MS = 600_000
"""A deadline counts as soon within this time."""
_NAMED = {16: 32, 64: 80, 256: 384, 1024: 1792}
"""The number of units that a traced stamp names, by its number of cells."""
_FIELDS = ("status", "started", "finished", "tolerated_units")
_TAGS_SHOWN = 5
_STATES = ("event_pending", "repeated", "late", "resume_pending", "resume_failed")
_TIMES = ("created_at", "last_stamp_at", "ended_at", "last_late_at")
_RESUME_TIMES = ("resume_sent_at", "resumed_at", "refused_at")
"""The attributes of a chain in JSON. Times are written as text."""


@dataclass(frozen=True)
class ChainStatus:
    """The status of a chain at the time `now`. Times are milliseconds since 1970."""

    chain: Chain
    now: int

    @property
    def percent(self) -> float | None:
        """The share of units that are finished, 0 to 100; None if the counts do not show it."""
        chain = self.chain
        if chain.status == "acked" and not chain.tolerated:
            return 100.0
        # A finish that arrives before its start is already counted. Only an ack counts as 100 %.
        known = chain.counts.started > 0 and chain.counts.finished <= chain.counts.started
        return (
            min(chain.counts.finished * 1000 // chain.counts.started, 999) / 10 if known else None
        )

    @property
    def counts(self) -> str:
        """The counts of units in words, such as ``4 of 6 units``."""
        chain = self.chain
        if self.percent is None and chain.counts.finished:
            return f"{chain.counts.finished:,} finished, {chain.counts.started:,} started so far"
        counts = f"{chain.counts.finished:,} of {plural(chain.counts.started, 'unit')}"
        return counts if chain.counts.started else "its senders report no counts"

    @property
    def age_ms(self) -> int | None:
        """Milliseconds from the chain's beginning to its end, or to now if it has not ended."""
        begin = self.begin
        return None if begin is None else max(0, (self.chain.ended_at or self.now) - begin)

    @property
    def begin(self) -> int | None:
        """The time of the create, or else of the first request; None if it is unknown."""
        chain = self.chain
        return chain.first_seen_at if chain.created_at is None else chain.created_at

    @property
    def deadline(self) -> int | None:
        """The time at which the chain fails without a further step.

        None: never, or the chain has ended.
        """
        return None if self.chain.final else self.chain.effective_deadline

    @property
    def timeout_ms(self) -> int | None:
        """Milliseconds from the create to the deadline, which it or an extend has set; if known."""
        chain = self.chain
        deadline = chain.deadlines.deadline
        if deadline is None or chain.created_at is None:
            return None
        # The time-out counts from the time when the create was applied, which is mostly the first
        # write.
        return max(0, deadline - max(chain.created_at, chain.first_seen_at or 0))

    @property
    def timeout_text(self) -> str:
        """The time-out that the create or an extend has set; empty if there is none."""
        if self.timeout_ms is None or (self.chain.final and self.reason != TIMED_OUT):
            return ""
        return span(self.timeout_ms) + (", extended" if self.chain.deadlines.extended else "")

    @property
    def urgency(self) -> Literal["ok", "soon", "late"]:
        """``late`` after the deadline, ``soon`` at most `SOON_MS` before it, and else ``ok``."""
        left = SOON_MS + 1 if self.deadline is None else self.deadline - self.now
        return "ok" if left > SOON_MS else "soon" if left > 0 else "late"

    @property
    def reason(self) -> str | None:
        """Why the chain failed, or will fail when it is created."""
        return self.chain.reason or self.chain.failing

    @property
    def children_text(self) -> str:
        """A text on the ended chains that are units of this chain; empty if there are none."""
        if not self.chain.children:
            return ""
        ended = self.chain.ended_children
        # Units that are no chains are open, too. Before the create, the number may be unknown.
        units = None if self.chain.final else self.open_units
        left = "" if units is None else f" {plural(units, 'other unit')} open,"
        counts = f"{ended['acked']:,} acked,{left} {ended['failed']:,} failed"
        tags = ended["failed_tags"]
        failed = cut(tags, min(_TAGS_SHOWN, len(tags)), ended["failed"])
        return ": ".join(filter(None, (counts, ", ".join(failed))))

    @property
    def open_units(self) -> int | None:
        """The number of units that are neither finished nor failed chains; None if unknown."""
        left = outstanding_units(self.chain)
        return None if left is None else max(0, left - self.chain.ended_children["failed"])

    @property
    def after_end(self) -> str:
        """A text on requests that arrived after the chain's end; empty if there were none."""
        chain = self.chain
        counts = (
            (chain.tombstone.repeated, "repeated create"),
            (chain.tombstone.late, "late request"),
        )
        return ", ".join(plural(count, name) for count, name in counts if count)

    @property
    def tolerance(self) -> str:
        """A text on outstanding units that do not fail the chain; empty if none is tolerated."""
        chain = self.chain
        units = plural(chain.counts.tolerated_units, "unit")
        if chain.tolerated:
            return f"acked with {chain.counts.outstanding:,} outstanding, {units} tolerated"
        return f"{units} outstanding at the deadline" if chain.counts.tolerated_units else ""

    @property
    def callback(self) -> str:
        """The state of the chain's callback; empty without a callback."""
        chain = self.chain
        if not chain.final:
            sent_at = chain.reports.resume_sent_at
            return "" if sent_at is None else f"waits, by the create sent {rfc3339(sent_at)}"
        if chain.reports.resume_failed is not None:
            return f"failed: {chain.reports.resume_failed}"
        if chain.reports.resumed_at is not None:
            return f"done, {rfc3339(chain.reports.resumed_at)}"
        refused = chain.reports.refused_at
        since = "" if refused is None else f", refused since {rfc3339(refused)}"
        return f"pending{since}" if chain.reports.resume_pending else ""

    @cached_property
    def _outstanding(self) -> tuple[list[int], bool, int]:
        return outstanding_of(self.chain)

    @property
    def detail(self) -> dict[str, Any] | None:
        """The object that the create has added for the events, or None."""
        return json.loads(self.chain.detail) if self.chain.detail else None

    @property
    def partitions(self) -> dict[int, str]:
        """The partitions of a window over a log by their units; empty for other chains."""
        return partition_names(self.chain.tag, self.detail or {})

    @property
    def note(self) -> dict[str, Any] | None:
        """The note with ``text``, ``missing``, ``missing_count``; None without a note.

        A note of the acker about a failed chain also has ``chain``.
        """
        return json.loads(self.chain.note) if self.chain.note else None

    @property
    def note_text(self) -> str:
        note = self.note or {}
        count = note.get("missing_count")
        missing = "" if count is None else f"{plural(count, 'unit')} missing"
        return "; ".join(filter(None, (note.get("text"), missing)))

    @property
    def outstanding(self) -> list[int]:
        """The sorted ids of the outstanding units that the stamp, or else a note, names."""
        return self._outstanding[0]

    @property
    def outstanding_complete(self) -> bool:
        return self._outstanding[1]

    @property
    def unstarted_units(self) -> int:
        """The number of finished units that no step started, if it is known.

        The stamp names both outstanding units and units that were finished without a start. The
        difference of the two numbers follows from the counts.
        """
        surplus = self.chain.counts.finished - self.chain.counts.started
        if not self.chain.counts.started or not self.outstanding_complete:
            return max(0, surplus)
        return max(0, (len(self.outstanding) + surplus) // 2)

    @property
    def outstanding_note(self) -> str:
        """A text on outstanding units that their ids do not show; empty if there is none."""
        if self.outstanding_complete:
            unstarted = self.unstarted_units
            return f"{unstarted:,} of these finished, but no step started them" * bool(unstarted)
        left, cells = outstanding_units(self.chain) or 0, TRACED_LENGTHS.get(len(self.chain.stamp))
        more = [(size, named) for size, named in _NAMED.items() if cells and size > cells]
        hints = [f": stamps of cells={size} name {n:,}" for size, n in more if n >= left > 0]
        hint, count = next(iter(hints), ""), plural(left, "unit")
        if self.outstanding:
            return f"and more: {count} in all{hint}" if left else "and more"
        if cells and left > 1:
            return f"{count}, too many to name{hint}"
        return f"{count if left else 'an unknown number of units'}, this stamp names none"

    def facts(self) -> list[tuple[str, str, str]]:
        """Return facts for people: a name, a value, and a detail that may be empty."""
        chain, final = self.chain, self.chain.final

        def moment(time: int | None) -> tuple[str, str]:
            if time is None:
                return "", ""
            away = span(abs(time - self.now))
            return f"in {away}" if time > self.now else f"{away} ago", str(rfc3339(time))

        missed = chain.effective_deadline if self.reason == TIMED_OUT else None
        deadline, at = moment(self.deadline or missed)
        if self.urgency == "late":
            deadline = f"passed {deadline}: the sweeper will end it"
        created = (
            "not created: the producer failed, or its message is queued or dead-lettered",
            "",
        )
        late, _ = moment(chain.tombstone.last_late_at)
        idle = (
            span(chain.deadlines.idle_timeout) if chain.deadlines.idle_timeout and not final else ""
        )
        percent = "" if self.percent is None else f"{self.percent:g} %"
        facts = (
            ("reason", self.reason or "", ""),
            ("note", self.note_text, ""),
            ("children", self.children_text, ""),
            ("parent", ", ".join(chain.parent_tags), ""),
            ("progress", percent or self.counts, self.counts if percent else ""),
            ("took" if final else "age", "" if self.age_ms is None else span(self.age_ms), ""),
            ("created", *(created if chain.status == "pending" else moment(chain.created_at))),
            ("first seen", *moment(chain.first_seen_at if chain.created_at is None else None)),
            ("last stamp", *moment(chain.last_stamp_at)),
            ("tolerance", self.tolerance if chain.tolerated or not final else "", ""),
            ("time-out", self.timeout_text, ""),
            ("deadline", deadline or ("" if final else "none"), at),
            ("idle timeout", idle, ""),
            ("ended", *moment(chain.ended_at)),
            ("after that", self.after_end, f"the last {late}"),
        )
        return [fact for fact in facts if fact[1]]

    def to_dict(self) -> dict[str, Any]:
        chain, age = self.chain, self.age_ms
        attributes = chain.attributes()
        return {
            "tag": chain.tag,
            **{name: attributes[name] for name in _FIELDS},
            "tolerated": chain.tolerated,
            **{name: attributes[name] for name in _STATES},
            **{name: rfc3339(attributes[name]) for name in (*_TIMES, *_RESUME_TIMES)},
            "percent": self.percent,
            "age_seconds": None if age is None else age / 1000,
            "deadline": rfc3339(self.chain.effective_deadline),
            "timeout_seconds": None if self.timeout_ms is None else self.timeout_ms / 1000,
            "idle_timeout_seconds": chain.deadlines.idle_timeout
            and chain.deadlines.idle_timeout / 1000,
            "reason": self.reason,
            "parent_tags": chain.parent_tags,
            "children": chain.ended_children,
            "open_units": self.open_units,
            "note": self.note,
            "detail": self.detail,
            "outstanding_units": outstanding_units(chain),
            "outstanding": [f"{unit:016x}" for unit in self.outstanding],
            "outstanding_complete": self.outstanding_complete,
            "stamp_bytes": len(chain.stamp),
        }


def read_status(store: ChainStore, tag: str) -> ChainStatus:
    """Read the status of one chain consistently; raise TagNotFound if it does not exist."""
    chain = store.read([validate_tag(tag)]).get(tag)
    if chain is None:
        raise TagNotFound(tag)
    return ChainStatus(chain, milliseconds())


def failed_children(store: ChainStore, status: ChainStatus) -> list[ChainStatus]:
    """Read the failed chains that are units of a chain, as far as its item names them."""
    # A tag that was deleted and used again may have failed twice, or its new chain not at all.
    tags = [*dict.fromkeys(status.chain.ended_children["failed_tags"])]
    chains = store.read(tags, lambda _: None) if tags else {}
    failed = [tag for tag in tags if tag in chains and chains[tag].status == "failed"]
    return [ChainStatus(chains[tag], status.now) for tag in failed]
