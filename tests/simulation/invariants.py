"""The invariants: a function for each kind of observation.

It yields statements, each with True if it holds, otherwise with False or details.
"""

import json
from collections.abc import Iterator
from operator import le
from typing import NamedTuple

from tests.simulation.model import Item, Model, binary, deadline_of, marks, number, refusals, text
from tests.simulation.options import DEFAULT_TIMEOUT, MAX_INDEX_LAG, MAX_SKEW, RETENTION
from tests.simulation.workload import End, Submission
from xorack.aws.schema import COUNTERS, FORMAT
from xorack.core.checks import MAX_COUNT
from xorack.core.marks import INLINE_MARKS, MANY_INLINE_MARKS
from xorack.core.transitions import PUBLISH_GRACE_MS
from xorack.ops.doctor.verify import check_event

Statements = Iterator[tuple[str, object]]
_LONGEST_CALL = 30 * 60_000
"""Most milliseconds between reading the clock and the write that carries the time."""
_CHANGES_AFTER_THE_END = {
    *(
        "parents_pending",
        "event_pending",
        "resume",
        "resume_sent_at",
        "resume_failed",
        "resume_pending",
        "resumed_at",
    ),
    *("refused", "refused_at", "marks", "spilled", "marks_until", "due_at", "due_shard"),
    *("repeated", "late", "last_late_at", "version", "expires_at", "format"),
}


class Write(NamedTuple):
    """A write of a chain; the model of an unfinished chain has the new requests already.

    Attributes:
        left: Requests to the chain in the writer's batch that have not taken effect.
        added: Marks that the write adds.
        sent_at: When messages with its create were sent.
    """

    model: Model
    before: Item | None
    after: Item
    new: list[Submission | None]
    now: int
    by: str
    left: list[Submission]
    added: int = 0
    sent_at: frozenset[int] = frozenset()

    @property
    def status(self) -> str:
        return text(self.after, "status") or ""

    @property
    def expired(self) -> bool:
        """True if the write ends the chain because its time is over."""
        return self.status in ("acked", "failed") and self.status != self.model.status

    def is_now(self, time: int | None) -> bool:
        """Return whether a written time is the time of the write, as far as clocks agree."""
        return time is not None and -_LONGEST_CALL <= time - self.now <= MAX_SKEW + MAX_INDEX_LAG


def of_unfinished(write: Write) -> Statements:
    """State what holds for a write of an unfinished chain."""
    yield from _requests(write)
    yield from _sums(write)
    yield from _status(write)
    yield from _expiry(write) if write.expired else ()
    yield from _times(write)


def _leaves_newer_formats(write: Write) -> tuple[str, object]:
    known = (number(write.before, "format") or FORMAT) <= FORMAT
    return "A chain of a newer format is left alone.", write.by != "code" or known


def _requests(write: Write) -> Statements:
    model, new = write.model, write.new
    yield "Each mark in an item is the mark of a request of its chain.", None not in new
    holds = not model.repeated or model.may_repeat or model.repeated
    yield "At most one request takes effect under an id.", holds
    unserved = [one for one in new if one and "lambda" in (one.request.resume or {})]
    yield "No request takes effect whose `resume` the acker cannot serve.", not unserved
    yield _leaves_newer_formats(write)
    first, before = (
        [number(item, name) for name in ("first_seen_at", "nonce")]
        for item in (write.after, write.before)
    )
    holds = first == before or write.before is None
    yield (
        "A chain keeps the time of its first write and its nonce, which tell it from others.",
        holds,
    )
    ops = {one.request.op for one in new if one}
    last = ("create", "note", "fail") if "stamp" in ops else ("note",) if "fail" in ops else ()
    waiting = [one for one in write.left if one.request.op in last]
    names = [one.name for one in waiting if not model.conflicts_with(one)]
    yield (
        "Requests of a batch take effect in order: creates, notes, fails, others.",
        names == [] or names,
    )
    most = MANY_INLINE_MARKS if 2 * write.added > INLINE_MARKS else INLINE_MARKS
    holds = not new or len(marks(write.after)) <= max(most, write.added + INLINE_MARKS - 1)
    yield "A write leaves few marks in the item: its own, and what makes no run.", holds
    yield "A unit that a step of several finishes leaves its mark.", model.marked == model.shared


