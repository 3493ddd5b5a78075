"""Steps of several units: workers whose messages are redelivered, in other groups.

Two chains share their workers. Each step takes messages of one chain or both, publishes the
children, and ends well or crashes; a message may be redelivered. A message's content has a name
that does not depend on the tracker's ids: a child's name lists all units of its step.
"""

from dataclasses import dataclass
from random import Random

from tests.simulation.families import parents_of
from tests.simulation.options import Options
from tests.simulation.workload import ChainWorkload, Submission
from xorack.client.token import Token
from xorack.client.tracker import Tracker
from xorack.core.marks import step_id
from xorack.core.request import Request

_KINDS = (("plain", 16), ("traced", 16), ("traced", 64))
_MAX_STEPS = 40
_LARGE = 0.15
"""The share of pairs that have ten times as many units, so that marks leave the item."""


@dataclass(frozen=True)
class Work:
    """A message: the name of its content, its token, and the steps from the root to it."""

    name: str
    token: Token
    depth: int


class _Recorder(Tracker):
    def _send(self, *requests: Request) -> None:
        self.sent = requests


class Workers:
    """The workers of two chains; after `run`, the requests of all steps that ended well."""

    def __init__(self, seed: int, tags: tuple[str, ...], options: Options) -> None:
        self.random = Random(f"{seed}/regrouped/{'/'.join(tags)}")
        kind, cells = self.random.choice(_KINDS)
        self.cells = 0 if kind == "plain" else cells
        self.tracker = _Recorder("queue", object(), stamps=kind, cells=cells)
        self.span = options.span
        self.in_order, self.reliable = self.random.random() < 0.5, self.random.random() < 0.4
        self.large = self.random.random() < _LARGE
        self.max_steps = _MAX_STEPS * (8 if self.large else 1)
        self.steps = 0
        self.submissions: dict[tuple[str, str], Submission] = {}
        self.pending: list[Work] = []
        for tag in tags:
            token = self.tracker.start(tag)
            (create,) = self.tracker.sent
            self._add(create, Submission(tag, "create", create, frozenset([token.unit])))
            self.pending.append(Work(tag, token, 0))

    def run(self) -> "Workers":
        done: list[Work] = []
        while self.pending and self.steps < self.max_steps:
            group = self._group(self.pending + done[-2:])
            if self._step(group):
                for one in group:
                    if one in self.pending and self.random.random() < 0.85:
                        self.pending.remove(one)
                        done.append(one)
            self.steps += 1
        return self

    def _group(self, works: list[Work]) -> list[Work]:
        size = self.random.choice((1, 1, 2, 2, 3))
        group: dict[int, Work] = {}
        for one in self.random.sample(works, min(size, len(works))):
            group.setdefault(one.token.unit, one)
        return list(group.values())

    def _step(self, group: list[Work]) -> bool:
        """Run a step; return True if it ends well."""
        named = " + ".join(sorted(one.name for one in group))
        depth = 1 + max(one.depth for one in group)
        most = {1: 40 if self.large else 4, 2: 2, 3: 1}.get(depth, 0)
        # The same units have the same children each time.
        names = [f"({named}) {n}" for n in range(Random(named).randint((most + 1) // 2, most))]
        step = self.tracker.step(*(one.token for one in group))
        works = [Work(name, step.child(name.split()[-1]), depth) for name in names]
        requests = step.requests()
        fate = 1.0 if self.reliable else self.random.random()
        if fate < 0.05:
            return False
        self.pending += [one for one in works if one not in self.pending]
        if fate < 0.15:
            return False  # the children are published, and no request has started them
        children = frozenset(one.token.unit for one in works)
        for request in requests:
            submission = Submission(request.tag, request.id, request)
            if request.started:
                submission.units, submission.started_work = children, frozenset(names)
            units = request.finishes_once or [int(request.id.removeprefix("step-"), 16)]
            submission.finishes = frozenset(units)
            mine = [one for one in group if one.token.unit in units]
            submission.finished_work = frozenset(
                one.name for one in mine if request.tag in one.token.tags
            )
            submission.other = self._other(submission)
            self._add(request, submission)
        return True

    def _other(self, one: Submission) -> Request:
        """Return a request in its other form: with the stamp instead of the ids, or the reverse."""
        request, more = one.request, {}
        if request.finishes_once:
            more = {"finishes_once": request.finishes_once, "cells": self.cells}
        if request.starts or request.finishes:
            counts = {"started": request.started, "finished": request.finished}
            return Request.stamp_(request.tag, request.id, request.stamp, **counts, **more)
        finishes = () if more else one.finishes
        ids = {"starts": sorted(one.units), "finishes": finishes, "cells": self.cells}
        return Request.stamp_(request.tag, request.id, **ids | more)

    def _add(self, request: Request, one: Submission) -> None:
        late = self.steps / self.max_steps if self.in_order else self.random.random()
        one.after = int((0.8 * late + 0.2 * self.random.random()) * self.span)
        first = self.submissions.setdefault((request.tag, one.text), one)
        if first is not one:
            first.copies = (*first.copies, one.after)


def regrouped_workload(seed: int, number: int, options: Options) -> ChainWorkload | None:
    """Return the workload of a chain whose workers group messages; None if the chain has others."""
    first = number - number % 2
    rare = Random(f"{seed}/regrouped/{first}").random()
    if rare >= options.regrouped or options.months or first < options.spilling_chains:
        return None
    if any(parents_of(seed, one, options)[1] for one in (first, first + 1)):
        return None
    tags = (f"chain-{first}", f"chain-{first + 1}")
    submissions = Workers(seed, tags, options).run().submissions.values()
    tag = tags[number % 2]
    mine = [one for one in submissions if one.tag == tag]
    return ChainWorkload(tag, [*mine, *_stolen_ids(seed, mine, options)])


def _stolen_ids(seed: int, steps: list[Submission], options: Options) -> list[Submission]:
    """Return requests of a faulty sender: their ids are those of the steps of other units."""
    tag = steps[0].tag
    random = Random(f"{seed}/stolen/{tag}")
    units = sorted(set().union(*(one.finishes for one in steps)))
    stolen = []
    for unit in random.sample(units, min(2, len(units))) if random.random() < 0.3 else ():
        request = random.choice(
            ({"op": "note", "text": "x"}, {"op": "stamp", "starts": [f"{7:016x}"]})
        )
        raw = {**request, "tag": tag, "id": step_id(unit)}
        after = int(random.random() * options.span)
        stolen.append(Submission("", f"{tag}/stolen", None, frozenset(), raw, "id", after))
    return stolen
