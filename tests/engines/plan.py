"""The work: chains of the simulation in real time, and chains of a `Tracker`."""

from __future__ import annotations

import random

from tests.simulation.options import Options, Weights
from tests.simulation.workload import ChainWorkload, Submission, chain_workload
from xorack.client.tracker import Tracker
from xorack.core.request import Request

TRACKED = 6
"""One of this many chains is that of a `Tracker`."""


class RealTime(Options):
    """Chains that end within seconds: by their work, or by an `extend` when nothing is left."""

    routes: Weights = (("queue", 75), ("direct", 13), ("mixed", 12))
    units: Weights = ((3, 20), (8, 40), (14, 20), (40, 20))
    timeouts: Weights = ((None, 1),)
    rounds, months, span, resume, idle_timeout, extend = 1, False, 1_000, 0.0, 0.0, 0.1
    # The chains with the lowest numbers have marks outside their item.
    spilling_chains = 2
    missing_work, missing_create, fail = 0.2, 0.06, 0.12
    reused_id, wrong_length, second_create, invalid_request, wrong_counts = 5 * (0.1,)

    def __init__(self, seed: int) -> None:
        """Draw nothing: equal for all seeds."""


class WithoutOrphans(RealTime):
    """Without chains that are never created: they take long to end."""

    missing_create = 0.0


def make_plan(seed: int, count: int, *, orphans: bool = True) -> list[ChainWorkload]:
    """Make the chains: equal arguments give equal chains in every process.

    Each has an `extend` that ends it when nothing else is left to do, and a create too late.
    """
    options = RealTime if orphans else WithoutOrphans
    plan = []
    for number in range(count):
        if number % TRACKED == TRACKED - 1:
            plan.append(_tracked(f"tracker-{seed}-{number}"))
        else:
            plan.append(chain_workload(seed, number, options))
    for chain in plan:
        for name, request in (
            ("end", Request.extend(chain.tag, "end", 0.2)),
            ("too late?", Request.create(chain.tag, "too late", b"\1" * 8, started=1)),
        ):
            if all(one.name != name for one in chain.submissions):  # the plan is cached
                chain.submissions.append(Submission(chain.tag, name, request, request.to_json()))
    return plan


def planned(chain: ChainWorkload) -> list[Submission]:
    """Return the requests that are sent from the start."""
    return [one for one in chain.submissions if one.name not in ("end", "too late?")]


def last(chain: ChainWorkload, name: str) -> Submission:
    """Return the `end` or the create that is `too late?`."""
    return next(one for one in chain.submissions if one.name == name)


def must_end(chain: ChainWorkload) -> bool:
    """Tell if a chain ends: one of the direct API has no deadline, and ends only by its work."""
    direct = any(one.direct and one.name == "create" for one in chain.submissions)
    outstanding: frozenset[int] = frozenset()
    for one in planned(chain):
        outstanding ^= one.units
    return not direct or not outstanding


class _Collecting(Tracker):
    """A tracker that keeps its requests."""

    def __init__(self) -> None:
        super().__init__("queue")
        self.collected: list[Request] = []

    def _send(self, *requests: Request) -> None:
        self.collected += requests


def _tracked(tag: str) -> ChainWorkload:
    tracker = _Collecting()
    units = track(tag, tracker)
    submissions = [
        Submission(tag, one.id, one, one.to_json(), units[one.id]) for one in tracker.collected
    ]
    return ChainWorkload(tag, submissions, foreign=False)


def track(tag: str, tracker: Tracker) -> dict[str, frozenset[int]]:
    """Do a chain's work with a tracker: the same each time, but leaves come in any groups.

    Returns:
        The units that each request starts or finishes, by its id.
    """
    shape = random.Random(tag)
    size = shape.randint(5, 40)
    children: list[list[int]] = [[] for _ in range(size)]
    for unit in range(1, size):
        children[shape.randrange(unit)].append(unit)
    leaves = [unit for unit in range(size) if not children[unit]]
    if shape.random() < 0.4:
        leaves.pop()
    random.shuffle(leaves)
    with tracker.batch():
        tokens = {0: tracker.start(tag, timeout=3600, detail={"tag": tag})}
        for unit in range(size):
            if children[unit]:
                with tracker.step(tokens[unit]) as step:
                    tokens |= {child: step.child(child) for child in children[unit]}
        while leaves:
            group = [leaves.pop() for _ in range(min(len(leaves), random.choice((1, 1, 2, 3))))]
            with tracker.step(*(tokens[unit] for unit in group)):
                pass
    units = {f"create-{tokens[0].unit:016x}": frozenset({tokens[0].unit})}
    for unit, some in enumerate(children):
        ids = {tokens[one].unit for one in (unit, *some)}
        units[f"step-{tokens[unit].unit:016x}"] = frozenset(ids)
    return units
