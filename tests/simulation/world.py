"""Machines, time and faults, all of one seed: one machine runs at a time, and the seed says which.

A machine is a thread that holds the baton or waits for it. It passes the baton on at each call
that leaves it (`World.pause`), which takes simulated time; who is due next goes on. So the order in
which calls land is the seed's doing alone.
"""

from __future__ import annotations

import threading
import traceback
from bisect import bisect_right
from collections import Counter
from heapq import heappop, heappush
from itertools import accumulate, count
from random import Random

EPOCH = 1_750_000_000_000
"""When every schedule begins, milliseconds since 1970."""

KINDS = {
    "dropped": "the call never arrived: connect time-out",
    "lost": "the call landed and its answer was lost: read time-out",
    "late": "read time-out, and the call lands up to a minute later",
    "twice": "the call landed twice, the second answer came back",
    "throttled": "throttled",
    "5xx": "an internal error, nothing done",
    "5xx done": "an internal error, and yet it was done",
    "denied": "an error that says not to try again",
    "stalled": "the machine stood still for up to a minute and a half before the call",
    "killed before": "the machine died before the call",
    "killed after": "the machine died after the call landed",
    "conflict": "a transaction held the item: TransactionConflictException",
    "no item": "a failed condition's answer does not carry the item",
    "unprocessed": "a batch call left some keys out",
    "entries failed": "an answer of 200 with failed entries",
    "delivered again": "a message was delivered though it was in flight",
    "delete lost": "a message that was done with stayed in the queue",
    "timed out": "the invocation ran out of time",
}
EVERY_CALL = (
    "dropped",
    "lost",
    "late",
    "twice",
    "throttled",
    "5xx",
    "5xx done",
    "denied",
    "stalled",
    "killed before",
    "killed after",
)
SOME_CALLS = {
    "update_item": ("conflict", "no item"),
    "batch_get_item": ("unprocessed",),
    "batch_write_item": ("unprocessed",),
    "put_events": ("entries failed",),
    "send_message_batch": ("entries failed",),
    "receive": ("delivered again",),
    "delete": ("delete lost",),
}
RARER = {"denied": 0.3, "stalled": 0.4, "killed before": 0.3, "killed after": 0.4}


class Killed(BaseException):
    """The machine is dead: everything unwinds and nothing of it runs on."""


class Stopped(BaseException):
    """The schedule is over."""


class Violation(Exception):
    """What must hold does not."""


class Machine:
    """Something that makes calls: a Lambda, a producer, a user of the direct API.

    Attributes:
        skew: By how much its clock is wrong, milliseconds.
        mortal: Whether it can be killed.
        deadline: When its invocation is killed, milliseconds of its own clock.
        next_id: The id that the direct API draws next.
    """

    def __init__(self, world: World, name: str, skew: int = 0, *, mortal: bool = False) -> None:
        self.world = world
        self.name = name
        self.skew = skew
        self.mortal = mortal
        self.deadline: int | None = None
        self.idle = None
        self.next_id = ""
        self.baton = threading.Lock()
        self.baton.acquire()
        self.finished = False

    def now(self) -> int:
        return self.world.now + self.skew

    def pause(self, milliseconds: int) -> None:
        self.world.pause(self, milliseconds)

    def sleep(self, seconds: float) -> None:
        self.world.pause(self, int(seconds * 1000))

    def time_left(self) -> float:
        """Seconds that the invocation has left, less what the Lambda keeps in reserve."""
        return float("inf") if self.deadline is None else (self.deadline - self.now()) / 1000 - 3.0


