"""The oracle: a plain model of each generation of a chain, checked at each observation.

The model is the set of requests that took effect, read from the marks that each write adds.
"""

import json
from collections import defaultdict
from hashlib import blake2b
from operator import add

from tests.simulation import invariants
from tests.simulation.model import UNMUTATED_MARK_OF, Item, Model, marks, number, text
from tests.simulation.options import MAX_SKEW, RETENTION
from tests.simulation.workload import ChainWorkload, End, Submission, canonical
from tests.simulation.world import Machine, World
from tests.support.fault_kinds import PUBLISHING
from xorack.aws.schema import COUNTERS
from xorack.core.event import rfc3339
from xorack.core.marks import NO_CONTENT, callback_key, mark_key, shared_key, step_id
from xorack.core.request import Request


def _event_id(item: Item) -> str:
    """Return the id of an ended chain's event, a part of the id of its parents' finishes."""
    times = [number(item, name) for name in ("first_seen_at", "created_at", "ended_at", "nonce")]
    identity = [text(item, "tag"), text(item, "status"), *times]
    return blake2b(json.dumps(identity).encode(), digest_size=16).hexdigest()


class Oracle:
    """Keeps the models of a schedule up to date and checks the invariants.

    Attributes:
        generations: The models of each tag, the current one last.
        sent: Texts of the requests that were sent for the current generations.
        attempts: When the creates of tasks that may run again were sent, by tag and token.
        over: Tokens of attempts that a later one has replaced.
        children: The chains that are units of a chain, by its tag: unit to tag.
        given: Chains that get the ends of children.
        expired: Texts of the requests that were sent before TTL removed their chain, by tag.
    """

    def __init__(self, world: World, workloads: list[ChainWorkload]) -> None:
        self.world = world
        self.workloads = {workload.tag: workload for workload in workloads}
        self._read_marks(workloads)
        self.attempts: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        self.over: set[str] = set()
        self.generations: dict[str, list[Model]] = defaultdict(list)
        for tag in self.workloads:
            self._new_generation(tag)
        self.invalid = Model(ChainWorkload("", []), {})
        self.submissions = {
            text: one for work in workloads for one in work.submissions for text in one.texts
        }
        self.sent: set[str] = set()
        self.given: set[str] = set()
        self.children: dict[str, dict[int, str]] = defaultdict(dict)
        for one in self.submissions.values():
            for parent in one.request.parents if one.request else ():
                for tag in parent.tags:
                    self.children[tag][parent.unit] = one.tag
        self.expired: dict[str, set[str]] = {}
        self._first_sent: dict[str, int] = {}
        self._sent_at: dict[str, set[int]] = defaultdict(set)
        self.to_delete: list[Model] = []
        self.future_until = 0
        self._bodies: dict[str, list[Submission]] = {}

    def _read_marks(self, workloads: list[ChainWorkload]) -> None:
        """Compute the marks of requests, of units and of callbacks."""
        self.by_mark = {
            workload.tag: {
                UNMUTATED_MARK_OF(one.request): one for one in workload.submissions if one.request
            }
            for workload in workloads
        }
        submissions = [one for workload in workloads for one in workload.submissions]
        self.unit_marks = {
            shared_key(mark_key(step_id(unit))) + NO_CONTENT
            for one in submissions
            for unit in one.finishes
        }
        self.waiters = {
            callback_key(form) + NO_CONTENT
            for one in submissions
            for form in one.forms
            if form and form.resume
        }

    def _new_generation(self, tag: str) -> None:
        known = self.generations[tag][-1].tokens if self.generations[tag] else set()
        self.generations[tag].append(
            Model(self.workloads[tag], self.by_mark[tag], tokens=known, over=self.over)
        )

    def model(self, tag: str) -> Model:
        """Return the model of the current generation."""
        return self.generations[tag][-1]

    def check(self, name: str, statements: invariants.Statements) -> None:
        """Check all statements about an observation."""
        try:
            broken = next((one for one in statements if one[1] is not True), None)
        except Exception as error:  # noqa: BLE001 - the services must not swallow it
            broken = "An invariant can be computed.", repr(error)
        if broken:
            statement, details = broken
            self.world.violated(f"{name}: {statement}" + (f" ({details})" if details else ""))

    def _submissions_in(self, body: str) -> list[Submission]:
        if body not in self._bodies:
            keys = [body]
            if body not in self.submissions:
                keys = [canonical(raw) for raw in json.loads(body)["requests"]]
            self._bodies[body] = [self.submissions[key] for key in keys]
        return self._bodies[body]

    def _latest(self, tag: str) -> list[Model]:
        """Return the last two generations, the current first: a machine may see the older."""
        return self.generations[tag][:-3:-1] if tag else [self.invalid]

    # -- the table -----------------------------------------------------------------------------

    def _expect_end(self, model: Model) -> None:
        """Expect the finishes that the parents of an ended chain get: no sender sends them."""
        item, create = model.final, model.create
        for parent in create.request.parents if create else ():
            for tag in parent.tags:
                if text(item, "status") == "acked":
                    finished = {"finishes": [parent.unit], "cells": parent.cells}
                    request, units = Request.stamp_(tag, "end", **finished), {parent.unit}
                else:
                    why, units = f"chain {create.tag} failed: {text(item, 'reason')}", ()
                    noted = {"text": why, "missing": [parent.unit]}
                    request = Request("note", tag, "end", **noted)
                    if create.request.fail_parent:
                        request = Request.fail(tag, "end", why)
                request = request.of_child(create.tag, _event_id(item), number(item, "ended_at"))
                one = End(tag, f"end of {create.tag}", request, frozenset(units))
                one.created_at = number(item, "created_at") or 0
                self.by_mark[tag][UNMUTATED_MARK_OF(request)] = one
                model.ends.append(one)
                self.given.add(tag)

    def wrote(self, key: str, before: Item | None, after: Item | None, by: str) -> None:
        """Observe a write of the table."""
        if "\0" in key:
            if after is None and by != "TTL":
                self.world.violated(f"{key}: Marks are never deleted.")
            return
        model = self.model(key)
        if self.world.current is not None and self.world.current.guesses_retention:
            self.world.violated(f"{key}: Nothing is written with guessed retentions.")
        if after is None:
            self.world.log(f"{key} removed by {by}")
            wanted = model in self.to_delete
            self.check(key, invariants.of_removal(model, by, self.world.now, wanted))
            self._end_generation(key, by)
            return
        counted = [(number(after, n) or 0) - (number(model.item, n) or 0) for n in COUNTERS]
        model.item = after
        if text(before, "refused") != text(after, "refused"):
            model.refused_at = self.world.now
        known = set(marks(before))
        added = [mark for mark in marks(after) if mark not in known]
        model.marked += len(self.unit_marks.intersection(added))
        others = self.unit_marks if model.final is None else set()
        new = [model.by_mark.get(mark) for mark in added if mark not in others | self.waiters]
        self._log_write(key, before, after, new)
        if new and self.world.current is not None:
            self.world.current.effects += 1
        write = invariants.Write(model, before, after, new, self.world.now, by, [], len(added))
        if model.final is None:
            self._wrote_unfinished(key, write)
        else:
            self._wrote_finished(key, write, counted)

    def _log_write(self, key: str, before: Item | None, after: Item, new: list) -> None:
        if self.world.trace is not None:
            names = " ".join(f"+{one.name}" if one else "+?" for one in new)
            states = " -> ".join(text(item, "status") or "-" for item in (before, after))
            pending = ", event pending" if "event_pending" in after else ""
            self.world.log(f"{key} version {number(after, 'version')}: {states} {names}{pending}")

    def _wrote_finished(self, key: str, write: invariants.Write, counted: list[int]) -> None:
        """Check a write of a chain that has ended."""
        model, machine = write.model, self.world.current
        if machine is not None:
            machine.counted[key] = [*map(add, counted, machine.counted[key])]
            # Marks in buckets are kept for the retention: then a repeat counts as late.
            kept = self.world.now - (number(model.final, "ended_at") or 0) < RETENTION
            kept = kept and key not in self.given  # ends of children count as late, too
            most = self._after_the_end(machine, model) if kept else None
            self.check(key, invariants.of_counted(machine.counted[key], None, most))
        self.check(key, invariants.of_finished(write))
        if "parents_pending" in (write.before or {}) and "parents_pending" not in write.after:
            parents = [self._latest(end.tag) for end in model.ends]
            self.check(key, invariants.of_given(model, parents, self.world.now))

    def _wrote_unfinished(self, key: str, write: invariants.Write) -> None:
        """Apply the requests of a write of a chain that had not ended, and check it."""
        model, before, new = write.model, write.before, write.new
        until = number(before, "marks_until")
        if until is not None and until < self.world.now and "deadline" not in (before or {}):
            model.may_repeat = True
        for one in filter(None, new):
            model.apply(one)
            if one.text in self.expired.get(key, ()) and self._was_sent_before_the_end(one):
                self.world.violated(f"{key}: No request takes effect after TTL removed its chain.")
        # A write for the end of a child has no other requests, and may precede the batch's.
        is_given = any(isinstance(one, End) for one in new)
        batch = [] if is_given or not self.world.current else self.world.current.batch
        left = [one for one in batch if one.tag == key and one.request and not model.has(one)]
        texts = [one.text for one in new if one and one.request.op == "create"]
        creates = frozenset[int]().union(*(self._sent_at[text] for text in texts))
        write = write._replace(left=left, sent_at=creates)
        self.check(key, invariants.of_unfinished(write))
        if before is None:
            self.check(key, invariants.of_start(write))
        if write.status == "acked" and not write.expired:
            units = self.children[key].items()
            chains = [(tag, self.generations[tag]) for u, tag in units if u in model.create.units]
            self.check(key, invariants.of_units(model, chains))
        if write.status in ("acked", "failed"):
            model.final = write.after
            self._expect_end(model)
            if self.world.current is not None:
                self.world.current.ended[model] = False

    def _was_sent_before_the_end(self, one: Submission) -> bool:
        """Return whether a request was first sent before the removed tombstone was half over."""
        item = self.generations[one.tag][-2].item
        last = max(number(item, "ended_at") or 0, number(item, "last_late_at") or 0)
        return self._first_sent.get(one.text, 0) < last + RETENTION - 2 * MAX_SKEW

    def _end_generation(self, tag: str, by: str) -> None:
        """Check the messages of a generation whose item was removed."""
        sent = {key for key in self.sent if self.submissions[key].tag == tag}
        self.sent -= sent
        if by == "TTL":
            self.expired[tag] = sent
        else:
            for key in sorted(sent):
                self._check_processed(self.submissions[key])
        self._new_generation(tag)

    def reused(self, tag: str) -> None:
        """Observe that a user uses a tag again."""
        for key in self.expired.pop(tag, ()):
            self._first_sent.pop(key, None)

    # -- events and messages -------------------------------------------------------------------

    def published(self, entry: dict) -> None:
        """Observe an event on the bus."""
        detail = json.loads(entry["Detail"])
        self.world.log(f"{detail['tag']}: event {detail['status']} on the bus")
        model = self.reported("event", detail, entry["DetailType"])
        model.event = detail

    def resumed(self, token: str, detail: dict, status: str) -> None:
        """Observe that a task that waits for a chain is resumed, for the first time."""
        self.world.log(f"{detail['tag']}: {token} resumed: {status}")
        model = self.reported("step_functions", detail, status)
        self.check(detail["tag"], invariants.of_resumption(model, token))
        model.tokens.add(token)

    def reported(self, report: str, detail: dict, status: str) -> Model:
        """Check a report of a chain's end, also a refused one; return the model of its chain."""
        tag = detail["tag"]
        models = reversed(self.generations[tag])
        times = ((model, rfc3339(number(model.final, "ended_at"))) for model in models)
        ended = (model for model, time in times if time == detail["ended_at"])
        model = next(ended, self.model(tag))
        self.check(tag, invariants.of_event(model, detail, status))
        machine = self.world.current
        # The machine may have read the chain before another machine was refused.
        if machine is not None and model.refused_at < machine.began:
            statements = invariants.of_attempt(model, report, self.world.now)
            self.check(tag, statements)
        return model

    def queued(self, body: str, sent_at: int) -> None:
        """Observe a message that was sent to the queue."""
        if any(one.attempts for one in self._submissions_in(body)):
            for raw in json.loads(body)["requests"]:
                if token := (raw.get("resume") or {}).get("step_functions"):
                    attempts = self.attempts[raw["tag"]]
                    self.over.update(attempts if token not in attempts else ())
                    attempts[token].append(sent_at)
        for one in self._submissions_in(body):
            self.sent.add(one.text)
            self._first_sent.setdefault(one.text, self.world.now)
            self._sent_at[one.text].add(sent_at)

    def abandoned(self, body: str) -> None:
        """Observe a dead-lettered message that is too old to go back."""
        for one in self._submissions_in(body):
            self.sent.discard(one.text)

    def rejected(self, body: str, reason: str) -> None:
        """Observe a message that was sent to the dead-letter queue."""
        for one in self._submissions_in(body):
            self.world.log(f"{one.tag} {one.name} rejected: {reason}")
            models = self._latest(one.tag)
            models[0].dead_lettered.add(one.text)
            models[0].rejected.append(one)
            age = self.world.now - self._first_sent.get(one.text, 0)
            statements = invariants.of_rejection(models, one, reason, age, self.world.now)
            self.check(f"{one.tag} {one.name}", statements)

    def deleted(self, body: str) -> None:
        """Observe that a consumer deletes a message."""
        for one in self._submissions_in(body):
            self._check_processed(one)

    def _check_processed(self, one: Submission) -> None:
        statements = invariants.of_deletion(self._latest(one.tag), one)
        self.check(f"{one.tag} {one.name}", statements)

    # -- responses -----------------------------------------------------------------------------

    def received(self, machine: Machine, batch: list) -> None:
        """Observe that a consumer begins a batch."""
        oldest = self.world.now - RETENTION + 2 * MAX_SKEW
        machine.batch = [
            one
            for message in batch
            if message.sent_at > oldest  # others are rejected entirely
            for one in self._submissions_in(message.body)
        ]
        machine.first = [
            (one, message.sent_at)
            for message in batch
            if message.receives == 1
            for one in self._submissions_in(message.body)
            if one.request is not None
        ]
        models = [self.model(tag) for tag in dict.fromkeys(one.tag for one, _ in machine.first)]
        machine.ended = {model: True for model in models if model.final}
        machine.counted.clear()

    @staticmethod
    def _after_the_end(machine: Machine, model: Model, sent_after: int = 0) -> list[int]:
        """Count the creates' copies, and the late requests, that no batch before this had."""
        counts = model.create and machine.ended.get(model, True)
        tag, create = model.workload.tag, counts and model.create.text
        mine = [one for one, sent_at in machine.first if one.tag == tag and sent_at > sent_after]
        late = [one for one in mine if not model.conflicts_with(one) and not model.has(one)]
        return [sum(one.text == create for one in mine), len(late)]

    def consumed(self, machine: Machine, failed: dict[str, str], began_at: int) -> None:
        """Observe the response of a consumer."""
        calls = (+machine.faults).keys() - PUBLISHING
        excused = machine.stalled or self.future_until >= began_at
        time_left = machine.remaining() + machine.publishing
        share = time_left / (time_left + self.world.now - began_at)
        if not (excused or calls):
            self.check(machine.name, invariants.of_batch(failed, share, machine.effects))
        # A count that fails, or meets three conflicts, is lost.
        if failed or machine.disturbed or excused or machine.faults["update_item"] >= 3:
            return
        for model in machine.ended:
            tag = model.workload.tag
            if self.model(tag) is model:
                expected = self._after_the_end(machine, model, self.world.now - RETENTION // 2)
                ended = number(model.final, "ended_at") or 0
                if self.world.now - ended > RETENTION - MAX_SKEW:
                    expected[0] = 0  # the mark of a create may have expired: a copy is rejected
                self.check(tag, invariants.of_counted(machine.counted[tag], expected, None))

    def responded(self, one: Submission, stamp, error: str = "", existed: bool = True) -> None:
        """Observe the response to a call of the direct API, or its outcome once that is known."""
        if not error:
            self.sent.add(one.text)
        self.world.log(f"{one.tag} {one.name}: {error or 'success'}")
        model = self.model(one.tag)
        statements = invariants.of_response(model, one, stamp, error, existed)
        self.check(f"{one.tag} {one.name}", statements)

    def _last(self, tag: str) -> str | None:
        """Return the token of the attempt that was sent after all others; None without attempts."""
        sent = self.attempts[tag]
        for token, times in sent.items():
            if all(max(sent[other]) < min(times) for other in sent if other != token):
                return token
        return None

    def ended(self, prompt: bool) -> None:
        """Check all messages and the chains of the last runs at the end."""
        for key in sorted(self.sent):
            self._check_processed(self.submissions[key])
        for tag, workload in self.workloads.items():
            sent = [one for one in workload.run(-1) if one.text in self.sent]
            if any(one.request for one in sent):
                self.check(tag, invariants.of_end(self.model(tag), sent, prompt, self._last(tag)))
