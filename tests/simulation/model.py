"""The model of a chain: the set of requests that took effect, and the state that follows."""

import json
from dataclasses import dataclass, field

from tests.simulation.options import PENDING_TIMEOUT
from tests.simulation.workload import ChainWorkload, End, Submission
from xorack.core.checks import MAX_COUNT
from xorack.core.event import rfc3339
from xorack.core.marks import MARK_BYTES, mark_of
from xorack.core.stamp import TRACED_LENGTHS, sum_of
from xorack.ops.doctor.verify import Expected

Item = dict[str, dict]
UNMUTATED_MARK_OF = mark_of


def number(item: Item | None, name: str) -> int | None:
    return int(item[name]["N"]) if item and name in item else None


def text(item: Item | None, name: str) -> str | None:
    return item[name]["S"] if item and name in item else None


def binary(item: Item | None, name: str) -> bytes:
    return bytes(item[name]["B"]) if item and name in item else b""


def marks(item: Item | None) -> list[bytes]:
    data = binary(item, "marks")
    return [data[at : at + MARK_BYTES] for at in range(0, len(data), MARK_BYTES)]


def refusals(item: Item | None) -> dict[str, list[int]]:
    """Return the reports that refuse the end: the first refusal, and the next attempt."""
    return json.loads(text(item, "refused") or "{}")


def deadline_of(item: Item | None) -> int | None:
    """Return when an unfinished chain must end: at a deadline, or when its create is too late."""
    if text(item, "status") == "pending":
        return (number(item, "first_seen_at") or 0) + PENDING_TIMEOUT
    idle, last = number(item, "idle_timeout"), number(item, "last_stamp_at")
    alive = max(last or 0, number(item, "extended") or 0)
    idle_deadline = None if idle is None or last is None else alive + idle
    times = (number(item, "deadline"), idle_deadline)
    return min((time for time in times if time is not None), default=None)


