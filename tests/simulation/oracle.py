"""The oracle: a plain model of each chain, and the invariants.

The model is the set of requests that took effect, read from the marks that each write adds. A class
for each kind of observation has its invariants as methods that begin with `check_`: such a method
returns True if the invariant, which its docstring states, holds; otherwise False or details.
"""

import json
from functools import cache
from typing import NamedTuple

from tests.simulation.model import Item, Model, binary, deadline_of, marks, number, text
from tests.simulation.options import DEFAULT_TIMEOUT, MAX_INDEX_LAG, MAX_SKEW
from tests.simulation.workload import ChainWorkload, Submission, canonical
from tests.simulation.world import World
from xorack.core.event import rfc3339
from xorack.core.marks import INLINE_MARKS
from xorack.core.stamp import TRACED_LENGTH

_LONGEST_CALL = 30 * 60_000
"""Most milliseconds between reading the clock and the write that carries the time."""


class Write(NamedTuple):
    """A write of an unfinished chain; the model has the new requests already."""

    model: Model
    before: Item | None
    after: Item
    new: list[Submission | None]
    now: int

    @property
    def status(self):
        return text(self.after, "status") or "open"  # xor-ack-dynamodb writes no status

    @property
    def expired(self):
        """True if it ends the chain by time."""
        reasons = self.model.fail_reasons
        return self.status == "failed" and text(self.after, "reason") not in reasons

    def is_now(self, time):
        """Tell if a written time is the time of the write, as far as clocks agree."""
        return time is not None and -_LONGEST_CALL <= time - self.now <= MAX_SKEW + MAX_INDEX_LAG

    def check_marks(self):
        """Each mark in an item is the mark of a request of its chain."""
        return None not in self.new

    def check_exactly_once(self):
        """At most one request takes effect under an id."""
        return not self.model.repeated or self.model.repeated

    def check_stamp(self):
        """The stamp is the XOR of the stamps of the applied requests."""
        return int.from_bytes(binary(self.after, "stamp"), "little") == self.model.stamp

    def check_counts(self):
        """The counts are the sums of the counts of the applied requests."""
        counts = (number(self.after, "started") or 0, number(self.after, "finished") or 0)
        return counts == self.model.counts or f"{counts}, expected {self.model.counts}"

    def check_inline_marks(self):
        """A write of requests leaves at most INLINE_MARKS marks, or only its own, in the item."""
        return not self.new or len(marks(self.after)) <= max(INLINE_MARKS, len(self.new))

    def check_status(self):
        """The status follows from the applied requests, unless the chain ends by time."""
        expected = self.model.status
        return self.expired or self.status == expected or f"{self.status}, expected {expected}"

    def check_expiration_reason(self):
        """A chain that ends by time ends as never created, or else as timed out."""
        reason = "timed out" if self.model.create else "never created"
        return not self.expired or text(self.after, "reason") == reason

    def check_expiration_alone(self):
        """A write that ends a chain by time applies no request."""
        return not self.expired or not self.new

    def check_expiration_time(self):
        """A chain does not end by time before its deadline."""
        if not self.expired:
            return True
        due, ended = deadline_of(self.before), number(self.after, "ended_at")
        return (due is not None and due <= ended) or f"due {due}, ended {ended}"

    def check_deadline(self):
        """The deadline of an unfinished chain is the one that its create or an extend set."""
        deadline = number(self.after, "deadline")
        requests = {one.request.op: one for one in self.new}
        if self.status in ("acked", "failed"):
            return True
        if "extend" in requests:
            return self.is_now(deadline - round(requests["extend"].request.timeout * 1000))
        if "create" in requests and not self.model.extended:
            create = requests["create"]
            if create.direct:
                return deadline is None
            timeout, created = create.request.timeout, number(self.after, "created_at")
            span = DEFAULT_TIMEOUT if timeout is None else round(timeout * 1000)
            return self.is_now(created) and deadline == created + span
        return self.before is None or deadline == number(self.before, "deadline")

    def check_last_stamp_time(self):
        """A stamp sets `last_stamp_at` of an unfinished chain to the current time."""
        unfinished = self.status not in ("acked", "failed")
        stamped = unfinished and any(one.request.stamp for one in self.new)
        return not stamped or self.is_now(number(self.after, "last_stamp_at"))


class FinalWrite(NamedTuple):
    """A write of a finished chain."""

    model: Model
    after: Item
    new: list[Submission | None]

    def check_no_request(self):
        """No request takes effect in a finished chain."""
        return not self.new or [one and one.name for one in self.new]

    def check_unchanged(self):
        """A final state never changes."""
        old, new = self.model.final, self.after
        changed = {name for name in {*old, *new} if old.get(name) != new.get(name)}
        changed -= {"event_pending", "due_at", "due_shard", "version", "expires_at"}
        return not changed or sorted(changed)


