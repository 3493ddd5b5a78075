"""Senders: producers of messages, and users of the direct API."""

import json
from functools import partial

from botocore.exceptions import BotoCoreError, ClientError

from tests.simulation.aws import QUEUE, Client
from tests.simulation.model import number
from tests.simulation.options import DAY_SECONDS, RETENTION
from tests.simulation.services import Sender
from tests.simulation.workload import Submission
from tests.simulation.world import Crash, Machine
from xorack.core.errors import SendError, StaleLocalData, TagExists, TagNotFound, XorAckError

_CALLS = 300
"""Calls after which a user of the direct API gives up waiting for a chain."""


class Senders:
    """The part of a schedule with the main functions of producers and users of the direct API."""

    copies = 0
    """Copies that are yet to be sent."""

    # -- producers -----------------------------------------------------------------------------

    def produce(self, machine: Machine, submissions: list[Submission]) -> None:
        """Send requests, some of them again in other messages, as a retried task does."""
        sender = Sender(machine, self.aws)
        for round in range(self.options.rounds):
            self.wait_for_round(machine, round)
            begin = self.world.now
            mine = [one for one in submissions if one.run == round]
            for one in mine:
                for at in one.copies:
                    self._later(at, [one])
                for at in one.repeats:
                    self.copies += 1
                    self.world.later(at, partial(self._repeat_late, one))
            self._produce(sender, mine, begin)
            self._finish(round)

    def _finish(self, number: int) -> None:
        self.sending[number] -= 1
        self.world.wake()

    def _produce(self, sender: Sender, submissions: list[Submission], begin: int) -> None:
        random, machine = self.random, sender.machine
        at = 0
        while at < len(submissions):
            size = random.choice((1, 3, 12, 40))
            now = max(submissions[at].after, self.world.now - begin)
            part = [
                one for one in submissions[at : at + size] if one.after <= now + self.options.span
            ]
            machine.pause(max(0, part[-1].after - (self.world.now - begin)))
            try:
                self._send(sender, part)
            except Crash:
                machine.pause(500)
                at = max(0, at - random.randrange(20))
                continue
            at += len(part)
            if random.random() < self.options.resend:
                again = submissions[random.randrange(at) : at]
                self._later(random.choice((100, 10_000, 300_000)), again)

    def _send(self, sender: Sender, part: list[Submission]) -> None:
        part = [one for one in part if not self._is_forgotten(one)]
        requests = [one.sent(self.random) for one in part if one.request]
        while requests:
            try:
                sender.send(requests, self.random.choice((1024, 4096, 250_000)))
                break
            except SendError:
                sender.machine.pause(1000)
        valid = [one.sent(self.random).to_json() for one in part[:3] if one.request]
        for one in part:
            if one.request is None:
                body = one.raw if isinstance(one.raw, str) else message_body([one.raw, *valid])
                while not self._send_body(sender.client, body):
                    sender.machine.pause(1000)

    @staticmethod
    def _send_body(client: Client, body: str) -> bool:
        entry = {"Id": "0", "MessageBody": body, "MessageAttributes": {}}
        try:
            return not client.send_message_batch(QueueUrl=QUEUE, Entries=[entry])["Failed"]
        except (ClientError, BotoCoreError):
            return False

    def _later(self, milliseconds: int, submissions: list[Submission]) -> None:
        """Send copies later, one request a message."""

        def send() -> None:
            self.copies -= 1
            for one in submissions:
                if one.request is not None and self._is_known(one):
                    self.queue.send(message_body([one.sent(self.random).to_json()]))

        self.copies += 1
        self.world.later(milliseconds, send)

    def _repeat_late(self, one: Submission) -> None:
        """Send a request again after its chain's end, and redrive that message weeks later."""
        model = self.oracle.model(one.tag)
        ended, sent_at = number(model.final, "ended_at"), self.world.now
        if ended is None and model.item:
            self.world.later(DAY_SECONDS * 1000, lambda: self._repeat_late(one))
            return
        if ended is None or sent_at - ended > 1.97 * RETENTION:
            self.copies -= 1  # the tombstone may be gone: a new chain
            return
        body = message_body([one.sent(self.random).to_json()])
        self.oracle.queued(body, sent_at)

        def redrive() -> None:
            self.copies -= 1
            self.queue.send(body, sent_at)

        if sent_at - ended > RETENTION:
            self.queue.send(body, sent_at)  # seen: the tombstone is prolonged
        self.world.later(int(self.random.uniform(0.8, 0.99) * RETENTION), redrive)

    def _is_forgotten(self, one: Submission) -> bool:
        """Return whether no sender sends a request any more."""
        if one.tag in self.oracle.expired or one.text not in self.oracle.sent:
            return one.tag in self.oracle.expired
        ended = number(self.oracle.model(one.tag).final, "ended_at") if one.tag else None
        return ended is not None and ended < self.world.now - 1000 * DAY_SECONDS

    def _is_known(self, one: Submission) -> bool:
        """Return whether a copy comes in time: only a retried task sends copies after the end."""
        ended = self.oracle.model(one.tag).final is not None
        return one.tag not in self.oracle.expired and (not ended or bool(one.attempts))

    # -- the direct API ------------------------------------------------------------------------

    def call_directly(self, machine: Machine, submissions: list[Submission]) -> None:
        """Use `DynamoDBAcker`."""
        acker = Sender(machine, self.aws).acker(attempts=self.random.choice((1, 3, 50)))
        for round in range(self.options.rounds):
            self.wait_for_round(machine, round)
            begin = self.world.now
            for one in submissions:
                if one.run != round:
                    continue
                machine.pause(max(1, one.after - (self.world.now - begin)))
                for _ in range(_CALLS):
                    if self._call(machine, acker, one):
                        break
            self._finish(round)

    def _call(self, machine: Machine, acker, one: Submission) -> bool:
        """Make a call; return True if it need not be repeated."""
        request, existed = one.request, one.tag in self.table.items
        generations = len(self.oracle.generations[one.tag])
        machine.next_id = request.id
        call = acker.create if request.op == "create" else acker.stamp
        arguments: dict = {"started": request.started, "finished": request.finished}
        if one.has_id:
            arguments["request_id"] = request.id
        try:
            stamp = call(one.tag, request.stamp, **arguments)
        except (TagNotFound, TagExists, StaleLocalData) as error:
            if generations == len(self.oracle.generations[one.tag]):
                self.oracle.responded(one, None, type(error).__name__, existed)
            machine.pause(2000)
            return isinstance(error, TagExists)
        except (ClientError, BotoCoreError, XorAckError) as error:
            self.world.log(f"{one.tag} {one.name}: {type(error).__name__} {error}")
            if one.has_id:
                machine.pause(self.random.choice((1000, 60_000)))
                return False
            # The caller does not know the outcome. The simulation does, after all delayed calls.
            machine.pause(70_000)
            models = self.oracle.generations[one.tag][generations - 1 :]
            return any(model.has(one) for model in models)
        if generations == len(self.oracle.generations[one.tag]):
            self.oracle.responded(one, stamp)
        return True


def message_body(raws: list[dict]) -> str:
    return json.dumps({"version": 1, "requests": raws})