@dataclass(eq=False)
class Model:
    """The expected state of one generation of a chain.

    Attributes:
        by_mark: The requests of all runs of the tag, by mark.
        applied: Requests that took effect, by id. `repeated` requests had an id that was used
            before.
        may_repeat: True if spilled marks expired; those of a chain without a deadline may expire.
        outstanding: Units started or finished an odd number of times.
        done: Units that steps finished; steps of several units finished `shared`, with `marked`
            marks.
        tokens: Tokens of tasks that were resumed; tasks of the tokens in `over` have stopped
            waiting.
        note: The current note, as JSON text.
        dead_lettered: Texts of dead-lettered requests; `rejected` has the requests themselves.
        item: The item as last written; `final` is the item at the end. `refused_at`: The time of
            the last refusal.
        ends: The finishes that its parents get at its end.
    """

    workload: ChainWorkload
    by_mark: dict[bytes, Submission]
    applied: dict[str, Submission] = field(default_factory=dict)
    repeated: list[str] = field(default_factory=list)
    may_repeat: bool = False
    stamp: int = 0
    counts: tuple[int, int] = (0, 0)
    outstanding: frozenset[int] = frozenset()
    done: frozenset[int] = frozenset()
    shared: int = 0
    marked: int = 0
    tokens: set[str] = field(default_factory=set)
    over: set[str] = field(default_factory=set)
    create: Submission | None = None
    fail_reasons: list[str] = field(default_factory=list)
    extended: bool = False
    note: str | None = None
    has_children: bool = False
    lengths: set[int] = field(default_factory=set)
    dead_lettered: set[str] = field(default_factory=set)
    rejected: list[Submission] = field(default_factory=list)
    item: Item | None = None
    refused_at: int = 0
    final: Item | None = None
    event: dict | None = None
    ends: list[End] = field(default_factory=list)

    def apply(self, one: Submission) -> None:
        """Record that a request took effect."""
        request = one.request
        if request.id in self.applied:
            self.repeated.append(f"{one.name} after {self.applied[request.id].name}")
        self.applied[request.id] = one
        stamp, finished, units = request.stamp or b"", request.finished, one.units
        if one.finishes:
            new = one.finishes - self.done
            self.done |= new
            self.shared += len(new) if request.finishes_once else 0
            finished, units = len(new), one.units ^ new
            stamp = sum_of(units, TRACED_LENGTHS.get(request.stamp_length, 0))
        self.stamp ^= int.from_bytes(stamp, "little")
        self.lengths |= {request.stamp_length} - {None}
        self.counts = (self.counts[0] + request.started, self.counts[1] + finished)
        self.outstanding ^= units
        if request.child is None or not self.note or "chain" in json.loads(self.note):
            self.note = request.note or self.note
        self.has_children |= request.child is not None
        if request.op == "create":
            self.create = one
        elif request.op == "fail":
            self.fail_reasons.append(request.reason or "fail was asked")
        elif request.op == "extend":
            self.extended = True

    def has(self, one: Submission) -> bool:
        """Return whether a request, or a copy of it, took effect."""
        applied = self.applied.get(one.request.id)
        return applied is not None and applied.text == one.text

    @property
    def length(self) -> int | None:
        """The length of the item's stamp: that of the create, else the only length."""
        if self.create is not None:
            return self.create.request.stamp_length
        return min(self.lengths, default=None)

    @property
    def contradicted(self) -> bool:
        """True if the create has another length of stamp than what came before."""
        return self.create is not None and len(self.lengths) > 1

    @property
    def status(self) -> str:
        """The status that the applied requests give."""
        if self.create is None:
            return "pending"
        if self.fail_reasons or self.contradicted:
            return "failed"
        started, finished = self.counts
        uncounted = started != finished
        return "open" if self.outstanding or uncounted else "acked"

    @property
    def tolerates(self) -> bool:
        """True if the units that are outstanding are few enough for an ack at the deadline."""
        if self.status != "open" or not self.outstanding:
            return False
        left, most = self.counts[0] - self.counts[1], self.create.request.tolerated_units
        return 0 < left <= most and len(self.outstanding) <= most

    @property
    def end(self) -> str:
        """How the chain ended: reason or status."""
        reason = text(self.final, "reason") or text(self.final, "status") or "open"
        if reason.startswith("timed out") and reason != "timed out":
            return "timed out: wrong counts"
        return "failed: two lengths of stamps" if self.contradicted else reason

    @property
    def expected(self) -> Expected:
        """What the event of the ended chain must say."""
        item, create = self.final, self.create
        status = text(item, "status")
        tolerated = status == "acked" and self.tolerates
        note = json.loads(self.note or "{}")
        tells_missing = note.get("missing") or note.get("missing_count")
        is_noted = status == "failed" or tolerated or self.has_children or tells_missing
        values = {
            "tag": self.workload.tag,
            "version": 1,
            "status": status,
            "reason": text(item, "reason"),
            "ended_at": rfc3339(number(item, "ended_at")),
            "started": min(MAX_COUNT, self.counts[0]),
            "finished": min(MAX_COUNT, self.counts[1]),
            "detail": (create and create.request.detail) or {},
            "note": note if note and is_noted else None,
            "tolerated_units": create.request.tolerated_units if tolerated else None,
        }
        if create:
            values["created_at"] = rfc3339(number(item, "created_at"))
        traced = len(binary(item, "stamp")) in TRACED_LENGTHS
        return Expected(values, self.outstanding, traced)

    def conflicts_with(self, one: Submission) -> str:
        """Return why a request that did not take effect must be rejected; "" if it need not be."""
        request = one.request
        if "lambda" in (request.resume or {}):
            return "nobody can be resumed so"
        if request.id in self.applied:
            return "its id was used"
        if request.op == "create":
            return "a second create" if self.create else "a late create" if self.final else ""
        length = self.length if self.final else min(self.lengths, default=None)
        other_length = length and request.stamp_length not in (None, length)
        return "another length of stamp" if other_length else ""

    def may_reject(self, one: Submission) -> bool:
        """Return whether the rejection of a request was right, now or a moment ago."""
        lengths = self.lengths if one.request.op == "stamp" else ()
        other_length = any(length != one.request.stamp_length for length in lengths)
        return bool(self.conflicts_with(one) or other_length)

    def processed(self, one: Submission) -> str:
        """Return "" if the message of a request may be deleted; else why not."""
        if one.text in self.dead_lettered:
            return ""
        if one.request is None:
            return "invalid"
        if self.has(one):
            return ""
        return self.conflicts_with(one) or ("" if self.final else "not applied")