def _sums(write: Write) -> Statements:
    model, after = write.model, write.after
    by_fail = [one.request.note for one in write.new if one and one.request.op == "fail"]
    note = ([*filter(None, by_fail)] or [model.note])[-1]
    holds = text(after, "note") == note
    yield "The note is that of the last request that has one; of a write, that of a fail.", holds
    stamp, length = model.stamp, len(binary(after, "stamp"))
    if model.contradicted:
        stamp &= (1 << 8 * length) - 1
    holds = int.from_bytes(binary(after, "stamp"), "little") == stamp
    yield "The stamp is the XOR of the stamps of the applied requests.", holds
    holds = length == (model.length or 0) or f"{length}, expected {model.length}"
    yield "The stamp has the length of the create's stamp, before the create of the first.", holds
    counts = (number(after, "started") or 0, number(after, "finished") or 0)
    holds = counts == model.counts or f"{counts}, expected {model.counts}"
    yield "The counts are the sums of the counts of the applied requests.", holds


def _status(write: Write) -> Statements:
    model, status, expected = write.model, write.status, write.model.status
    reason = text(write.after, "reason") or ""
    if status == "failed" and not write.expired and reason not in model.fail_reasons:
        named = all(str(length) in reason for length in model.lengths)
        holds = (model.contradicted and named) or reason
        yield "A chain that ends failed gives a sender's reason, or both lengths of stamps.", holds
    if expected == "acked" and write.by != "code":
        holds: object = status == "open"  # until our code looks at it
    else:
        by_time = write.expired and expected != "acked"
        holds = by_time or status == expected or f"{status}, expected {expected}"
    yield "The status follows from the applied requests, unless the chain ends by time.", holds
    if status == "acked" and not write.expired:
        taken = [*model.applied.values(), *model.rejected]
        left = {name for one in taken for name in one.started_work}
        left -= {name for one in model.applied.values() for name in one.finished_work}
        yield "A chain is acked only if all is done that its steps made.", not left or sorted(left)


def _expiry(write: Write) -> Statements:
    model, reason = write.model, text(write.after, "reason") or ""
    started, finished = model.counts
    if write.status == "acked" or (model.tolerates and not model.contradicted):
        holds = write.status == "acked" and model.tolerates  # only, and always
    elif model.create is None:
        holds = reason == "never created"
    elif model.outstanding or started == finished:
        holds = reason == "timed out"
    else:
        named = str(started) in reason and str(finished) in reason
        holds = reason.startswith("timed out") and named
    statement = "A chain that ends by time is never created, timed out, maybe by counts, or acked."
    yield statement, holds or reason
    yield "A write that ends a chain by time applies no request.", not write.new
    due, ended = deadline_of(write.before), number(write.after, "ended_at")
    holds = (due is not None and due <= ended) or f"due {due}, ended {ended}"
    yield "A chain does not end by time before its deadline, or its create can arrive.", holds


def _times(write: Write) -> Statements:
    ended = write.status in ("acked", "failed")
    holds = ended or write.by == "future" or _deadline_is_right(write)
    yield "The deadline of an unfinished chain is the one that its create or an extend set.", holds
    holds = write.by == "future" or _age_is_right(write)
    yield "A chain is as old as the message of its create.", holds
    time, before = (number(item, "last_stamp_at") for item in (write.after, write.before))
    stamped = any(one.request.stamp_length for one in write.new)
    holds = ended or write.is_now(time) if stamped else time == before
    yield "A stamp sets `last_stamp_at` of an unfinished chain to now, else nothing does.", holds


def _age_is_right(write: Write) -> bool:
    """Return whether a created chain is as old as a message of its create."""
    created = number(write.after, "created_at")
    create = write.model.create
    if create is None or create.direct or not write.sent_at:
        return True
    # A writer whose clock is behind takes its own time.
    behind = write.is_now(created) and created < max(write.sent_at)
    return created in write.sent_at or behind


def _deadline_is_right(write: Write) -> bool:
    deadline = number(write.after, "deadline")
    requests = {one.request.op: one for one in write.new}
    if "extend" in requests:
        return write.is_now(deadline - round(requests["extend"].request.timeout * 1000))
    if "create" in requests and not write.model.extended:
        create = requests["create"]
        if create.direct:
            return deadline is None
        timeout = create.request.timeout
        return write.is_now(
            deadline - (DEFAULT_TIMEOUT if timeout is None else round(timeout * 1000))
        )
    return write.before is None or deadline == number(write.before, "deadline")


