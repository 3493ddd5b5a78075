"""The invariants: a class for each kind of observation.

Its methods that begin with `check_` return True if the invariant, which the docstring states,
holds; otherwise False or details.
"""

import json
from operator import le
from typing import NamedTuple

from measure.judge import check_event
from tests.simulation.model import Item, Model, binary, deadline_of, marks, number, text
from tests.simulation.options import DEFAULT_TIMEOUT, MAX_INDEX_LAG, MAX_SKEW, RETENTION
from tests.simulation.workload import Submission
from xorack.aws.schema import COUNTERS, FORMAT
from xorack.core.marks import INLINE_MARKS

_LONGEST_CALL = 30 * 60_000
"""Most milliseconds between reading the clock and the write that carries the time."""


class Write(NamedTuple):
    """A write of an unfinished chain; the model has the new requests already.

    Attributes:
        left: Requests to the chain in the writer's batch that have not taken effect.
    """

    model: Model
    before: Item | None
    after: Item
    new: list[Submission | None]
    now: int
    by: str
    left: list[Submission]

    @property
    def status(self):
        return text(self.after, "status") or "open"  # xor-ack-dynamodb writes no status

    @property
    def reason(self):
        return text(self.after, "reason") or ""

    @property
    def expired(self):
        """True if it ends the chain by time."""
        return self.status == "failed" != self.model.status

    def is_now(self, time):
        """Tell if a written time is the time of the write, as far as clocks agree."""
        return time is not None and -_LONGEST_CALL <= time - self.now <= MAX_SKEW + MAX_INDEX_LAG

    def check_marks(self):
        """Each mark in an item is the mark of a request of its chain."""
        return None not in self.new

    def check_exactly_once(self):
        """At most one request takes effect under an id."""
        return not self.model.repeated or self.model.repeated

    def check_resume(self):
        """No request takes effect whose `resume` the acker cannot serve."""
        return not any(one and "lambda" in (one.request.resume or {}) for one in self.new)

    def check_format(self):
        """A chain of a newer format is left alone."""
        return self.by != "code" or (number(self.before, "format") or FORMAT) <= FORMAT

    def check_generation(self):
        """A chain keeps the time of its first write and its nonce, which tell it from others."""
        first, before = (
            [number(item, name) for name in ("first_seen_at", "nonce")]
            for item in (self.after, self.before)
        )
        return self.model.workload.foreign or first == before or self.before is None

    def check_note(self):
        """The note is that of the last applied request that has one; of a write, that of a fail."""
        by_fail = [one.request.note for one in self.new if one and one.request.op == "fail"]
        return text(self.after, "note") == ([*filter(None, by_fail)] or [self.model.note])[-1]

    def check_stamp(self):
        """The stamp is the XOR of the stamps of the applied requests."""
        stamp = binary(self.after, "stamp")
        expected = self.model.stamp
        if self.model.contradicted:
            expected &= (1 << 8 * len(stamp)) - 1
        return int.from_bytes(stamp, "little") == expected

    def check_stamp_length(self):
        """The stamp has the length of the create's stamp, before the create that of the first."""
        length = len(binary(self.after, "stamp"))
        return length == (self.model.length or 0) or f"{length}, expected {self.model.length}"

    def check_reason(self):
        """A chain that ends failed gives a reason: a sender's, or both lengths of stamps."""
        if self.status != "failed" or self.expired or self.reason in self.model.fail_reasons:
            return True
        named = all(str(length) in self.reason for length in self.model.lengths)
        return (self.model.contradicted and named) or self.reason

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
        if expected == "acked" and self.by != "code":
            return self.status == "open"  # until our code looks at it
        by_time = self.expired and expected != "acked"
        return by_time or self.status == expected or f"{self.status}, expected {expected}"

    def check_order_within_a_batch(self):
        """No stamp takes effect while a create, note or fail of its batch is left, no fail while a
        note is."""
        new = {one.request.op for one in self.new if one}
        last = ("create", "note", "fail") if "stamp" in new else ("note",) if "fail" in new else ()
        first = [one for one in self.left if one.request.op in last]
        names = [one.name for one in first if not self.model.conflicts_with(one)]
        return names == [] or names

    def check_expiration_reason(self):
        """A chain that ends by time is never created, or timed out, perhaps with wrong counts."""
        if not self.expired:
            return True
        if self.model.create is None:
            return self.reason == "never created" or self.reason
        started, finished = self.model.counts
        if self.model.outstanding or started == finished:
            return self.reason == "timed out" or self.reason
        named = str(started) in self.reason and str(finished) in self.reason
        return (self.reason.startswith("timed out") and named) or self.reason

    def check_expiration_alone(self):
        """A write that ends a chain by time applies no request."""
        return not self.expired or not self.new

    def check_expiration_time(self):
        """A chain does not end by time before its deadline, or before its create can arrive."""
        if not self.expired:
            return True
        due, ended = deadline_of(self.before), number(self.after, "ended_at")
        return (due is not None and due <= ended) or f"due {due}, ended {ended}"

    def check_deadline(self):
        """The deadline of an unfinished chain is the one that its create or an extend set."""
        deadline = number(self.after, "deadline")
        requests = {one.request.op: one for one in self.new}
        if self.status in ("acked", "failed") or self.by == "future":
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
        """A stamp sets `last_stamp_at` of an unfinished chain to the current time, else nothing."""
        time, before = (number(item, "last_stamp_at") for item in (self.after, self.before))
        if any(one.request.stamp for one in self.new):
            return self.status in ("acked", "failed") or self.is_now(time)
        return time == before


