"""One schedule: producers, consumers, sweepers and users of the direct API, with faults.

Everything happens at once while faults last. Then the machines go on without faults until the
queues are empty, time passes all deadlines, and the oracle checks the result.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field, replace

from botocore.exceptions import BotoCoreError, ClientError

from tests.simulation.aws import AWS, QUEUE, Client
from tests.simulation.model import deadline_of
from tests.simulation.options import DAY_SECONDS, MAX_INDEX_LAG, MAX_SKEW, Options, draw_fault_rates
from tests.simulation.oracle import Oracle
from tests.simulation.services import Services, simulated_clock_and_ids
from tests.simulation.workload import ChainWorkload, Submission, chain_workload
from tests.simulation.world import Crash, Machine, Violation, World
from xorack.core.errors import SendFailed, StaleLocalData, TagExists, TagNotFound
from xorack.core.ports import Unavailable


@dataclass(frozen=True)
class Recipe:
    """Everything that determines a schedule; only the seed, unless it is shrunk.

    Attributes:
        salt: Selects another order and other faults for the same requests.
        requests: Requests to keep: [chain, position]; None: all.
        faults: Draw numbers of the faults to keep; None: all.
        without: Kinds of faults to leave out.
    """

    seed: int
    salt: int = 0
    requests: list[list[int]] | None = None
    faults: list[int] | None = None
    without: list[str] = field(default_factory=list)

    @staticmethod
    def parse(text: str) -> Recipe:
        """Parse a seed, or what `__str__` returns."""
        values = json.loads(text)
        return Recipe(values) if isinstance(values, int) else Recipe(**values)

    def __str__(self) -> str:
        default = asdict(Recipe(self.seed))
        values = {name: value for name, value in asdict(self).items() if value != default[name]}
        return json.dumps({"seed": self.seed, **values})


@dataclass(frozen=True)
class Result:
    """The result of a schedule.

    Attributes:
        requests: Kept requests: [chain, position].
        faults: Injected faults: kind -> number.
        injected: Draw numbers of the injected faults.
        ends: How chains ended: status or reason -> number.
        trace: Log lines, if requested.
    """

    recipe: Recipe
    violation: Violation | None
    requests: list[list[int]]
    faults: Counter[str]
    injected: list[int]
    ends: Counter[str]
    trace: list[str] | None

    @property
    def chains(self) -> list[int]:
        return sorted({chain for chain, _ in self.requests})


class Schedule:
    """The machines of a schedule.

    Attributes:
        senders: Producers and users of the direct API that have not finished.
        finished: True when consumers and sweepers must stop.
    """

    def __init__(self, recipe: Recipe, *, trace: bool = False) -> None:
        self.recipe = recipe
        self.options = options = Options(recipe.seed)
        rates = draw_fault_rates(recipe.seed, recipe.salt)
        rates = {kind: rate for kind, rate in rates.items() if kind not in recipe.without}
        name = f"{recipe.seed}/{recipe.salt}"
        self.world = world = World(name, rates, recipe.faults, trace)
        self.random = world.random
        self.requests = recipe.requests or [
            [number, position]
            for number in range(options.chains)
            for position in range(len(chain_workload(recipe.seed, number).submissions))
        ]
        self.workloads = [self._workload(chain) for chain in sorted({c for c, _ in self.requests})]
        self.oracle = Oracle(world, self.workloads)
        self.aws = AWS(world, options, self.oracle)
        self.queue = self.aws.queue
        self.senders = 0
        self.finished = False

    def _workload(self, number: int) -> ChainWorkload:
        """Return what the recipe keeps of a chain's workload."""
        whole = chain_workload(self.recipe.seed, number)
        kept = [whole.submissions[position] for chain, position in self.requests if chain == number]
        copies = [one for one in whole.copies if one in kept]
        return replace(whole, submissions=kept, copies=copies)

    def services(self, machine: Machine) -> Services:
        return Services(machine, Client(machine, self.aws), self.random)

    # -- producers -----------------------------------------------------------------------------

    def produce(self, machine: Machine, submissions: list[Submission]) -> None:
        """Send requests, some of them again in other messages, as a retried task does."""
        random, services, begin = self.random, self.services(machine), self.world.now
        at = 0
        while at < len(submissions):
            part = submissions[at : at + random.choice((1, 3, 12, 40))]
            machine.pause(max(0, part[-1].after - (self.world.now - begin)))
            try:
                self._send(services, part)
            except Crash:
                machine.pause(500)
                at = max(0, at - random.randrange(20))
                continue
            at += len(part)
            if random.random() < self.options.resend:
                again = submissions[random.randrange(at) : at]
                delay = random.choice((100, 10_000, 300_000))
                self.world.later(delay, lambda again=again: self.resend(again))
        self.senders -= 1

    def _send(self, services: Services, part: list[Submission]) -> None:
        requests = [one.request for one in part if one.request]
        while requests:
            try:
                services.send(requests, self.random.choice((1024, 4096, 250_000)))
                break
            except SendFailed:
                services.machine.pause(1000)
        valid = [one.raw for one in part[:3] if one.request]
        for one in part:
            if one.request is None:
                body = one.raw if isinstance(one.raw, str) else message_body([one.raw, *valid])
                while not self._send_body(services.client, body):
                    services.machine.pause(1000)

    @staticmethod
    def _send_body(client: Client, body: str) -> bool:
        entry = {"Id": "0", "MessageBody": body, "MessageAttributes": {}}
        try:
            return not client.send_message_batch(QueueUrl=QUEUE, Entries=[entry])["Failed"]
        except (ClientError, BotoCoreError):
            return False

    def resend(self, submissions: list[Submission]) -> None:
        """Send late copies, one request a message."""
        for one in submissions:
            if one.request is not None:
                self.queue.send(message_body([one.raw]))

    # -- consumers and sweepers ----------------------------------------------------------------

    def consume(self, machine: Machine) -> None:
        """Process batches, as the consumer's Lambda function does."""
        world, queue, services = self.world, self.queue, self.services(machine)
        while True:
            world.wait_until(machine, lambda: None if self.finished else queue.idle_time())
            if self.finished:
                return
            batch = queue.receive(machine)
            if not batch:
                continue
            world.log("received " + " ".join(message.id for message in batch))
            machine.deadline = machine.now() + self.options.invocation
            try:
                failed = services.consume(batch)
            except Crash:
                world.log("CRASHED")
                continue
            finally:
                machine.deadline = None
            for message in batch:
                if message.id in failed:
                    world.log(f"{message.id} failed: {failed[message.id]}")
                else:
                    queue.delete(machine, message)

    def sweep(self, machine: Machine) -> None:
        """Sweep again and again, as the sweeper's Lambda function does."""
        services = self.services(machine)
        while not self.finished:
            machine.deadline = machine.now() + self.options.invocation
            try:
                services.sweep()
            except (Unavailable, ClientError, BotoCoreError) as problem:
                self.world.log(f"sweep failed: {problem}")
            except Crash:
                self.world.log("CRASHED")
            finally:
                machine.deadline = None
            interval = self.options.sweep_interval if self.queue.messages else 60_000
            machine.pause(self.random.randrange(2 * interval))

    # -- the direct API ------------------------------------------------------------------------

    def call_directly(self, machine: Machine, submissions: list[Submission]) -> None:
        """Use `DynamoDBAcker`, and for some chains xor-ack-dynamodb."""
        acker = self.services(machine).acker(attempts=self.random.choice((1, 3, 50)))
        begin = self.world.now
        for one in submissions:
            machine.pause(max(1, one.after - (self.world.now - begin)))
            while not (self._call_other_tool(one) or self._call(machine, acker, one)):
                pass
        self.senders -= 1

    def _call(self, machine: Machine, acker, one: Submission) -> bool:
        """Make a call; return True if it need not be repeated."""
        request, existed = one.request, one.tag in self.aws.table.items
        machine.next_id = request.id
        call = acker.create if request.op == "create" else acker.stamp
        counts = {"started": request.started, "finished": request.finished}
        try:
            stamp = call(one.tag, request.stamp, **counts)
        except (TagNotFound, TagExists, StaleLocalData) as error:
            self.oracle.responded(one, None, type(error).__name__, existed)
            machine.pause(2000)
            return False
        except (ClientError, BotoCoreError) as error:
            # The caller does not know the outcome. The simulation does, after all delayed calls.
            self.world.log(f"{one.tag} {one.name}: {error}")
            machine.pause(70_000)
            return request.id in self.oracle.models[one.tag].applied
        self.oracle.responded(one, stamp)
        return True

    def _call_other_tool(self, one: Submission) -> bool:
        """Create, or sometimes stamp, as xor-ack-dynamodb does; return True if that is possible."""
        model = self.oracle.models[one.tag]
        item, stamp = self.aws.table.items.get(one.tag), one.request.stamp
        if not model.workload.foreign or (item is None) != (one.request.op == "create"):
            return False
        if item is not None:
            if "status" in item or self.random.random() < 0.5:
                return False
            old = item["stamp"]["B"]
            stamp = bytes(a ^ b for a, b in zip(old, stamp, strict=True))
            if not any(stamp):
                return False
        model.apply(one)
        self.aws.table.put(one.tag, {"tag": {"S": one.tag}, **(item or {}), "stamp": {"B": stamp}})
        return True

    # -- the whole -----------------------------------------------------------------------------

    def operate(self, machine: Machine) -> None:
        """Redrive dead messages, end the faults, wait for the end and have it checked."""
        world, random, queue = self.world, self.random, self.queue
        limit = world.now + DAY_SECONDS * 1000
        while self.senders:
            machine.pause(random.choice((1000, 20_000)))
            if random.random() < self.options.redrive:
                queue.redrive()
            if world.now > limit:
                world.violated("All senders finish.")
        machine.pause(random.choice((0, 60_000, 400_000)))
        world.faultless = True
        world.log("faults end")
        machine.pause(400_000)  # for late copies and delayed calls
        limit = world.now + 2_400_000
        while queue.messages or queue.dead:
            queue.redrive()
            machine.pause(5000)
            if world.now > limit:
                world.violated("The queue becomes empty once faults have ended.")
        self.finished = True
        machine.pause(200_000)  # for the other machines to finish
        services = self.services(machine)
        self._pass_deadlines(machine, services, min)
        self._pass_deadlines(machine, services, max)
        self.oracle.ended()

    def _pass_deadlines(self, machine: Machine, services: Services, choose) -> None:
        """Sweep after the first, or the last, deadline."""
        models = self.oracle.models
        deadlines = {
            tag: deadline
            for tag, model in models.items()
            if not model.final and (deadline := deadline_of(model.item)) is not None
        }
        at = choose(deadlines.values(), default=0)
        machine.pause(max(0, at - machine.now()) + MAX_INDEX_LAG + 1000)
        services.sweep()
        for tag, deadline in deadlines.items():
            if deadline <= at and models[tag].final is None:
                self.world.violated(f"{tag}: A sweep ends all chains that are due.")

    def _start(self, name: str, machines: int, main, submissions=None, **options) -> None:
        """Start machines; divide submissions, if any, among them."""
        for number in range(machines):
            mine = submissions and submissions[number::machines]
            if submissions is not None and not mine:
                continue
            skew = self.random.choice((0, 0, self.random.randrange(-MAX_SKEW, MAX_SKEW)))
            machine = Machine(self.world, f"{name} {number + 1}", skew, **options)
            self.senders += submissions is not None
            self.world.start(machine, main, *([mine] if mine else []))

    def run(self) -> Result:
        options, world = self.options, self.world
        submissions = [one for workload in self.workloads for one in workload.submissions]
        submissions.sort(key=lambda one: one.after)
        queued = [one for one in submissions if not one.direct]
        # Creates come first: a user that waits for another's chain must not block its own.
        direct = sorted((o for o in submissions if o.direct), key=lambda one: one.name != "create")
        self._start("producer", options.producers, self.produce, queued, crashable=True)
        self._start("direct", options.direct_callers, self.call_directly, direct)
        self._start("consumer", options.consumers, self.consume, crashable=True)
        self._start("sweeper", options.sweepers, self.sweep, crashable=True)
        for workload in self.workloads:
            if workload.copies:
                world.later(options.span + 30_000, lambda w=workload: self.resend(w.copies))
        world.start(Machine(world, "operator"), self.operate)
        with simulated_clock_and_ids(world):
            world.run()
        ends = Counter(model.end for model in self.oracle.models.values())
        faults, injected = world.fault_counts, world.injected
        return Result(
            self.recipe, world.violation, self.requests, faults, injected, ends, world.trace
        )


def message_body(raws: list[dict]) -> str:
    return json.dumps({"version": 1, "requests": raws})


def run(recipe: Recipe | int, *, trace: bool = False) -> Result:
    """Run one schedule, of a seed or a recipe."""
    if isinstance(recipe, int):
        recipe = Recipe(recipe)
    return Schedule(recipe, trace=trace).run()