def of_finished(write: Write) -> Statements:
    """State what holds for a write of a finished chain."""
    before, after = write.before, write.after
    yield _leaves_newer_formats(write)
    holds = ("resume" in after) == ("resume_pending" in after)
    yield "A token is in the item as long as its delivery is pending.", holds
    yield from _refusals(write)
    holds = not write.new or [one and one.name for one in write.new]
    yield "No request takes effect in a finished chain.", holds
    old = write.model.final
    changed = {name for name in {*old, *after} if old.get(name) != after.get(name)}
    changed -= _CHANGES_AFTER_THE_END
    yield "A final state never changes.", not changed or sorted(changed)
    counts, more = ([number(item, name) or 0 for name in COUNTERS] for item in (before, after))
    timed = counts == more or number(after, "last_late_at") is not None
    holds = (all(map(le, counts, more)) and timed) or f"{counts}, then {more}"
    yield "What is counted after the end only grows, and its time is written with it.", holds


def _refusals(write: Write) -> Statements:
    before, after = write.before, write.after
    old, new = refusals(before), refusals(after)
    failed = text(after, "resume_failed") or ""
    given_up = failed and "resume_pending" in before and "resume_pending" not in after
    token = json.loads(text(before, "resume") or "{}").get("step_functions")
    resumed = token in write.model.tokens
    if "resumed_at" in after and "resumed_at" not in before:
        yield "Whoever is said to be resumed was resumed.", resumed
    if token and failed.startswith("the callback is gone"):
        yield "Whoever waits is not said to wait no more.", resumed or token in write.model.over
    given_up = given_up and not failed.startswith("the callback is gone")
    first, _ = old.get("step_functions", (write.now, 0))
    holds = not given_up or write.now - first >= 86_400_000 - 2 * MAX_SKEW
    yield "A callback is given up a day after its own first refusal.", holds
    for report, (first, due) in new.items():
        if report not in old:
            holds = write.is_now(first) and due - first == 60_000
        else:
            began, last = old[report]
            least = last + min(60_000 + last - began, 3_600_000)
            holds = first == began and (due == last or due >= least)
        statement = "A wait for a refused report is a minute and all waits before it, or an hour."
        yield statement, holds or f"{old}, then {new}"
    pending = {"event": "event_pending", "step_functions": "resume_pending"}
    pending["parents"] = "parents_pending"
    at_once = (0, number(after, "ended_at") + PUBLISH_GRACE_MS)
    times = [new.get(one, at_once)[1] for one, name in pending.items() if name in after]
    at, due_at = min(times, default=None), number(after, "due_at")
    # A task that waits after the end is answered at once: the sweeper comes later.
    latest = write.now + PUBLISH_GRACE_MS + MAX_SKEW if at and "resume_sent_at" in after else 0
    ended_at = number(after, "ended_at")  # a sweep reports at once what it has ended
    holds = due_at in (at, at and ended_at) or (
        due_at is not None and at - 2 * MAX_SKEW <= due_at <= latest
    )
    yield "The sweeper looks when the first of the pending reports is due.", holds or str(times)


def of_start(write: Write) -> Statements:
    """State what holds for the first write of a chain."""
    ends = [one for one in write.new if isinstance(one, End)]
    holds = not any(one.is_older_than(RETENTION + _LONGEST_CALL, write.now) for one in ends)
    yield "The end of a chain that is older than the retention starts no parent.", holds


def of_units(model: Model, children: list[tuple[str, list[Model]]]) -> Statements:
    """State what holds for a chain that is acked and whose units are chains."""
    for tag, models in children:
        holds = any(text(one.final, "status") == "acked" for one in models) or tag
        yield "A chain is acked only if each chain that is a unit of it is acked.", holds


def of_given(model: Model, parents: list[list[Model]], now: int) -> Statements:
    """State what holds when a chain's report to its parents is marked as made.

    `parents` are the last generations of the parent of each of `model.ends`.
    """
    for end, models in zip(model.ends, parents, strict=True):
        is_dropped = models[0].item is None and end.is_older_than(RETENTION - MAX_SKEW, now)
        is_given = any(one.final or one.has(end) or one.conflicts_with(end) for one in models)
        holds = is_dropped or is_given or f"{end.tag} lacks the {end.name}"
        yield "A report to parents is made when each has the end, has ended, or rejects it.", holds


