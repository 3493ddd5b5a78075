"""One schedule: producers, consumers, sweepers and users of the direct API, with faults.

Everything happens at once while faults last, in one or more rounds: a later round uses some tags
again. Then the machines go on without faults until the queues are empty, time passes all deadlines,
and the oracle checks the result.
"""

from __future__ import annotations

from collections import Counter
from math import inf

from botocore.exceptions import BotoCoreError, ClientError

from tests.simulation.aws import AWS
from tests.simulation.families import family_workload
from tests.simulation.operator import Operator
from tests.simulation.options import MAX_SKEW, Options, draw_fault_rates
from tests.simulation.oracle import Oracle
from tests.simulation.regrouped import regrouped_workload
from tests.simulation.senders import Senders
from tests.simulation.services import Function, simulated_clock_and_ids
from tests.simulation.workload import chain_workload
from tests.simulation.world import Crash, Machine, World
from xorack.errors import UnavailableError


class Schedule(Senders, Operator):
    """The machines of a schedule, and after `run` its result.

    Attributes:
        violation: The invariant that does not hold; empty if all hold.
        ends: How chains ended: status or reason -> number.
        reused: Number of chains whose tag was used before.
        sending: Number of senders that have not finished each round.
    """

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        self.seed = seed
        self.options = options = Options(seed)
        rates = draw_fault_rates(seed)
        self.world = world = World(f"{seed}/0", rates, trace)
        self.random = world.random
        self.workloads = [
            family_workload(seed, n, options)
            or regrouped_workload(seed, n, options)
            or chain_workload(seed, n, options)
            for n in range(options.chains)
        ]
        self.oracle = Oracle(world, self.workloads)
        self.aws = AWS(world, options, self.oracle, refuses="refused" in rates)
        self.queue, self.table = self.aws.queue, self.aws.table
        self.round = 0
        self.sending: Counter[int] = Counter()
        self.finished = False
        self.faults = world.fault_counts
        self.violation = ""
        self.ends: Counter[str] = Counter()
        self.reused = 0

    @property
    def size(self) -> int:
        """The number of requests, without their copies."""
        return sum(len(workload.submissions) for workload in self.workloads)

    def consume(self, machine: Machine) -> None:
        """Process batches, as the consumer's Lambda function does."""
        world, queue, function = self.world, self.queue, Function(machine, self.aws)
        while True:
            world.wait_until(machine, lambda: None if self.finished else queue.idle_time())
            if self.finished:
                return
            batch = queue.receive(machine)
            if not batch:
                continue
            world.log("received " + " ".join(message.id for message in batch))
            began_at = world.now
            self.oracle.received(machine, batch)
            try:
                with function.consume(batch, self.options.invocation) as failed:
                    self.oracle.consumed(machine, failed, began_at)
            except (UnavailableError, ClientError, BotoCoreError) as problem:
                world.log(f"batch failed: {problem}")
                continue
            except Crash:
                world.log("CRASHED")
                continue
            for message in batch:
                if message.id in failed:
                    world.log(f"{message.id} failed: {failed[message.id]}")
                else:
                    queue.delete(machine, message)

    def sweep(self, machine: Machine) -> None:
        """Sweep again and again while there is something to do, as the Lambda function does."""
        function = Function(machine, self.aws)

        def idle_time() -> float | None:
            idle = 0 if self.finished or self.queue.messages else self.aws.table.idle_time()
            return idle or None

        while not self.finished:
            try:
                function.sweep(self.options.invocation)
            except (UnavailableError, ClientError, BotoCoreError) as problem:
                self.world.log(f"sweep failed: {problem}")
            except Crash:
                self.world.log("CRASHED")
            interval = self.options.sweep_interval if self.queue.messages else 60_000
            machine.pause(self.random.randrange(2 * interval))
            self.world.wait_until(machine, idle_time)

    def wait_for_round(self, machine: Machine, number: int) -> None:
        self.world.wait_until(machine, lambda: None if self.round >= number else inf)

    def _start(self, name: str, machines: int, main, submissions=None, **options) -> None:
        """Start machines; divide submissions, if any, among them."""
        for number in range(machines):
            mine = submissions and submissions[number::machines]
            if submissions is not None and not mine:
                continue
            skew = self.random.choice((0, 0, self.random.randrange(-MAX_SKEW, MAX_SKEW)))
            machine = Machine(self.world, f"{name} {number + 1}", skew, **options)
            if mine:
                self.sending += Counter(range(self.options.rounds))
            self.world.start(machine, main, *([mine] if mine else []))

    def run(self) -> Schedule:
        """Run to the end, or until an invariant does not hold."""
        options, world = self.options, self.world
        submissions = [one for workload in self.workloads for one in workload.submissions]
        submissions.sort(key=lambda one: one.after)
        queued = [one for one in submissions if not one.direct]
        # Creates come first: a user that waits for another's chain must not block its own.
        direct = [one for one in submissions if one.direct]
        direct.sort(key=lambda one: not one.name.startswith("create"))
        self._start("producer", options.producers, self.produce, queued, crashable=True)
        self._start("direct", options.direct_callers, self.call_directly, direct)
        self._start("consumer", options.consumers, self.consume, crashable=True)
        self._start("sweeper", options.sweepers, self.sweep, crashable=True)
        world.start(Machine(world, "operator"), self.operate)
        with simulated_clock_and_ids(world, options.top_level):
            world.run()
        self.violation = world.violation
        for models in self.oracle.generations.values():
            ends = [model.end for model in models if model.item is not None]
            self.ends.update(ends)
            self.reused += len(ends[1:])
        return self


def run(seed: int, *, trace: bool = False) -> Schedule:
    """Run one schedule."""
    return Schedule(seed, trace=trace).run()