class World:
    """One schedule's time, machines and faults.

    Attributes:
        now: The true time.
        counts: Faults injected: kind -> how many.
        trace: What happened, line by line, if it is to be told.
    """

    def __init__(
        self,
        seed: str,
        rates: dict[str, float],
        *,
        only_faults: frozenset[int] | None = None,
        trace: bool = False,
    ) -> None:
        self.now = EPOCH
        self.random = Random(f"{seed}/schedule")
        self._dice = Random(f"{seed}/faults")
        self.rates = rates
        self._only = only_faults
        self._tables: dict[tuple[str, bool], tuple[list[float], list[str]]] = {}
        self.counts: Counter[str] = Counter()
        self.injected: list[int] = []
        self._draws = 0
        self.quiet = False
        self.machines: list[Machine] = []
        self.current: Machine | None = None
        self.violation: Violation | None = None
        self.stopping = False
        self.trace: list[str] | None = [] if trace else None
        self._events: list = []
        self._number = count()
        self._main = threading.Lock()
        self._main.acquire()

    # -- time ----------------------------------------------------------------------------------

    def _push(self, at: int, what) -> None:
        heappush(self._events, (at, self.random.random(), next(self._number), what))

    def later(self, milliseconds: int, effect) -> None:
        """Have something happen later, whoever runs then."""
        self._push(self.now + milliseconds, effect)

    def pause(self, machine: Machine, milliseconds: int) -> None:
        """Let a machine wait while others go on."""
        at = self.now + milliseconds
        if not self._events or self._events[0][0] > at:
            self.now = at
        else:
            self._push(at, machine)
            self._switch(machine)
        if self.stopping:
            raise Stopped
        if machine.deadline is not None and machine.now() >= machine.deadline:
            self.counts["timed out"] += 1
            self.tell(machine, "TIMED OUT")
            raise Killed

    def wait_until(self, machine: Machine, idle) -> None:
        """Let a machine wait until ``idle()`` gives None rather than milliseconds to wait."""
        machine.idle = idle
        self._push(self.now, machine)
        self._switch(machine)
        if self.stopping:
            raise Stopped

    def _next(self) -> Machine | None:
        while self._events:
            at, _, _, what = heappop(self._events)
            if at > self.now:
                self.now = at
            if not isinstance(what, Machine):
                what()
                continue
            if what.idle is not None:
                if (wait := what.idle()) is not None:
                    self._push(self.now + wait, what)
                    continue
                what.idle = None
            return what
        return None

    def _switch(self, machine: Machine) -> None:
        chosen = self._next()
        assert chosen is not None  # the one who asks waits, too
        if chosen is not machine:
            self.current = chosen
            chosen.baton.release()
            machine.baton.acquire()

    # -- machines ------------------------------------------------------------------------------

    def start(self, machine: Machine, main) -> None:
        """Add a machine that runs ``main(machine)`` from the beginning."""
        self.machines.append(machine)
        thread = threading.Thread(target=self._live, args=(machine, main), daemon=True)
        self._push(self.now + self.random.randrange(1000), machine)
        thread.start()

    def _live(self, machine: Machine, main) -> None:
        machine.baton.acquire()
        try:
            if not self.stopping:
                main(machine)
        except Stopped:
            pass
        except BaseException:  # noqa: BLE001 - told below
            self._stop(f"{machine.name} broke down:\n{traceback.format_exc()}")
        finally:
            machine.finished = True
            self._hand_on()

    def _hand_on(self) -> None:
        chosen = None
        if not self.stopping:
            try:
                chosen = self._next()
            except Stopped:
                pass
            except BaseException:  # noqa: BLE001 - told below
                self._stop(traceback.format_exc())
        if chosen is None:
            chosen = next((m for m in self.machines if not m.finished), None)
        if chosen is None:
            self._main.release()
            return
        self.current = chosen
        chosen.baton.release()

    def run(self) -> None:
        """Run until all machines are done, or something that must hold does not."""
        self._hand_on()
        self._main.acquire()

    def _stop(self, why: str) -> None:
        self.violation = self.violation or Violation(why)
        self.stopping = True

    def violated(self, why: str) -> None:
        """End the schedule: something that must hold does not."""
        if self.trace is not None:
            self.trace.append(f"{self._clock()} VIOLATION: {why}")
        self._stop(why)
        raise Stopped

    # -- faults --------------------------------------------------------------------------------

    def fault(self, call: str, machine: Machine) -> str | None:
        """The fault that befalls a call, if any."""
        if self.quiet:
            return None
        self._draws += 1
        limits, kinds = self._table(call, machine.mortal)
        drawn = bisect_right(limits, self._dice.random())
        if drawn == len(kinds):
            return None
        if self._only is not None and self._draws not in self._only:
            return None
        self.counts[kinds[drawn]] += 1
        self.injected.append(self._draws)
        return kinds[drawn]

    def _table(self, call: str, mortal: bool) -> tuple[list[float], list[str]]:
        known = self._tables.get((call, mortal))
        if known is None:
            kinds = () if call in ("receive", "delete") else EVERY_CALL
            names = [
                kind
                for kind in (*kinds, *SOME_CALLS.get(call, ()))
                if self.rates.get(kind) and (mortal or not kind.startswith("killed"))
            ]
            limits = list(accumulate(self.rates[kind] for kind in names))
            known = self._tables[call, mortal] = (limits, names)
        return known

    # -- the tale ------------------------------------------------------------------------------

    def _clock(self) -> str:
        return f"{(self.now - EPOCH) / 1000:12.3f} s"

    def tell(self, machine: Machine | None, what: str) -> None:
        """Note what happened, if it is to be told."""
        if self.trace is not None:
            name = machine.name if machine is not None else "the network"
            self.trace.append(f"{self._clock()} {name:<12} {what}")
