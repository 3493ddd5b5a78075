"""The operator: redrives dead messages, uses tags again, ends the faults and starts the checks."""

from contextlib import suppress
from math import inf

from botocore.exceptions import BotoCoreError, ClientError

from tests.simulation.invariants import of_callback
from tests.simulation.model import deadline_of, number
from tests.simulation.options import DAY_SECONDS, MAX_INDEX_LAG, draw_outages
from tests.simulation.services import Function, Sender
from tests.simulation.world import Machine
from xorack.aws.schema import FORMAT
from xorack.compat.dynamodb_acker import DynamoDBAcker
from xorack.core.errors import SendError, StateError, TagNotFound

_HOUR = 3_700_000
_DAY = DAY_SECONDS * 1000
_LONGEST_ROUND = 400 * _DAY
_HOLDS = (2_000, 30_000, 600_000)


class Operator:
    """The part of a schedule with the main function of the machine that runs it."""

    def operate(self, machine: Machine) -> None:
        """Run all rounds, end the faults, wait for the end and check the result."""
        world = self.world
        sender = Sender(machine, self.aws)
        for round in range(self.options.rounds):
            if round:
                self._reuse_tags(sender, round)
            self._begin_outages()
            self.round = round
            world.wake()  # senders begin the round
            self._redrive_while(sender, lambda: self.sending[self.round] > 0)
        self._redrive_while(sender, lambda: self.sending.total() > 0)
        machine.pause(self.random.choice((0, 60_000, 400_000)))
        if self.options.without_bus:
            self._wait_without_bus(machine)
        world.faultless = True
        world.log("faults end")
        machine.pause(400_000)  # for delayed calls
        self._empty_queues(sender, _DAY)
        # Sweepers publish what newer code held.
        machine.pause(max(0, self.oracle.future_until + 200_000 - world.now))
        self.finished = True
        world.wake()  # consumers and sweepers stop
        machine.pause(200_000)  # for the other machines to finish
        function = Function(machine, self.aws)
        self._repeat_refused(function)  # before TTL removes a chain
        self._pass_deadlines(function, min)
        self._pass_deadlines(function, max)
        self._repeat_refused(function)
        self.oracle.ended(prompt=not self.options.redrive_delay)

    def _wait_without_bus(self, machine: Machine) -> None:
        """Wait until the outage of the bus is nearly over, and check the callbacks."""
        bus, tasks = self.world.outages
        machine.pause(bus.end - 1000 - self.world.now)
        for *_, model in self.oracle.generations.values():
            self.oracle.check(model.workload.tag, of_callback(model, tasks.end))

    # -- while faults last ---------------------------------------------------------------------

    def _begin_outages(self) -> None:
        """Begin outages of services, and write chains in a newer format for a while."""
        self.world.outages = draw_outages(self.random, self.options, self.world.now)
        for workload in self.workloads:
            if self.random.random() < self.options.future:
                after = self.random.randrange(self.options.span + 10_000)
                self.world.later(after, lambda tag=workload.tag: self._hold(tag))

    def _hold(self, tag: str) -> None:
        """Write a chain in a newer format, and later write it back."""
        item = self.table.items.get(tag)
        if item is None or self.world.faultless or (number(item, "format") or FORMAT) > FORMAT:
            return
        milliseconds = self.random.choice(_HOLDS)
        generation = number(item, "first_seen_at")
        self.world.fault_counts["future"] += 1
        # A reader that saw the older format, or no format, may still answer for a while.
        until = self.world.now + milliseconds
        self.oracle.future_until = max(self.oracle.future_until, until)
        self._write_format(tag, {"format": {"N": str(FORMAT + 1)}})
        old = {"format": item["format"]} if "format" in item else {}

        def write_back() -> None:
            if generation == number(self.table.items.get(tag), "first_seen_at"):
                self._write_format(tag, old)

        self.world.later(milliseconds, write_back)

    def _write_format(self, tag: str, format: dict) -> None:
        item = dict(self.table.items[tag])
        item.pop("format", None)
        version = (number(item, "version") or 0) + 1
        self.table.put(tag, {**item, **format, "version": {"N": str(version)}}, "future")

    def _redrive_while(self, sender: Sender, condition) -> None:
        """Redrive dead messages now and then while a condition holds."""
        machine = sender.machine
        limit = self.world.now + _LONGEST_ROUND

        def idle_time() -> float | None:
            return None if self.queue.dead or not condition() else inf

        while condition():
            self.world.wait_until(machine, idle_time)
            delay = self.options.redrive_delay
            machine.pause(self.random.choice((1000, 20_000, delay or 1000)))
            if self.random.random() < self.options.redrive:
                self._redrive(sender)
            if self.world.now > limit:
                self.world.violated("All senders finish.")

    def _redrive(self, sender: Sender) -> None:
        if not self.queue.dead:
            return
        try:
            sender.redrive()
        except (ClientError, BotoCoreError, SendError) as error:
            self.world.log(f"redrive failed: {error}")

    def _empty_queues(self, sender: Sender, milliseconds: int) -> None:
        """Wait until all copies are sent and all messages are processed."""
        machine = sender.machine
        limit = None
        while self.queue.messages or self.queue.dead or self.copies:
            self._redrive(sender)
            self.queue.abandon_expired()
            machine.pause(5000 if not self.copies or self.queue.messages else 300_000)
            if not self.copies:
                limit = limit or self.world.now + milliseconds
            if limit is not None and self.world.now > limit:
                self.world.violated("The queue becomes empty once faults have ended.")

    # -- tags that are used again --------------------------------------------------------------

    def _reuse_tags(self, sender: Sender, round: int) -> None:
        """Delete chains whose tags the next round uses again."""
        machine = sender.machine
        workloads = [one for one in self.workloads if one.run(round)]
        if any(workload.patient for workload in workloads):
            self._redrive_while(sender, lambda: self.sending[round - 1] > 0)
        self._empty_queues(sender, 30 * _DAY)
        machine.pause(self.options.reuse_delay)
        self._empty_queues(sender, 30 * _DAY)
        for workload in workloads:
            self.oracle.reused(workload.tag)
            self.oracle.to_delete.append(self.oracle.model(workload.tag))
        acker = sender.acker(attempts=3)
        for workload in workloads:
            # No fault affects the deletion: a repeated deletion may remove the next chain of the
            # tag.
            with suppress(TagNotFound):
                while not self._deleted(acker, workload.tag):
                    machine.pause(600_000)

    def _deleted(self, acker: DynamoDBAcker, tag: str) -> bool:
        """Delete a chain; return False if its event is pending, or a read of it fails."""
        try:
            acker.delete(tag)
            return True
        except TagNotFound:
            raise
        except (ClientError, BotoCoreError, StateError) as error:
            self.world.log(f"{tag} not deleted: {error}")
            return False

    # -- the end -------------------------------------------------------------------------------

    def _repeat_refused(self, function: Function) -> None:
        """Sweep when each refused delivery is to be repeated at the latest.

        A report moves its chain to another place of the index, where readers may see the chain
        only after the index's lag. So a chain of three reports may need three sweeps.
        """
        function.machine.pause(_HOUR)
        for _ in range(3):
            function.sweep(self.options.invocation)
            function.machine.pause(MAX_INDEX_LAG + 1000)

    def _pass_deadlines(self, function: Function, choose) -> None:
        """Sweep after the first, or the last, deadline."""
        machine = function.machine
        deadlines = [
            (deadline, model)
            for *_, model in self.oracle.generations.values()
            if not model.final and (deadline := deadline_of(model.item)) is not None
        ]
        at = choose((deadline for deadline, _ in deadlines), default=0)
        machine.pause(max(0, at - machine.now()) + MAX_INDEX_LAG + 1000)
        # The largest schedule may take several short invocations; each says whether more are
        # needed.
        for _ in range(10):
            if function.sweep(self.options.invocation):
                break
        for deadline, model in deadlines:
            if deadline <= at and model.final is None:
                tag = model.workload.tag
                self.world.violated(f"{tag}: A sweep ends all chains that are due.")
