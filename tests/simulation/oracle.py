"""What must hold, told apart from how the acker does it.

The oracle keeps, for each chain, a plain set of the requests that took effect, and from it what the
chain must look like. It watches the table (each write of a chain), the bus, the dead-letter queue
and what consumers are done with; and looks at everything once more at the end.

Which requests a write applied it reads from the marks in the item: a mark without its effect, or an
effect without its mark, does not add up.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from tests.simulation.aws import Item, Table
from tests.simulation.plan import Asked, ChainPlan, canonical
from tests.simulation.world import Machine, World
from xorack.core.event import rfc3339
from xorack.core.marks import INLINE_MARKS, MARK_BYTES, mark_of
from xorack.core.stamp import TRACED_LENGTH

MARK = mark_of  # as it is now, whatever a mutant makes of it
_KEPT = ("event_pending", "due_at", "due_shard", "version", "expires_at")
_LONGEST = 30 * 60_000
"""Most milliseconds between reading the clock and the write that carries what was read."""


class Truth:
    """What is true of one chain."""

    def __init__(self, plan: ChainPlan) -> None:
        self.plan = plan
        self.by_mark = {MARK(one.request): one for one in plan.asked if one.request is not None}
        self.applied: dict[str, Asked] = {}
        self.stamp = 0
        self.started = self.finished = 0
        self.left: set[int] = set()
        self.create: Asked | None = None
        self.failing: set[str] = set()
        self.extended = False
        self.final: Item | None = None
        self.event: dict | None = None
        self.foreign = False

    def take(self, one: Asked) -> None:
        request = one.request
        assert request is not None
        self.applied[request.id] = one
        self.stamp ^= int.from_bytes(request.stamp or b"", "little")
        self.started += request.started
        self.finished += request.finished
        self.left ^= set(one.starts) ^ set(one.finishes)
        if request.op == "create":
            self.create = one
        elif request.op == "fail":
            self.failing.add(request.reason or "fail was asked")
        elif request.op == "extend":
            self.extended = True

    @property
    def done(self) -> bool:
        """Whether it is created and no work is left."""
        return self.create is not None and not self.left and self.started == self.finished


def _number(item: Item | None, name: str) -> int | None:
    return int(item[name]["N"]) if item and name in item else None


def _text(item: Item | None, name: str) -> str | None:
    return item[name]["S"] if item and name in item else None


def _marks(item: Item | None) -> list[bytes]:
    data = bytes(item["marks"]["B"]) if item and "marks" in item else b""
    return [data[at : at + MARK_BYTES] for at in range(0, len(data), MARK_BYTES)]


class Oracle:
    """Judges a schedule."""

    def __init__(
        self, world: World, plans: list[ChainPlan], table: Table, default_timeout: int, skew: int
    ) -> None:
        self.world = world
        self.table = table
        self.default_timeout = default_timeout
        self.skew = skew
        self.truths = {plan.tag: Truth(plan) for plan in plans}
        self.asked = {one.text: one for plan in plans for one in plan.asked}
        self.sent: dict[str, Asked] = {}
        self.letters: dict[str, str] = {}
        self.done: set[str] = set()

    def _must(self, holds: object, tag: str, why: str) -> None:
        if not holds:
            self.world.violated(f"{tag}: {why}")

    def _in_body(self, body: str) -> list[Asked]:
        if body in self.asked:
            return [self.asked[body]]
        return [self.asked[canonical(raw)] for raw in json.loads(body)["requests"]]

    # -- the table -----------------------------------------------------------------------------

    def foreign_write(self, tag: str, one: Asked) -> None:
        """xor-ack-dynamodb is about to write a request's stamp, without a mark."""
        truth = self.truths[tag]
        truth.take(one)
        truth.foreign = True

    def wrote(self, key: str, before: Item | None, after: Item | None) -> None:
        """An item was written."""
        if "\0" in key:
            self._must(after is not None, key, "a mark was deleted")
            return
        truth = self.truths.get(key)
        if truth is None:
            self.world.violated(f"{key}: a chain that nobody asked for")
            return
        if after is None:
            return  # what is wrong with that shows when something comes for it
        if truth.foreign:
            truth.foreign = False
            return
        known = set(_marks(before))
        new = []
        for mark in _marks(after):
            if mark not in known:
                one = truth.by_mark.get(mark)
                self._must(one, key, f"mark {mark.hex()} is no request's")
                assert one is not None
                assert one.request is not None
                self._must(
                    one.request.id not in truth.applied,
                    key,
                    f"request {one.name} applied though id {one.request.id} was",
                )
                new.append(one)
        if self.world.trace is not None:
            self._tell(key, before, after, new)
        if truth.final is not None:
            self._unchanged(key, truth.final, after, new)
            return
        for one in new:
            truth.take(one)
        self._adds_up(key, truth, after)
        self._must(
            not new or len(_marks(after)) <= max(INLINE_MARKS, len(new)),
            key,
            "too many marks in the item",
        )
        self._state(key, truth, before, after, new)

    def _tell(self, key: str, before: Item | None, after: Item, new: list[Asked]) -> None:
        names = " ".join(f"+{one.name}" for one in new)
        states = [_text(item, "status") or "-" for item in (before, after)]
        state = states[1] if states[0] == states[1] else " -> ".join(states)
        event_pending = ", event owed" if "event_pending" in after else ""
        self.world.tell(
            self.world.current,
            f"{key} rev {_number(after, 'version')}: {state} {names}{event_pending}",
        )

    def _unchanged(self, key: str, final: Item, after: Item, new: list[Asked]) -> None:
        names = " ".join(one.name for one in new)
        self._must(not new, key, f"applied to a finished chain: {names}")
        changed = {
            name
            for name in final.keys() | after.keys()
            if name not in _KEPT and final.get(name) != after.get(name)
        }
        self._must(not changed, key, f"a final state changed: {sorted(changed)}")

    def _adds_up(self, key: str, truth: Truth, item: Item) -> None:
        stamp = int.from_bytes(bytes(item["stamp"]["B"]) if "stamp" in item else b"", "little")
        self._must(stamp == truth.stamp, key, "the stamp is not that of the applied requests")
        counts = (_number(item, "started") or 0, _number(item, "finished") or 0)
        self._must(
            counts == (truth.started, truth.finished),
            key,
            f"counts {counts}, of the applied requests {truth.started, truth.finished}",
        )

    def _state(
        self, key: str, truth: Truth, before: Item | None, item: Item, new: list[Asked]
    ) -> None:
        status = _text(item, "status") or "open"  # the other tool writes none
        reason = _text(item, "reason")
        if status == "acked":
            self._must(truth.done, key, f"acked with work left: {len(truth.left)} units")
            self._must(not truth.failing, key, "acked though fail was asked")
        elif status == "failed" and reason in truth.failing:
            self._must(truth.create, key, "failed before it was created")
        elif status == "failed":
            self._must(not new, key, f"failed by requests, reason {reason!r}")
            created = truth.create is not None
            self._must(
                reason == ("timed out" if created else "never created"), key, f"reason {reason!r}"
            )
            due = self.due(before)
            self._must(due is not None, key, "timed out without a deadline")
            ended = _number(item, "ended_at")
            self._must(
                due is not None and ended is not None and ended >= due,
                key,
                f"timed out {due and ended and due - ended} ms early",
            )
        else:
            self._must(not truth.done, key, "all work is done, and it is not acked")
            self._must(not (truth.create and truth.failing), key, "fail was asked and forgotten")
            self._must(status == ("open" if truth.create else "pending"), key, f"status {status}")
            self._deadlines(key, truth, before, item, new)
            return
        truth.final = item

    def _deadlines(
        self, key: str, truth: Truth, before: Item | None, item: Item, new: list[Asked]
    ) -> None:
        """The deadline is what the requests said, counted from when they were applied."""
        deadline = _number(item, "deadline")
        now = self.world.now

        def near(at: int | None) -> bool:
            return at is not None and now - _LONGEST <= at <= now + self.skew

        extends = [one.request for one in new if one.request and one.request.op == "extend"]
        creates = [one for one in new if one.request and one.request.op == "create"]
        if extends:
            self._must(
                any(near((deadline or 0) - round((e.timeout or 0) * 1000)) for e in extends),
                key,
                "extended to another deadline",
            )
        elif creates and not truth.extended:
            (create,) = creates
            assert create.request is not None
            timeout = create.request.timeout
            span = self.default_timeout if timeout is None else round(timeout * 1000)
            if create.direct:
                self._must(deadline is None, key, "the direct API set a deadline")
            else:
                created = _number(item, "created_at")
                self._must(
                    near(created) and deadline == (created or 0) + span, key, "another deadline"
                )
        elif before is not None:
            self._must(deadline == _number(before, "deadline"), key, "the deadline moved")
        if any(one.request and one.request.stamp for one in new):
            self._must(near(_number(item, "last_stamp_at")), key, "last_stamp_at is not now")

    @staticmethod
    def due(item: Item | None) -> int | None:
        """When a chain that is not finished must end, as its item says."""
        times = []
        if (deadline := _number(item, "deadline")) is not None:
            times.append(deadline)
        idle, touched = _number(item, "idle_timeout"), _number(item, "last_stamp_at")
        if idle is not None and touched is not None:
            times.append(touched + idle)
        return min(times, default=None)

    # -- events --------------------------------------------------------------------------------

    def published(self, entry: dict) -> None:
        """The bus took an event."""
        detail = json.loads(entry["Detail"])
        tag = detail["tag"]
        self.world.tell(self.world.current, f"{tag}: event {detail['status']} on the bus")
        truth = self.truths[tag]
        item = truth.final
        if item is None:
            self.world.violated(f"{tag}: its event is out before its state is written")
            return
        if truth.event is not None:
            self._must(detail == truth.event, tag, f"two events: {truth.event} and {detail}")
            return
        truth.event = detail
        ended = _number(item, "ended_at")
        expected = {
            "tag": tag,
            "status": _text(item, "status"),
            "ended_at": rfc3339(ended),
            "started": truth.started,
            "finished": truth.finished,
            "detail": (truth.create and truth.create.request and truth.create.request.detail) or {},
        }
        if truth.create is not None and not truth.plan.foreign:
            expected["created_at"] = rfc3339(_number(item, "created_at"))
        if expected["status"] == "failed":
            expected["reason"] = _text(item, "reason")
        told = {name: detail.get(name) for name in expected}
        self._must(told == expected, tag, f"the event says {told}, not {expected}")
        self._must(entry["DetailType"] == expected["status"], tag, "another detail-type")
        if detail.get("outstanding_complete") and truth.plan.length == TRACED_LENGTH:
            left = [f"{unit:016x}" for unit in sorted(truth.left)]
            self._must(detail["outstanding"] == left, tag, "other units are outstanding")

    # -- queues --------------------------------------------------------------------------------

    def queued(self, body: str) -> None:
        """The queue took a message."""
        for one in self._in_body(body):
            self.sent[one.text] = one

    def refused(self, body: str, attributes: dict) -> None:
        """The dead-letter queue took a refused request."""
        (one,) = self._in_body(body)
        reason = attributes.get("error", "")
        self.world.tell(self.world.current, f"{one.tag} {one.name} refused: {reason}")
        self.letters[one.text] = reason
        name = f"{one.tag} {one.name}"
        if one.request is None:
            self._must(one.wrong in reason, name, f"refused for {reason!r}, not for {one.wrong}")
            return
        self._must(reason, name, "refused without a reason")
        truth = self.truths[one.tag]
        other = truth.applied.get(one.request.id)
        if other is one:
            self.world.violated(f"{name}: refused ({reason}) and applied")
        if other is not None:
            return
        if one.request.op == "create" and truth.create is not None:
            return
        item = self.table.items.get(one.tag)
        stamp = item.get("stamp") if item else None
        self._must(
            stamp is not None and len(stamp["B"]) != len(one.request.stamp or stamp["B"]),
            name,
            f"refused without cause: {reason}",
        )

    def done_with(self, body: str) -> None:
        """A consumer deletes a message: nothing that it asks may be lost."""
        for one in self._in_body(body):
            self._settled(one)

    def _settled(self, one: Asked) -> None:
        if one.text in self.letters:
            return
        name = f"{one.tag} {one.name}"
        if one.request is None:
            self.world.violated(f"{name}: wrong, and not in the dead-letter queue")
            return
        truth = self.truths[one.tag]
        applied = truth.applied.get(one.request.id)
        if applied is one:
            return
        self._must(applied is None, name, "its id was reused, and it is not refused")
        self._must(truth.final, name, "done with, and neither applied nor refused")
        if one.request.op == "create" and truth.create is not None:
            self.world.violated(f"{name}: a second create, and not refused")

    # -- the direct API ------------------------------------------------------------------------

    def answered(self, machine: Machine, one: Asked, answer: bytes) -> None:
        """The direct API said that a request is done."""
        self.world.tell(machine, f"{one.tag} {one.name}: done")
        truth = self.truths[one.tag]
        assert one.request is not None
        name = f"{one.tag} {one.name}"
        self._must(
            one.request.id in truth.applied or truth.final, name, "the direct API did not apply it"
        )
        if answer.acked:  # type: ignore[attr-defined]
            self._must(_text(truth.final, "status") == "acked", name, "acked, says the answer")

    def not_applied(self, one: Asked, why: str) -> None:
        """The direct API said that a request is not applied."""
        assert one.request is not None
        self._must(
            one.request.id not in self.truths[one.tag].applied,
            f"{one.tag} {one.name}",
            f"applied, though the direct API said {why}",
        )

    # -- the end -------------------------------------------------------------------------------

    def at_the_end(self) -> None:
        """Faults are over, queues are empty, deadlines have passed."""
        for one in self.sent.values():
            self._settled(one)
        for tag, truth in self.truths.items():
            sent = [one for one in truth.plan.asked if one.text in self.sent or one.direct]
            if not any(one.request for one in sent):
                continue
            item = self.table.items.get(tag)
            if truth.final is None:
                endless = item is not None and self.due(item) is None
                self._must(endless and truth.create, tag, "never ended")
                self._must(truth.left or not truth.done, tag, "not acked, though all is done")
            else:
                self._must(item is not None, tag, "its tombstone is gone")
                self._must(truth.event, tag, "ended, and no event went out")
                self._must(item and "event_pending" not in item, tag, "its event is still owed")
                self._must(item and "expires_at" in item, tag, "its tombstone has no TTL")
            if self._plain_sailing(sent):
                self._must(_text(item, "status") == "acked", tag, "all was sent, and not acked")

    @staticmethod
    def _plain_sailing(sent: Iterable[Asked]) -> bool:
        """Whether a chain must be acked, whatever befell it."""
        left: set[int] = set()
        created = False
        for one in sent:
            request = one.request
            if request is None:
                continue
            if one.name.endswith("?") or request.op in ("fail", "extend"):
                return False
            if request.op == "create":
                created = True
                short = request.timeout is not None and request.timeout < 86_400
                if request.idle_timeout is not None or short:
                    return False
            left ^= set(one.starts) ^ set(one.finishes)
        return created and not left