class FinalWrite(NamedTuple):
    """A write of a finished chain."""

    model: Model
    before: Item
    after: Item
    new: list[Submission | None]
    now: int
    by: str

    check_format = Write.check_format

    def check_token(self):
        """A token is in the item as long as its delivery is pending."""
        return ("resume" in self.after) == ("resume_pending" in self.after)

    def check_patience(self):
        """A callback is given up a day after its first refusal."""
        if "resume_failed" not in self.after or "resume_failed" in self.before:
            return True
        return self.now - number(self.after, "refused_at") >= 86_400_000 - 2 * MAX_SKEW

    def check_no_request(self):
        """No request takes effect in a finished chain."""
        return not self.new or [one and one.name for one in self.new]

    def check_unchanged(self):
        """A final state never changes."""
        old, new = self.model.final, self.after
        changed = {name for name in {*old, *new} if old.get(name) != new.get(name)}
        changed -= {
            "event_pending",
            "resume",
            "resume_failed",
            "resume_pending",
            "resumed_at",
            "refused_at",
            "due_at",
            "due_shard",
            "repeated",
            "late",
            "last_late_at",
            "version",
            "expires_at",
            "format",
        }
        return not changed or sorted(changed)

    def check_counts_after_the_end(self):
        """What is counted after the end only grows, and its time is written with it."""
        before, after = ([number(i, n) or 0 for n in COUNTERS] for i in (self.before, self.after))
        grown = all(new >= old for old, new in zip(before, after, strict=True))
        timed = before == after or number(self.after, "last_late_at") is not None
        return (grown and timed) or f"{before}, then {after}"


class Counts(NamedTuple):
    """What an invocation added to the counters of an ended chain: copies of creates, late requests.

    Attributes:
        most: How many of both its batch had for the first time; None if it goes on.
        least: How many of these came after the end and must have been counted.
    """

    counted: list[int]
    most: list[int] | None = None
    least: list[int] | None = None

    def check_most(self):
        """Only what comes for the first time is counted after the end, and only once."""
        most = self.most or self.counted
        return all(map(le, self.counted, most)) or f"{self.counted} of {most}"

    def check_least(self):
        """What comes for the first time after the end is counted, unless a call fails."""
        least = self.least or self.counted
        return all(map(le, least, self.counted)) or f"{self.counted} of {least}"


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
        """An event has the values of its chain; it names all outstanding units if it claims to."""
        found = [*check_event(self.detail_type, self.detail, self.model.expected)]
        return found == [] or found

    def check_noted_units(self):
        """Where the stamp names no unit, the event has those of the note, and is not complete."""
        failed = text(self.model.final, "status") == "failed"
        noted = sorted(json.loads(self.model.note or "{}").get("missing", ()))
        if not (failed and noted) or self.detail["outstanding_named"]:
            return True
        return self.detail["outstanding"] == noted and not self.detail["outstanding_complete"]

    def check_outstanding_units(self):
        """An event counts the outstanding units, if senders count them."""
        started, finished = self.model.counts
        left = started - finished
        known = left if started and left >= any(binary(self.model.final, "stamp")) else None
        return self.detail.get("outstanding_units", known) == known


class Rejection(NamedTuple):
    """A dead-lettered request; the models are those of the last two generations."""

    models: list[Model]
    one: Submission
    reason: str
    age: int

    @property
    def too_old(self):
        """True if it is rejected because its message is older than the retention."""
        return self.reason.startswith("sent_at") and self.age > RETENTION - MAX_SKEW

    def check_reason(self):
        """A rejection gives a reason; that of an invalid request names the invalid field."""
        return self.too_old or (bool(self.reason) and self.one.invalid_field in self.reason)

    def check_cause(self):
        """A valid request is rejected for a used id, a second or late create or its length."""
        if self.one.request is None or self.too_old:
            return True
        # Before a create of another length, the same stamp may have been rejected.
        if all(model.has(self.one) and not model.contradicted for model in self.models):
            return f"applied, and rejected: {self.reason}"
        return any(model.may_reject(self.one) for model in self.models) or self.reason

    def check_late_create(self):
        """A create that comes after `never created` is rejected with that reason."""
        model, request = self.models[0], self.one.request
        created = request is None or request.op != "create" or model.end != "never created"
        return created or request.id in model.applied or "never created" in self.reason


