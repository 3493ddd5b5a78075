"""Machines, time and faults, all drawn from one seed.

A machine is a greenlet (Playwright brings the package): machines switch only at a call or a sleep
(`World.pause`), and the one that is due next has the turn. So the seed alone decides the order in
which calls take effect.
"""

from __future__ import annotations

import traceback
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from heapq import heappop, heappush
from itertools import accumulate, count
from math import inf
from random import Random
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from tests.simulation.options import Outage
from tests.support.fault_kinds import CRASHES, FAULTS

EPOCH = 1_750_000_000_000
"""Start of every schedule, milliseconds since 1970."""


class Crash(BaseException):
    """The machine crashes: its stack unwinds, and none of its code runs on."""


class ScheduleEnd(GreenletExit):
    """The schedule is over: the exception ends a machine silently."""


@dataclass(eq=False)
class Machine:
    """A caller of AWS: a Lambda function, a producer, a user of the direct API.

    Times are milliseconds. All but the first attributes are of the current invocation.

    Attributes:
        skew: Error of its clock.
        next_id: Id that the direct API gives to its next request.
        began, deadline: The invocation's begin in true time, and its end by the machine's clock.
        faults: Failed calls, by operation.
        effects: Writes of requests.
        disturbed: True if a fault or an outage hit a call.
        guesses_retention: True if its last read of the earlier retentions failed.
        batch, first: Requests of the batch; those received for the first time, with the time of
            each.
        ended: Models of the batch's chains that have ended: True if they had before the batch.
        counted: The numbers that it added to the counters of ended chains.
    """

    world: World
    name: str
    skew: int = 0
    crashable: bool = False
    run: greenlet = field(init=False)
    began: int = 0
    deadline: int | None = None
    next_id: str = ""
    publishing: int = 0
    effects: int = 0
    stalled: bool = False
    disturbed: bool = False
    guesses_retention: bool = False
    faults: Counter[str] = field(default_factory=Counter)
    batch: list[Any] = field(default_factory=list)
    first: list[tuple[Any, int]] = field(default_factory=list)
    ended: dict[Any, bool] = field(default_factory=dict)
    counted: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))

    def now(self) -> int:
        return self.world.now + self.skew

    def pause(self, milliseconds: int) -> None:
        self.world.pause(self, milliseconds)

    def sleep(self, seconds: float) -> None:
        self.world.pause(self, int(seconds * 1000))

    @contextmanager
    def invocation(self, milliseconds: int) -> Iterator[None]:
        """Limit the time of what runs inside, as Lambda does."""
        self.began, self.deadline = self.world.now, self.now() + milliseconds
        self.stalled, self.disturbed, self.publishing, self.effects = False, False, 0, 0
        self.faults.clear()
        try:
            yield
        finally:
            self.deadline = None

    def remaining(self) -> int:
        """Return the milliseconds left of its invocation."""
        assert self.deadline is not None
        return self.deadline - self.now()


