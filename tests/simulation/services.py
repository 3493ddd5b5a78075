"""The services of xorack over simulated AWS: every call of the simulation into them is here."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from unittest.mock import patch

from lambda_src import consumer, environment, sweeper
from tests.simulation.aws import AWS, BUS, DEAD_LETTERS, KEY, QUEUE, TABLE, Client, Message
from tests.simulation.options import DEFAULT_TIMEOUT, PENDING_TIMEOUT, RETENTION
from tests.simulation.world import Machine, World
from xorack.acker import chain_writer
from xorack.acker.breaker import CircuitBreaker
from xorack.acker.chain_writer import ChainWriter
from xorack.acker.consumer import Message as ConsumedMessage
from xorack.acker.parallel import Workers
from xorack.aws import mark_buckets, schema
from xorack.aws.eventbridge import BusCheck
from xorack.aws.retry import RetryPolicy
from xorack.aws.sqs import send
from xorack.compat import dynamodb_acker
from xorack.compat.dynamodb_acker import DynamoDBAcker
from xorack.core import marks
from xorack.core.budget import TimeOuts
from xorack.core.chain import EVENT
from xorack.core.request import Request
from xorack.ops import redrive
from xorack.ops.dead_letters import KINDS
from xorack.ops.redrive import Redrive, Survey

_VARIABLES: dict[str, str | None] = {
    "TABLE_NAME": TABLE,
    "PARTITION_KEY": KEY,
    "EVENT_BUS_NAME": BUS,
    "TABLE_ARN": "arn:aws:dynamodb:eu-west-1:123456789012:table/chains",
    "DEAD_LETTER_QUEUE_URL": DEAD_LETTERS,
    "DEFAULT_TIMEOUT_SECONDS": str(DEFAULT_TIMEOUT // 1000),
    "PENDING_TIMEOUT_SECONDS": str(PENDING_TIMEOUT // 1000),
    "RETENTION_SECONDS": str(RETENTION // 1000),
    "RESUME": "step_functions",
    "MASK": None,
}


class Function:
    """The Lambda functions of one machine, as `lambda_src` builds them, without threads."""

    def __init__(self, machine: Machine, aws: AWS) -> None:
        self.machine = machine
        self.client = Client(machine, aws)
        settings = environment.Settings.of(_VARIABLES)
        self._process = environment.Process(settings)
        services = ("dynamodb", "events", "sqs", "stepfunctions")
        self._process.clients = dict.fromkeys(services, self.client)
        self._process.workers = Workers()
        self._process.bus_check = BusCheck(clock=lambda: machine.now() / 1000)
        self._process.breakers = {
            report: CircuitBreaker(clock=lambda: machine.now() / 1000)
            for report in (EVENT, "step_functions")
        }

    @contextmanager
    def _invocation(self, seconds: float) -> Iterator[environment.Invocation]:
        """Start an invocation; the machine crashes when its time is over."""
        with self.machine.invocation(int(seconds * 1000)):
            remaining = self.machine.remaining
            context = SimpleNamespace(get_remaining_time_in_millis=remaining)
            self.client.time_outs = TimeOuts.within(seconds)
            yield self._process.begin(context)

    @contextmanager
    def consume(self, batch: list[Message], seconds: float) -> Iterator[dict[str, str]]:
        """Consume a batch; yield the failed messages: id to reason."""
        with self._invocation(seconds) as invocation:
            messages = [ConsumedMessage(m.id, m.body, m.receives, m.sent_at) for m in batch]
            yield consumer.build(invocation).consume(messages).failed

    def sweep(self, seconds: float) -> bool:
        """Sweep; return whether the time was enough for all chains that were due."""
        with self._invocation(seconds) as invocation:
            return sweeper.build(invocation).sweep().complete


class Sender:
    """What producers and users of the direct API call."""

    def __init__(self, machine: Machine, aws: AWS) -> None:
        self.machine = machine
        self.client = Client(machine, aws)

    def send(self, requests: list[Request], max_bytes: int) -> None:
        policy = RetryPolicy(attempts=3, cap_seconds=1.0)
        send(QUEUE, requests, self.client, max_bytes=max_bytes, policy=policy)

    def redrive(self) -> None:
        tool = Redrive(DEAD_LETTERS, QUEUE, self.client, RETENTION)
        tool.move(KINDS, Survey([], 0, complete=True))

    def acker(self, attempts: int) -> DynamoDBAcker:
        policy = RetryPolicy(attempts=attempts, cap_seconds=1.0)
        return DynamoDBAcker(TABLE, KEY, self.client, policy=policy, retention_ms=RETENTION)


@contextmanager
def simulated_clock_and_ids(world: World, top_level: int) -> Iterator[None]:
    """Replace clock, sleep, randomness, sizes and the ids of the direct API; turn logging off."""
    in_turn = nullcontext(SimpleNamespace(map=map))
    ids = SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=world.current.next_id))

    def now() -> int:
        return world.current.now()

    def sleep(seconds: float) -> None:
        world.current.sleep(seconds)

    initialize: Callable = RetryPolicy.__init__
    *limits, _, _ = initialize.__defaults__
    defaults = (*limits, sleep, world.random.random)
    policy = RetryPolicy(attempts=3, sleep=sleep, draw=world.random.random)
    level = logging.root.manager.disable
    with (
        patch.object(dynamodb_acker, "uuid", ids),
        patch.multiple(redrive, milliseconds=now, _WORKERS=Workers(), _CALLS=1, _POLICY=policy),
        patch.dict(ChainWriter.__init__.__kwdefaults__, clock=now),
        patch.object(initialize, "__defaults__", defaults),
        patch.multiple(marks, _GROWTH=3, _TOP_LEVEL=top_level),
        patch.multiple(mark_buckets, ThreadPoolExecutor=lambda _: in_turn, _MOST_END_MARKS=12),
        # Small writes: a batch needs several for many chains.
        patch.object(chain_writer, "MAX_FOLD", 8),
        patch.object(schema, "DUE_SHARDS", 2),  # a sweep queries all of them
        ExitStack() as stack,
    ):
        stack.callback(logging.disable, level)
        logging.disable(logging.CRITICAL)
        yield