class Event(NamedTuple):
    """An event on the bus."""

    model: Model
    detail: dict
    detail_type: str

    def check_order(self):
        """An event is published only after the final state was written."""
        return self.model.final is not None

    def check_copies(self):
        """All copies of an event are equal."""
        return self.model.event in (None, self.detail) or f"{self.model.event}, {self.detail}"

    def check_content(self):
        """An event has the values of the chain."""
        model, item, create = self.model, self.model.final, self.model.create
        expected = {
            "tag": model.workload.tag,
            "status": text(item, "status"),
            "reason": text(item, "reason"),
            "ended_at": rfc3339(number(item, "ended_at")),
            "started": model.counts[0],
            "finished": model.counts[1],
            "detail": (create and create.request.detail) or {},
        }
        if create and not model.workload.foreign:
            expected["created_at"] = rfc3339(number(item, "created_at"))
        values = {name: self.detail.get(name) for name in expected}
        return values == expected or f"{values}, expected {expected}"

    def check_detail_type(self):
        """The detail-type of an event is the status of the chain."""
        return self.detail_type == self.detail["status"]

    def check_outstanding(self):
        """An event that claims to list all outstanding units lists exactly those."""
        units = [f"{unit:016x}" for unit in sorted(self.model.outstanding)]
        traced = self.model.workload.stamp_length == TRACED_LENGTH
        claimed = traced and self.detail.get("outstanding_complete")
        return not claimed or self.detail["outstanding"] == units


class Rejection(NamedTuple):
    """A dead-lettered request; `model` is None if the request is invalid."""

    model: Model | None
    one: Submission
    reason: str

    def check_reason(self):
        """A rejection gives a reason; that of an invalid request names the invalid field."""
        return bool(self.reason) and self.one.invalid_field in self.reason

    def check_cause(self):
        """A valid request is rejected for a used id, a second create or its stamp's length."""
        model, one = self.model, self.one
        if model is None:
            return True
        if model.applied.get(one.request.id) is one:
            return f"applied, and rejected: {self.reason}"
        length = len(binary(model.item, "stamp"))
        other_length = length and length != len(one.request.stamp or bytes(length))
        return bool(model.conflicts_with(one) or other_length) or self.reason


class Deletion(NamedTuple):
    """A request of a deleted message."""

    model: Model | None
    one: Submission
    dead_lettered: bool

    def check_processed(self):
        """A message is deleted only when each request was applied, late or dead-lettered."""
        model, one = self.model, self.one
        if self.dead_lettered:
            return True
        if model is None:
            return "invalid"
        if model.applied.get(one.request.id) is one:
            return True
        return model.conflicts_with(one) or model.final is not None


class Response(NamedTuple):
    """A response of the direct API.

    Attributes:
        stamp: The returned stamp; None after an error.
        error: Name of the exception, or "".
        existed: True if the chain existed before the call.
    """

    model: Model
    one: Submission
    stamp: object
    error: str
    existed: bool

    def check_success(self):
        """A call succeeds only if its request was applied, or came late."""
        applied = self.one.request.id in self.model.applied
        return bool(self.error or applied or self.model.final)

    def check_failure(self):
        """A call raises StaleLocalData or TagNotFound only if its request was not applied."""
        return not self.error or self.one.request.id not in self.model.applied or self.error

    def check_acked(self):
        """A response says acked only of an acked chain."""
        said = self.stamp is not None and self.stamp.acked
        return not said or text(self.model.final, "status") == "acked"

    def check_existence(self):
        """TagNotFound is raised only without a chain, and TagExists never: each is created once."""
        return self.error != "TagExists" and not (self.error == "TagNotFound" and self.existed)


class End(NamedTuple):
    """A chain at the end: faults are over, queues are empty, deadlines have passed."""

    model: Model
    sent: list[Submission]

    def check_ended(self):
        """Each chain ends, unless it is created, unfinished and without a deadline."""
        model = self.model
        endless = model.item and deadline_of(model.item) is None and model.status == "open"
        return model.final is not None or bool(endless)

    def check_tombstone(self):
        """A finished chain stays as a tombstone with a TTL."""
        return self.model.final is None or number(self.model.item, "expires_at") is not None

    def check_event(self):
        """Each finished chain has its event on the bus, and none is pending."""
        published = self.model.event and "event_pending" not in (self.model.item or {})
        return self.model.final is None or bool(published)

    def check_acked(self):
        """A chain is acked if its work was sent whole, without mistakes, fails or time limits."""
        requests = [one.request for one in self.sent if one.request]
        outstanding: frozenset[int] = frozenset()
        for one in self.sent:
            outstanding ^= one.units
        exempt = any(one.name.endswith("?") for one in self.sent) or any(
            request.op in ("fail", "extend")
            or request.idle_timeout is not None
            or (request.timeout or DEFAULT_TIMEOUT) * 1000 < DEFAULT_TIMEOUT
            for request in requests
        )
        created = any(request.op == "create" for request in requests)
        must = created and not outstanding and not exempt
        return not must or text(self.model.final, "status") == "acked"