class World:
    """Time, machines and faults of one schedule.

    Attributes:
        now: The true time, milliseconds since 1970.
        fault_counts: Injected faults: kind -> number.
        current: The machine that has the turn; None while a delayed call takes effect.
        faultless: True once faults have ended.
    """

    def __init__(self, seed: str, rates: Mapping[str, float], trace: bool) -> None:
        self.now = EPOCH
        self.random = Random(f"{seed}/schedule")
        self.fault_counts: Counter[str] = Counter()
        self.faultless = False
        self.outages: list[Outage] = []
        self._noticed: set[Outage] = set()
        self.current: Machine | None = None
        self.violation = ""
        self.trace: list[str] | None = [] if trace else None
        self._fault_random = Random(f"{seed}/faults")
        self._kinds = lru_cache(maxsize=None)(lambda *key: _cumulative_rates(rates, *key))
        self._machines: list[greenlet] = []
        self._events: list[tuple[int, float, int, Machine | Callable[[], object]]] = []
        self._waiting: list[Callable[[], object]] = []
        self._numbers = count()
        self._hub = getcurrent()

    @property
    def days(self) -> float:
        """Days that have passed."""
        return (self.now - EPOCH) / 86_400_000

    # -- time ----------------------------------------------------------------------------------

    def later(self, milliseconds: int, event: Machine | Callable[[], object]) -> None:
        """Schedule an effect, or a machine's next turn; ties are broken at random."""
        at = self.now + milliseconds
        heappush(self._events, (at, self.random.random(), next(self._numbers), event))

    def pause(self, machine: Machine, milliseconds: int) -> None:
        """Suspend a machine while others go on."""
        at = self.now + milliseconds
        if self._events and self._events[0][0] <= at:
            self.later(milliseconds, machine)
            self._switch()
        else:
            self.now = at
        if machine.deadline is not None and machine.now() >= machine.deadline:
            self.fault_counts["timed out"] += 1
            self.log("TIMED OUT")
            if not machine.stalled:
                self.violated("No invocation is cut off by its time limit, unless it stalls.")
            raise Crash

    def wait_until(self, machine: Machine, idle_time: Callable[[], float | None]) -> None:
        """Suspend a machine until ``idle_time()``, milliseconds to the next poll, is None."""
        polls = 0

        def poll() -> None:
            nonlocal polls
            polls += 1
            wait = idle_time()
            if wait is None:
                self.later(0, machine)
                return
            next_poll = partial(poll_unless_done, polls)
            self._waiting.append(next_poll)
            if wait != inf:
                self.later(int(wait), next_poll)

        def poll_unless_done(after: int) -> None:
            if polls == after:
                poll()

        poll()
        self._switch()

    def _switch(self) -> None:
        """Let others go on, until the current machine has its next turn."""
        if self.violation:
            raise ScheduleEnd
        self._hub.switch()

    def wake(self) -> None:
        """Let machines poll that wait for something to do."""
        waiting, self._waiting = self._waiting, []
        for poll in waiting:
            self.later(self.random.randrange(3000), poll)

    # -- machines ------------------------------------------------------------------------------

    def start(self, machine: Machine, main: Callable[..., None], *arguments: object) -> None:
        """Add a machine that runs ``main(machine, *arguments)`` within the first second."""
        machine.run = greenlet(partial(self._run_machine, main, machine, *arguments), self._hub)
        self._machines.append(machine.run)
        self.later(self.random.randrange(1000), machine)

    def _run_machine(self, main: Callable[..., None], machine: Machine, *arguments: object) -> None:
        try:
            main(machine, *arguments)
        except ScheduleEnd:
            raise
        except BaseException:  # noqa: BLE001 - reported as the schedule's violation
            failed = f"{machine.name} failed:\n{traceback.format_exc()}"
            self.violation = self.violation or failed

    def run(self) -> None:
        """Run until all machines have finished or an invariant does not hold."""
        try:
            while not self.violation and not all(run.dead for run in self._machines):
                self._take_turn()
        except ScheduleEnd:
            pass
        except Exception:  # noqa: BLE001 - reported as the schedule's violation
            self.violation = self.violation or traceback.format_exc()
        for run in self._machines:
            if not run.dead:
                run.throw(ScheduleEnd)

    def _take_turn(self) -> None:
        """Advance time to the next effect, or to the turn of a machine."""
        at, _, _, event = heappop(self._events)
        self.now = max(self.now, at)
        self.current = event if isinstance(event, Machine) else None
        if self.current:
            self.current.run.switch()
        else:
            event()

    def violated(self, why: str) -> None:
        """End the schedule: an invariant does not hold."""
        self.log(f"VIOLATION: {why}")
        self.violation = self.violation or why
        raise ScheduleEnd

    # -- faults --------------------------------------------------------------------------------

    def fault(self, operation: str, machine: Machine) -> str | None:
        """Draw the fault that affects a call, if any."""
        if self.faultless:
            return None
        limits, kinds = self._kinds(operation, machine.crashable)
        drawn = bisect_right(limits, self._fault_random.random())
        if drawn == len(kinds):
            return None
        machine.faults[operation] += 1
        machine.disturbed = True
        self.fault_counts[kinds[drawn]] += 1
        return kinds[drawn]

    def outage(self, operation: str, machine: Machine) -> str | None:
        """Return the kind of outage that affects a call, if any."""
        for outage in self.outages:
            kind, operations, begin, end = outage
            if begin <= self.now < end and operation in operations and not self.faultless:
                machine.faults[operation] += 1
                machine.disturbed = True
                if outage not in self._noticed:
                    self._noticed.add(outage)
                    self.fault_counts[kind] += 1
                return kind
        return None

    def log(self, text: str) -> None:
        """Add a line about the current machine to the trace, if one was requested."""
        if self.trace is not None:
            name = self.current.name if self.current else "the network"
            self.trace.append(f"{(self.now - EPOCH) / 1000:12.3f} s {name:<12} {text}")


def _cumulative_rates(
    rates: Mapping[str, float], operation: str, crashable: bool
) -> tuple[list[float], list[str]]:
    """Return the kinds of faults that can affect a call, with cumulative rates."""
    kinds = [kind for kind in rates if operation in FAULTS[kind].operations]
    kinds = [kind for kind in kinds if crashable or kind not in CRASHES]
    return list(accumulate(rates[kind] for kind in kinds)), kinds