def of_attempt(model: Model, report: str, now: int) -> Statements:
    """State what holds for a report that is made, also for one that is refused."""
    _, due = refusals(model.item).get(report, (0, 0))
    holds = due <= now + MAX_SKEW or f"{due - now} ms early"
    yield "A refused report is not made again before its time.", holds


def of_callback(model: Model, since: int) -> Statements:
    """State what holds long after a service for callbacks works again, while the bus is down."""
    ended = number(model.final, "ended_at")
    waits = ended is not None and ended < since and "resume_pending" in (model.item or {})
    yield "No callback waits for a bus that is down.", not waits or bool(refusals(model.item))


def of_counted(counted: list[int], least: list[int] | None, most: list[int] | None) -> Statements:
    """State what an invocation adds to the counters of an ended chain.

    The arguments are pairs of numbers: copies of creates, and late requests. The invocation
    `counted` a pair. Its batch had `least` for the first time after the end, and `most` for the
    first time.
    """
    if most is not None:
        holds = all(map(le, counted, most)) or f"{counted} of {most}"
        yield "Only what comes for the first time is counted after the end, and only once.", holds
    if least is not None:
        holds = all(map(le, least, counted)) or f"{counted} of {least}"
        yield "What comes for the first time after the end is counted, unless a call fails.", holds


def of_event(model: Model, detail: dict, detail_type: str) -> Statements:
    """State what holds for an event on the bus."""
    yield "An event is published only after the final state was written.", model.final is not None
    equal = model.event in (None, detail)
    yield "All copies of an event are equal.", equal or f"{model.event}, {detail}"
    found = [*check_event(detail_type, detail, model.expected)]
    yield "An event is that of its chain; it names all units if it says so.", found == [] or found
    noted = sorted(json.loads(model.note or "{}").get("missing", ()))
    if "outstanding" in detail and noted and not detail["outstanding_named"]:
        holds = detail["outstanding"] == noted and not detail["outstanding_complete"]
        yield "Where the stamp names no unit, the event has those of the note, incomplete.", holds
    started, finished = model.counts
    left = started - finished
    tell = 0 < started < MAX_COUNT and left >= any(binary(model.final, "stamp"))
    known = left if tell else None
    holds = detail.get("outstanding_units", known) == known
    yield "An event counts the outstanding units, if senders count them.", holds


def of_rejection(
    models: list[Model], one: Submission, reason: str, age: int, now: int
) -> Statements:
    """State what holds for a dead-lettered request; the last generation comes first."""
    too_old = reason.startswith("sent_at") and age > RETENTION - MAX_SKEW
    holds = too_old or (bool(reason) and one.invalid_field in reason)
    yield "A rejection gives a reason; that of an invalid request names the invalid field.", holds
    request = one.request
    if request is None:
        return
    # Before a create of another length, the same stamp may have been rejected. A create whose mark
    # was spilled, and kept for the retention after the end, is a second one then.
    ended = number(models[0].final, "ended_at")
    forgotten = request.op == "create" and ended and now - ended > RETENTION - MAX_SKEW
    if not forgotten and all(model.has(one) and not model.contradicted for model in models):
        cause: object = f"applied, and rejected: {reason}"
    else:
        cause = bool(forgotten) or any(model.may_reject(one) for model in models) or reason
    statement = "A valid request is rejected for a used id, a second or late create or its length."
    yield statement, too_old or cause
    if request.op == "create" and models[0].end == "never created":
        holds = request.id in models[0].applied or "never created" in reason
        yield "A create that comes after `never created` is rejected with that reason.", holds


def of_deletion(models: list[Model], one: Submission) -> Statements:
    """State what holds for a request of a deleted message."""
    problems = [model.processed(one) for model in models]
    statement = "A message is deleted only when each request was applied, late or dead-lettered."
    yield statement, "" in problems or problems[0]


def of_removal(model: Model, by: str, now: int, wanted: bool) -> Statements:
    """State what holds for a removal of a chain's item from the table."""
    holds = model.final is None or model.event is not None
    yield "Only chains whose event was published are removed.", holds
    if by == "TTL":
        ended = number(model.final, "ended_at")
        holds = ended is not None and now >= ended + RETENTION - MAX_SKEW
        yield "TTL removes only finished chains, after the retention.", holds
    else:
        yield "A call of `delete` removes only the generation that its caller saw.", wanted