class Deletion(NamedTuple):
    """A request of a deleted message; the models are those of the last two generations."""

    models: list[Model]
    one: Submission

    def check_processed(self):
        """A message is deleted only when each request was applied, late or dead-lettered.

        A request that must be rejected is not late: it is dead-lettered.
        """
        problems = [model.processed(self.one) for model in self.models]
        return "" in problems or problems[0]


class Removal(NamedTuple):
    """A chain's item is removed from the table."""

    model: Model
    by: str
    now: int
    wanted: bool

    def check_ttl(self):
        """TTL removes only finished chains, after the retention."""
        if self.by != "TTL":
            return True
        ended = number(self.model.final, "ended_at")
        return ended is not None and self.now >= ended + RETENTION - MAX_SKEW

    def check_event(self):
        """TTL removes only chains whose event was published."""
        return self.by != "TTL" or self.model.event is not None

    def check_delete(self):
        """A call of `delete` removes only the generation that its caller saw."""
        return self.by == "TTL" or self.wanted


class Batch(NamedTuple):
    """An invocation of the consumer without a crash.

    Attributes:
        failed: Messages to deliver again: id to reason.
        excused: True if a call to the table or the dead-letter queue failed, a failed condition
            included, or newer code held a chain.
        time_left: Share of the time that was left, as if publishing had taken no time.
        effects: Writes of requests.
    """

    failed: dict[str, str]
    excused: bool
    time_left: float
    effects: int

    def check_cause(self):
        """A message fails because of the table, the dead-letter queue or time, not of events."""
        return not self.failed or self.excused or self.time_left < 0.75 or str(self.failed)

    def check_progress(self):
        """An invocation for which the time is too short makes progress."""
        return not self.failed or self.excused or self.effects > 0 or str(self.failed)


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
        return bool(self.error or self.model.has(self.one) or self.model.final)

    def check_failure(self):
        """A call raises StaleLocalData or TagNotFound only if its request was not applied."""
        return not self.error or not self.model.has(self.one) or self.error

    def check_acked(self):
        """A response says acked only of an acked chain."""
        said = self.stamp is not None and self.stamp.acked
        return not said or text(self.model.final, "status") == "acked"

    def check_existence(self):
        """TagNotFound is raised only without a chain, TagExists only after another create."""
        if self.error == "TagExists":
            return self.model.create is not None or self.model.final is not None
        return self.error != "TagNotFound" or not self.existed


class Resumption(NamedTuple):
    """A result for whoever waits for a chain."""

    model: Model
    token: str

    def check_token(self):
        """Only whoever the create names is resumed."""
        create = self.model.create
        resume = create and create.request.resume
        return bool(resume and resume["step_functions"] == self.token) or str(resume)


class End(NamedTuple):
    """A chain at the end: faults are over, queues are empty, deadlines have passed.

    Attributes:
        prompt: True if dead messages were redriven at once, not after weeks.
        tokens: Whoever was resumed.
    """

    model: Model
    sent: list[Submission]
    prompt: bool
    tokens: set[str]

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

    def check_resumed(self):
        """Whoever waits for a finished chain is resumed or given up, and nothing is pending."""
        create = self.model.create
        if self.model.final is None or create is None or create.request.resume is None:
            return True
        resumed = create.request.resume["step_functions"] in self.tokens
        item = self.model.item or {}
        return (resumed or "resume_failed" in item) and "resume_pending" not in item

    def check_acked(self):
        """A chain is acked if its work was sent whole, without mistakes, fails or time limits."""
        requests = [one.request for one in self.sent if one.request]
        outstanding: frozenset[int] = frozenset()
        for one in self.sent:
            outstanding ^= one.units
        strangers = self.model.applied.keys() - {request.id for request in requests}
        exempt = (
            strangers
            or any(one.name.endswith("?") or one.created_late for one in self.sent)
            or any(
                request.op in ("fail", "extend")
                or request.idle_timeout is not None
                or (request.timeout or DEFAULT_TIMEOUT) * 1000 < DEFAULT_TIMEOUT
                for request in requests
            )
        )
        created = any(request.op == "create" for request in requests)
        must = self.prompt and created and not outstanding and not exempt
        return not must or text(self.model.final, "status") == "acked"