@cache
def _checkers(observation: type) -> list:
    return [method for name, method in vars(observation).items() if name.startswith("check_")]


class Oracle:
    """Keeps the models of a schedule up to date and checks the invariants."""

    def __init__(self, world: World, workloads: list[ChainWorkload]) -> None:
        self.world = world
        self.models = {workload.tag: Model(workload) for workload in workloads}
        self.submissions = {one.text: one for work in workloads for one in work.submissions}
        self.sent: set[str] = set()
        self.dead_lettered: set[str] = set()
        self._bodies: dict[str, list[Submission]] = {}

    def check(self, name: str, observation: NamedTuple) -> None:
        """Check all invariants of an observation."""
        for checker in _checkers(type(observation)):
            try:
                holds = checker(observation)
            except Exception as error:  # noqa: BLE001 - the services must not swallow it
                holds = repr(error)
            if holds is not True:
                details = f" ({holds})" if holds else ""
                self.world.violated(f"{name}: {checker.__doc__}{details}")

    def _submissions_in(self, body: str) -> list[Submission]:
        if body not in self._bodies:
            keys = [body]
            if body not in self.submissions:
                keys = [canonical(raw) for raw in json.loads(body)["requests"]]
            self._bodies[body] = [self.submissions[key] for key in keys]
        return self._bodies[body]

    def wrote(self, key: str, before: Item | None, after: Item | None) -> None:
        """Observe a write of the table."""
        if "\0" in key:
            if after is None:
                self.world.violated(f"{key}: Marks are never deleted.")
            return
        if key not in self.models:
            self.world.violated(f"{key}: Only chains of the workload are written.")
        model = self.models[key]
        model.item = after
        if after is None:
            return  # `End` has the invariant
        known = set(marks(before))
        new = [model.by_mark.get(mark) for mark in marks(after) if mark not in known]
        if self.world.trace is not None:
            names = " ".join(f"+{one.name}" for one in new if one)
            states = " -> ".join(text(item, "status") or "-" for item in (before, after))
            pending = ", event pending" if "event_pending" in after else ""
            self.world.log(f"{key} version {number(after, 'version')}: {states} {names}{pending}")
        if model.final is not None:
            self.check(key, FinalWrite(model, after, new))
            return
        for one in filter(None, new):
            model.apply(one)
        write = Write(model, before, after, new, self.world.now)
        self.check(key, write)
        if write.status in ("acked", "failed"):
            model.final = after

    def published(self, entry: dict) -> None:
        """Observe an event on the bus."""
        detail = json.loads(entry["Detail"])
        tag = detail["tag"]
        self.world.log(f"{tag}: event {detail['status']} on the bus")
        self.check(tag, Event(self.models[tag], detail, entry["DetailType"]))
        self.models[tag].event = detail

    def queued(self, body: str) -> None:
        """Observe a message that was sent to the queue."""
        self.sent.update(one.text for one in self._submissions_in(body))

    def rejected(self, body: str, reason: str) -> None:
        """Observe a message that was sent to the dead-letter queue."""
        (one,) = self._submissions_in(body)
        self.world.log(f"{one.tag} {one.name} rejected: {reason}")
        self.dead_lettered.add(one.text)
        self.check(f"{one.tag} {one.name}", Rejection(self.models.get(one.tag), one, reason))

    def deleted(self, body: str) -> None:
        """Observe that a consumer deletes a message."""
        for one in self._submissions_in(body):
            self._check_processed(one)

    def _check_processed(self, one: Submission) -> None:
        deletion = Deletion(self.models.get(one.tag), one, one.text in self.dead_lettered)
        self.check(f"{one.tag} {one.name}", deletion)

    def responded(self, one: Submission, stamp, error: str = "", existed: bool = True) -> None:
        """Observe the response to a call of the direct API."""
        self.world.log(f"{one.tag} {one.name}: {error or 'success'}")
        response = Response(self.models[one.tag], one, stamp, error, existed)
        self.check(f"{one.tag} {one.name}", response)

    def ended(self) -> None:
        """Check all messages and all chains at the end."""
        for key in sorted(self.sent):
            self._check_processed(self.submissions[key])
        for tag, model in self.models.items():
            submissions = model.workload.submissions
            sent = [one for one in submissions if one.text in self.sent or one.direct]
            if any(one.request for one in sent):
                self.check(tag, End(model, sent))
