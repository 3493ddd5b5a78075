"""The services of xorack over simulated AWS: every call of the simulation into them is here."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from types import SimpleNamespace
from unittest.mock import patch

from tests.simulation.aws import BUS, DEAD_LETTERS, KEY, QUEUE, TABLE, Client, Message
from tests.simulation.options import DEFAULT_TIMEOUT, RETENTION
from tests.simulation.world import Machine, World
from xorack.acker.breaker import CircuitBreaker
from xorack.acker.chain_writer import ChainWriter, Limits
from xorack.acker.consumer import Consumer
from xorack.acker.consumer import Message as ConsumedMessage
from xorack.acker.outbox import Outbox
from xorack.acker.sweeper import Sweeper
from xorack.aws.client import BoundedClient
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.eventbridge import EventBus
from xorack.aws.sqs import DeadLetterQueue, send
from xorack.client import dynamodb_acker
from xorack.client.dynamodb_acker import DynamoDBAcker
from xorack.core.request import Request
from xorack.core.retry import RetryPolicy


class Services:
    """The services as one machine runs them."""

    def __init__(self, machine: Machine, client: Client, random: Random) -> None:
        self.machine = machine
        self.client = client = BoundedClient(client, machine.time_left)
        self.random = random
        self.breaker = CircuitBreaker(clock=lambda: machine.now() / 1000)
        self.store = DynamoDBStore(TABLE, KEY, client, retention=RETENTION)
        self.bus = EventBus(BUS, client, policy=self.policy(2))
        self.dead_letters = DeadLetterQueue(DEAD_LETTERS, client, policy=self.policy(3))

    def policy(self, attempts: int) -> RetryPolicy:
        return RetryPolicy(
            attempts=attempts,
            cap=1.0,
            sleep=self.machine.sleep,
            draw=self.random.random,
            time_left=self.machine.time_left,
        )

    def send(self, requests: list[Request], max_bytes: int) -> None:
        send(QUEUE, requests, self.client, max_bytes=max_bytes, policy=self.policy(3))

    def writer(self) -> ChainWriter:
        return ChainWriter(
            self.store,
            clock=self.machine.now,
            retry_policy=self.policy(1000),
            limits=Limits(DEFAULT_TIMEOUT, retention=RETENTION),
        )

    def consume(self, batch: list[Message]) -> dict[str, str]:
        """Return the failed messages: id to reason."""
        writer = self.writer()
        outbox = Outbox(writer, self.bus, breaker=self.breaker)
        messages = [ConsumedMessage(m.id, m.body, m.receives) for m in batch]
        return Consumer(writer, outbox, self.dead_letters).consume(messages).failed

    def sweep(self) -> None:
        writer = self.writer()
        Sweeper(writer, Outbox(writer, self.bus, breaker=self.breaker)).sweep()

    def acker(self, attempts: int) -> DynamoDBAcker:
        policy = self.policy(attempts)
        return DynamoDBAcker(TABLE, KEY, self.client, policy=policy, retention=RETENTION)


@contextmanager
def simulated_clock_and_ids(world: World) -> Iterator[None]:
    """Give the direct API the simulation's clock and ids; turn logging off."""
    ids = SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=world.current.next_id))
    defaults = ChainWriter.__init__.__kwdefaults__
    level = logging.root.manager.disable
    with patch.object(dynamodb_acker, "uuid", ids), patch.dict(defaults), ExitStack() as stack:
        defaults["clock"] = lambda: world.current.now()  # noqa: PLW0108 - the machine of that time
        stack.callback(logging.disable, level)
        logging.disable(logging.CRITICAL)
        yield