def of_batch(failed: dict[str, str], time_left: float, effects: int) -> Statements:
    """State what holds for a consumer's batch of which no call failed but those of the bus.

    `time_left` is the share of the time that was left, as if publishing had taken none.
    """
    holds = not failed or time_left < 0.75 or str(failed)
    yield "A message fails by the table, the dead-letter queue or time, not by events.", holds
    holds = not failed or effects > 0 or str(failed)
    yield "An invocation for which the time is too short makes progress.", holds


def of_response(
    model: Model, one: Submission, stamp: object, error: str, existed: bool
) -> Statements:
    """State what holds for a response of the direct API: a stamp, or the name of an exception."""
    holds = bool(error or model.has(one) or model.final)
    yield "A call succeeds only if its request was applied, or came late.", holds
    holds = not error or not model.has(one) or error
    yield "A call raises StaleLocalData or TagNotFound only if its request was not applied.", holds
    acked = text(model.final, "status") == "acked"
    said = stamp is not None and stamp.acked
    yield "A response says acked only of an acked chain.", not said or acked
    if error == "TagExists":
        holds = model.create is not None or model.final is not None
    else:
        holds = error != "TagNotFound" or not existed
    yield "TagNotFound is raised only without a chain, TagExists only after another create.", holds


def of_resumption(model: Model, token: str) -> Statements:
    """State what holds for the answer to a task that waits for a chain."""
    named = [one.resume["step_functions"] for one in model.create.forms if one.resume]
    yield "Only whoever the create names is resumed.", token in named or str(named)


def of_end(model: Model, sent: list[Submission], prompt: bool, last: str | None) -> Statements:
    """State what holds at the end: faults are over, queues are empty, deadlines have passed.

    `prompt` is true if dead messages were redriven at once. `last` is the token of the attempt that
    was sent last, if that is known.
    """
    item = model.item or {}
    endless = model.item and deadline_of(model.item) is None and model.status == "open"
    statement = "Each chain ends, unless it is created, unfinished and without a deadline."
    yield statement, model.final is not None or bool(endless)
    if model.final is not None:
        tombstone = number(model.item, "expires_at") is not None
        yield "A finished chain stays as a tombstone with a TTL.", tombstone
        published = bool(model.event) and "event_pending" not in item
        yield "Each finished chain has its event on the bus, and none is pending.", published
        given = "parents_pending" not in item
        yield "Each parent has the ends of its children, and none is pending.", given
        resume = model.create and model.create.request.resume
        if resume:
            given_up = "resume_failed" in item and "nobody" not in text(item, "resume_failed")
            resumed = model.tokens or "resume_failed" in item
            if last and model.create.attempts:
                resumed = last in model.tokens
            holds = bool(resumed or given_up) and "resume_pending" not in item
            yield "Whoever waits is resumed or given up, and nothing is pending.", holds
    if prompt and _is_complete(model, sent):
        holds = text(model.final, "status") == "acked"
        yield (
            "A chain is acked if all its work was sent, without mistakes, fails, time limits.",
            holds,
        )


def _is_complete(model: Model, sent: list[Submission]) -> bool:
    """Return whether the requests that were sent to a chain must make it acked."""
    requests = [one.request for one in sent if one.request]
    outstanding: frozenset[int] = frozenset()
    work = {name for one in sent for name in one.started_work}
    done = {name for one in sent for name in one.finished_work}
    for one in sent:
        outstanding ^= one.units if not one.finishes and not done else frozenset()
    others = model.applied.keys() - {request.id for request in requests}
    mistakes = any(one.name.endswith("?") or one.created_late for one in sent)
    limited = any(
        request.op in ("fail", "extend")
        or request.idle_timeout is not None
        or (request.timeout or DEFAULT_TIMEOUT) * 1000 < DEFAULT_TIMEOUT
        for request in requests
    )
    created = any(request.op == "create" for request in requests)
    # The root is started by the create.
    orphans = done - work - {model.workload.tag}
    left = outstanding or orphans or work - done or (done and model.workload.tag not in done)
    return created and not (left or others or mistakes or limited)
