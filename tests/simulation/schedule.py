"""One schedule: producers, consumers, sweepers and users of the direct API, and the faults.

While faults last, everything happens at once. Then the machines go on without faults until the
queues are empty; then time passes all deadlines, and what was swept is judged.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from types import SimpleNamespace

from botocore.exceptions import BotoCoreError, ClientError

import xorack.client.dynamodb_acker
from tests.simulation.aws import BUS, DEAD_LETTERS, QUEUE, TABLE, Bus, Client, Queue, Table
from tests.simulation.oracle import Oracle
from tests.simulation.plan import DAY, Asked, ChainPlan, plan
from tests.simulation.world import KINDS, RARER, Killed, Machine, Violation, World
from tests.support.services import Message, consume, sweep
from xorack.acker.chain_writer import ChainWriter
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.eventbridge import EventBus
from xorack.aws.sqs import DeadLetterQueue, send
from xorack.client.dynamodb_acker import DynamoDBAcker
from xorack.core.errors import SendFailed, StaleLocalData, TagExists, TagNotFound
from xorack.core.ports import Unavailable
from xorack.core.retry import RetryPolicy

DEFAULT_TIMEOUT = 20 * DAY * 1000
RETENTION = 60 * DAY * 1000
SKEW = 5_000
"""Most milliseconds by which a clock is wrong."""
LAG = 4_000
"""Most milliseconds by which the index lags."""


@dataclass(frozen=True)
class Recipe:
    """What makes a schedule; the seed alone unless it was shrunk.

    Attributes:
        seed: The seed.
        salt: Another order and other faults for the same requests.
        chains: The chains to keep. None: all.
        requests: The requests to keep: (chain, position). None: all.
        faults: The faults to keep, by their numbers. None: all.
        quiet: Kinds of faults that are left out.
    """

    seed: int
    salt: int = 0
    chains: tuple[int, ...] | None = None
    requests: tuple[tuple[int, int], ...] | None = None
    faults: tuple[int, ...] | None = None
    quiet: tuple[str, ...] = ()

    def arguments(self) -> str:
        """What replays it."""
        said = [str(self.seed)]
        if self.salt:
            said.append(f"--salt {self.salt}")
        if self.chains is not None:
            said.append("--chains " + ",".join(map(str, self.chains)))
        if self.requests is not None:
            said.append("--requests " + ",".join(f"{c}:{r}" for c, r in self.requests))
        if self.faults is not None:
            said.append("--faults " + (",".join(map(str, self.faults)) or "none"))
        if self.quiet:
            said.append(f"--quiet '{','.join(self.quiet)}'")
        return " ".join(said)


@dataclass
class Result:
    """What came of a schedule.

    Attributes:
        violation: What did not hold; None if all did.
        faults: Faults injected: kind -> how many.
        injected: Their numbers.
        trace: The tale, if it was asked for.
    """

    recipe: Recipe
    violation: Violation | None
    chains: int
    requests: int
    faults: Counter[str]
    injected: list[int]
    ends: Counter[str] = field(default_factory=Counter)
    trace: list[str] | None = None


@dataclass(frozen=True)
class _Size:
    chains: int
    spilling: int
    span: int
    consumers: int
    producers: int
    sweepers: int
    direct: int
    batch: int
    visibility: int
    invocation: int


def _size(seed: int) -> _Size:
    """How large a schedule is, and its machines."""
    random = Random(f"{seed}/size")
    chains, spilling = random.choices(
        ((random.randint(2, 5), 0), (random.randint(6, 14), 0), (random.randint(25, 45), 0),
         (3, 2), (240, 1)),
        (600, 270, 40, 87, 3),
    )[0]  # fmt: skip
    return _Size(
        chains=chains,
        spilling=spilling,
        span=random.choice((500, 5_000, 60_000)),
        consumers=random.choice((1, 2, 2, 3, 4)),
        producers=random.choice((1, 2, 3)),
        sweepers=random.choice((1, 1, 2)),
        direct=random.choice((1, 2)),
        batch=random.choice((1, 4, 10, 60)),
        visibility=random.choice((2_000, 15_000, 90_000)),
        invocation=random.choice((8_000, 30_000, 120_000)),
    )


def _rates(seed: int, salt: int) -> dict[str, float]:
    """Which faults, and how often: some schedules have few kinds, some all (swarm testing)."""
    random = Random(f"{seed}/{salt}/rates")
    intensity = random.choice((0.0, 0.02, 0.06, 0.06, 0.12, 0.25))
    share = random.choice((0.2, 0.5, 1.0))
    rates = {
        kind: intensity * random.uniform(0.2, 1) * RARER.get(kind, 1)
        for kind in KINDS
        if random.random() < share
    }
    for kind in ("delivered again", "delete lost", "unprocessed"):
        if kind in rates:
            rates[kind] = min(0.4, rates[kind] * 3)
    most = sum(rates.values())
    return {kind: rate * min(1, 0.5 / most) for kind, rate in rates.items()} if most else rates


@contextmanager
def _simulated(world: World) -> Iterator[None]:
    """The direct API's clock and ids are the simulation's; logging is off."""
    module = xorack.client.dynamodb_acker
    defaults = ChainWriter.__init__.__kwdefaults__
    real = defaults["clock"], module.uuid
    defaults["clock"] = lambda: world.current.now()  # noqa: PLW0108 - whoever runs by then
    module.uuid = SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=world.current.next_id))
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
        defaults["clock"], module.uuid = real


class Schedule:
    """A schedule's machines."""

    def __init__(self, recipe: Recipe, *, trace: bool = False) -> None:
        self.recipe = recipe
        self.size = size = _size(recipe.seed)
        rates = _rates(recipe.seed, recipe.salt)
        for kind in recipe.quiet:
            rates.pop(kind, None)
        only = None if recipe.faults is None else frozenset(recipe.faults)
        name = f"{recipe.seed}/{recipe.salt}"
        self.world = world = World(name, rates, only_faults=only, trace=trace)
        self.random = world.random
        self.plans = self._plans()
        self.table = Table(world, "tag", self.random.choice((0, LAG)), self.random.choice((2, 50)))
        self.queue = Queue(world, size.visibility, self.random.choice((5, 5, 30)))
        self.bus = Bus()
        self.oracle = Oracle(world, self.plans, self.table, DEFAULT_TIMEOUT, SKEW + LAG)
        self.table.watch = self.oracle.wrote
        self.bus.watch = self.oracle.published
        self.queue.watch_sent = self.oracle.queued
        self.queue.watch_letter = self.oracle.refused
        self.queue.watch_done = self.oracle.done_with
        self.busy = 0
        self.finished = False

    def _plans(self) -> list[ChainPlan]:
        recipe = self.recipe
        size = self.size
        seed = str(recipe.seed)
        kept = range(size.chains) if recipe.chains is None else recipe.chains
        plans = {number: plan(seed, number, size.span, number < size.spilling) for number in kept}
        return [
            replace(
                plans[number],
                asked=[
                    one
                    for position, one in enumerate(plans[number].asked)
                    if recipe.requests is None or (number, position) in recipe.requests
                ],
            )
            for number in kept
        ]

    def positions(self) -> list[tuple[int, int]]:
        """All requests: (chain, position)."""
        numbers = range(len(self.plans)) if self.recipe.chains is None else self.recipe.chains
        every = [
            (number, position)
            for number, plan_ in zip(numbers, self.plans, strict=True)
            for position in range(len(plan_.asked))
        ]
        return every if self.recipe.requests is None else list(self.recipe.requests)

    # -- machines ------------------------------------------------------------------------------

    def machine(self, name: str, *, mortal: bool = False) -> Machine:
        skew = self.random.choice((0, 0, self.random.randrange(-SKEW, SKEW)))
        return Machine(self.world, name, skew, mortal=mortal)

    def client(self, machine: Machine) -> Client:
        return Client(self.world, machine, self.table, self.queue, self.bus)

    def policy(self, machine: Machine, attempts: int, cap: float = 1.0) -> RetryPolicy:
        return RetryPolicy(
            attempts=attempts,
            cap=cap,
            sleep=machine.sleep,
            draw=self.random.random,
            time_left=machine.time_left,
        )

    def store(self, machine: Machine) -> DynamoDBStore:
        return DynamoDBStore(TABLE, "tag", self.client(machine), retention=RETENTION)

    def event_bus(self, machine: Machine) -> EventBus:
        return EventBus(BUS, self.client(machine), policy=self.policy(machine, 3))

    # -- producers -----------------------------------------------------------------------------

    def produce(self, machine: Machine, asked: list[Asked]) -> None:
        """Send requests, and some of them again, cut otherwise: as a task that is run again."""
        random = self.random
        begin = self.world.now
        at = 0
        while at < len(asked):
            part = asked[at : at + random.choice((1, 3, 12, 40))]
            wait = part[-1].after - (self.world.now - begin)
            if wait > 0:
                machine.pause(wait)
            try:
                self._send(machine, part)
            except Killed:
                machine.pause(500)
                at = max(0, at - random.randrange(20))
                continue
            at += len(part)
            if random.random() < 0.1:
                again = random.randrange(at)
                delay = random.choice((100, 10_000, 300_000))
                self.world.later(delay, lambda a=again, b=at: self._resend(asked[a:b]))
        self.busy -= 1

    def _send(self, machine: Machine, part: list[Asked]) -> None:
        client = self.client(machine)
        good = [one.request for one in part if one.request is not None]
        while good:
            try:
                size = self.random.choice((1024, 4096, 250_000))
                policy = self.policy(machine, 3)
                send(QUEUE, good, client, max_bytes=size, policy=policy)
                break
            except SendFailed:
                machine.pause(1000)
        for one in part:
            while one.request is None:
                try:
                    body = one.raw if isinstance(one.raw, str) else _body([one.raw, *_some(part)])
                    entry = {"Id": "0", "MessageBody": body, "MessageAttributes": {}}
                    answer = client.send_message_batch(QueueUrl=QUEUE, Entries=[entry])
                    if not answer.get("Failed"):
                        break
                except ClientError:
                    pass
                except Exception:  # noqa: BLE001 - time-outs; sent again
                    pass
                machine.pause(1000)

    def _resend(self, part: list[Asked]) -> None:
        """A late copy of messages."""
        for one in part:
            if one.request is not None:
                self.queue.send(_body([one.request.to_json()]), {}, QUEUE)

    # -- consumers and sweepers ----------------------------------------------------------------

    def consume(self, machine: Machine) -> None:
        """A Lambda that is given batches."""
        store, bus = self.store(machine), self.event_bus(machine)
        letters = DeadLetterQueue(
            DEAD_LETTERS, self.client(machine), policy=self.policy(machine, 3)
        )
        policy = self.policy(machine, 1000)
        while True:
            self.world.wait_until(machine, lambda: None if self.finished else self.queue.wait())
            if self.finished:
                return
            batch = self.queue.receive(machine, self.size.batch)
            if not batch:
                continue
            self.world.tell(machine, "received " + " ".join(m.id for m in batch))
            machine.deadline = machine.now() + self.size.invocation
            try:
                done = consume(
                    [Message(message.id, message.body) for message in batch],
                    store,
                    bus,
                    letters,
                    policy=policy,
                    now=machine.now,
                    default_timeout=DEFAULT_TIMEOUT,
                    retention=RETENTION,
                    workers=1,
                )
            except Killed:
                self.world.tell(machine, "DIED")
                continue
            finally:
                machine.deadline = None
            for message in batch:
                if message.id not in done.failed:
                    self.queue.delete(machine, message)
                else:
                    self.world.tell(machine, f"{message.id} failed: {done.failed[message.id]}")

    def sweep_often(self, machine: Machine) -> None:
        """The sweeper's Lambda."""
        while not self.finished:
            machine.deadline = machine.now() + self.size.invocation
            try:
                self.sweep(machine)
            except (Unavailable, ClientError, BotoCoreError) as problem:
                self.world.tell(machine, f"sweep failed: {problem}")
            except Killed:
                self.world.tell(machine, "DIED")
            finally:
                machine.deadline = None
            machine.pause(self.random.choice((2_000, 10_000, 60_000)))

    def sweep(self, machine: Machine) -> None:
        sweep(
            self.store(machine),
            self.event_bus(machine),
            policy=self.policy(machine, 1000),
            now=machine.now,
            workers=1,
        )

    # -- the direct API ------------------------------------------------------------------------

    def call_directly(self, machine: Machine, asked: list[Asked]) -> None:
        """A user of `DynamoDBAcker`."""
        acker = DynamoDBAcker(
            TABLE,
            "tag",
            self.client(machine),
            policy=self.policy(machine, self.random.choice((1, 3, 50))),
            retention=RETENTION,
        )
        begin = self.world.now
        for one in asked:
            wait = one.after - (self.world.now - begin)
            machine.pause(max(wait, 1))
            while not self._call_once(machine, acker, one):
                pass
        self.busy -= 1

    def _call_once(self, machine: Machine, acker: DynamoDBAcker, one: Asked) -> bool:
        """Make one call.

        Returns:
            Whether the request is done with.
        """
        request = one.request
        assert request is not None
        assert request.stamp is not None
        truth = self.oracle.truths[one.tag]
        if truth.plan.foreign and self._call_the_other_tool(one):
            return True
        was_there = one.tag in self.table.items
        machine.next_id = request.id
        call = acker.create if request.op == "create" else acker.stamp
        try:
            answer = call(
                one.tag, request.stamp, started=request.started, finished=request.finished
            )
        except TagNotFound:
            if was_there:
                self.world.violated(f"{one.tag}: not found, though it is there")
            self.oracle.not_applied(one, "TagNotFound")
            machine.pause(2000)
            return False
        except StaleLocalData:
            self.oracle.not_applied(one, "StaleLocalData")
            machine.pause(2000)
            return False
        except TagExists:
            self.world.violated(f"{one.tag}: created once, and TagExists")
        except Exception as problem:
            if type(problem).__module__.split(".")[0] != "botocore":
                raise
            # The caller cannot know. Here we can, once nothing is on its way any more.
            self.world.tell(machine, f"{one.tag} {one.name}: {problem}")
            machine.pause(70_000)
            return request.id in truth.applied
        self.oracle.answered(machine, one, answer)
        return True

    def _call_the_other_tool(self, one: Asked) -> bool:
        """Create, or sometimes stamp, as xor-ack-dynamodb does; whether that was possible."""
        request = one.request
        assert request is not None
        assert request.stamp is not None
        item = self.table.items.get(one.tag)
        if request.op == "create":
            if item is not None:
                return False
            self.oracle.foreign_write(one.tag, one)
            self.table.put(one.tag, {"tag": {"S": one.tag}, "stamp": {"B": request.stamp}})
            return True
        if item is None or "ended_at" in item or "status" in item or self.random.random() < 0.5:
            return False
        old = item["stamp"]["B"]
        stamp = bytes(a ^ b for a, b in zip(old, request.stamp, strict=True))
        if not any(stamp):
            return False
        self.oracle.foreign_write(one.tag, one)
        self.table.put(one.tag, {**item, "stamp": {"B": stamp}})
        return True

    # -- the whole -----------------------------------------------------------------------------

    def operate(self, machine: Machine) -> None:
        """Whoever redrives the dead-letter queue, and sees things to their end."""
        world = self.world
        random = self.random
        while self.busy:
            machine.pause(random.choice((1000, 20_000)))
            if random.random() < 0.3:
                self.queue.redrive()
        machine.pause(random.choice((0, 60_000, 400_000)))
        world.quiet = True
        world.tell(machine, "no more faults")
        machine.pause(400_000)  # copies and calls that are on their way arrive
        patience = world.now + 2400 * 1000
        while self.queue.messages or self.queue.dead:
            self.queue.redrive()
            machine.pause(5000)
            if world.now > patience:
                world.violated("the queue is not emptied")
        self.finished = True
        machine.pause(200_000)  # the others come home
        self._see_deadlines_pass(machine)
        self.oracle.at_the_end()

    def _see_deadlines_pass(self, machine: Machine) -> None:
        """Sweep once when the first deadline has passed, and once when all have."""
        for last in (False, True):
            deadlines = {
                tag: due
                for tag, item in self.table.items.items()
                if "\0" not in tag
                and "ended_at" not in item
                and (due := self.oracle.due(item)) is not None
            }
            at = max(deadlines.values(), default=0) if last else min(deadlines.values(), default=0)
            wait = max(0, at - machine.now())
            machine.pause(wait + LAG + 1000)
            self.sweep(machine)
            for tag, due in deadlines.items():
                if due <= at and "ended_at" not in self.table.items[tag]:
                    self.world.violated(f"{tag}: its deadline passed, a sweep too, and it is open")

    def run(self) -> Result:
        size = self.size
        world = self.world
        queued = sorted(
            (one for plan in self.plans for one in plan.asked if not one.direct),
            key=lambda one: one.after,
        )
        direct = sorted(
            (one for plan in self.plans for one in plan.asked if one.direct),
            # Creates first, so that no two wait for each other's chains.
            key=lambda one: (one.name != "create", one.after),
        )
        for number in range(size.producers):
            mine = queued[number :: size.producers]
            if mine:
                self.busy += 1
                machine = self.machine(f"producer {number + 1}", mortal=True)
                world.start(machine, lambda m, mine=mine: self.produce(m, mine))
        for number in range(size.direct):
            mine = direct[number :: size.direct]
            if mine:
                self.busy += 1
                machine = self.machine(f"direct {number + 1}")
                world.start(machine, lambda m, mine=mine: self.call_directly(m, mine))
        for number in range(size.consumers):
            world.start(self.machine(f"consumer {number + 1}", mortal=True), self.consume)
        for number in range(size.sweepers):
            world.start(self.machine(f"sweeper {number + 1}", mortal=True), self.sweep_often)
        for plan_ in self.plans:
            copies = [one for one in plan_.copies if one in plan_.asked]
            if copies:
                world.later(size.span + 30_000, lambda copies=copies: self._resend(copies))
        world.start(Machine(world, "operator"), self.operate)
        with _simulated(world):
            world.run()
        ends: Counter[str] = Counter()
        for truth in self.oracle.truths.values():
            final = truth.final
            if final is None:
                ends["open"] += 1
            else:
                ends[final["reason"]["S"] if "reason" in final else final["status"]["S"]] += 1
        return Result(
            self.recipe,
            world.violation,
            len(self.plans),
            sum(len(plan.asked) for plan in self.plans),
            world.counts,
            world.injected,
            ends,
            world.trace,
        )


def _body(raws: list) -> str:
    return json.dumps({"version": 1, "requests": raws})


def _some(part: list[Asked]) -> list:
    return [one.raw for one in part[:3] if one.request is not None]


def run(recipe: Recipe | int, *, trace: bool = False) -> Result:
    """Run one schedule.

    Args:
        recipe: Its seed, or what it was shrunk to.
        trace: Whether to tell what happened.
    """
    if isinstance(recipe, int):
        recipe = Recipe(recipe)
    return Schedule(recipe, trace=trace).run()
