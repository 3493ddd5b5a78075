"""The Lambda functions over services whose calls cost simulated time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError

import lambda_src.consumer
import lambda_src.environment
import lambda_src.sweeper
from tests.support.functions import Context
from tests.support.memory_store import MemoryStore
from xorack.acker.breaker import CircuitBreaker
from xorack.acker.chain_writer import ChainWriter
from xorack.acker.parallel import Workers
from xorack.aws.client import budget_of
from xorack.aws.retry import RetryPolicy
from xorack.core.budget import UNLIMITED, TimeOuts
from xorack.core.chain import EVENT
from xorack.core.checks import RESUME_KINDS
from xorack.core.errors import BatchError
from xorack.errors import UnavailableError

START = 1_700_000_000
BAD = "refused"
"""The bus and Step Functions refuse the tags and tokens that begin with it."""


class Clock:
    """A clock that moves only when a call or a wait takes time."""

    def __init__(self) -> None:
        self.now = 0.0

    def spend(self, seconds: float) -> None:
        self.now += seconds


class SlowStore(MemoryStore):
    """A store whose calls cost time; it throttles the chains in `hot`, and is silent if `dead`."""

    dead, write_seconds, budget = False, 0.005, UNLIMITED
    writes = written = 0

    def __init__(self, clock: Clock, time_out: float) -> None:
        super().__init__()
        self.clock, self.time_out, self.hot = clock, time_out, set()

    def _answer(self) -> None:
        if self.dead:
            self.clock.spend(self.time_out)
            raise UnavailableError(ReadTimeoutError(endpoint_url="dynamodb"))

    def read(self, tags, on_invalid=None, *, marks=True):
        self._answer()
        self.clock.spend(0.02)
        return super().read(tags, on_invalid)

    def write(self, before, after):
        self._answer()
        self.clock.spend(self.write_seconds)
        self.writes += 1
        if after.tag in self.hot:
            raise UnavailableError(OSError("throttled"))
        super().write(before, after)
        self.written += 1

    def due_page(self, now, shard, after=None):
        RetryPolicy(attempts=6).start(self.budget).call(self._answer)
        page = super().due_page(now, shard, after)
        self.clock.spend(0.004 if page.tags else 0)
        return page


class SlowClient:
    """A client of EventBridge, Step Functions and SQS; it never answers if `dead`.

    Attributes:
        refuses: Returns True for a tag whose event, or a token whose task, is refused.
        refuses_calls: A refused event fails its call.
        tasks: Tokens of the tasks that were resumed, and when.
    """

    dead = refuses_calls = False
    seconds, calls = 0.02, 0

    def __init__(self, clock: Clock, time_out: float) -> None:
        self.clock, self.time_out = clock, time_out
        self.events: list[str] = []
        self.tasks: dict[str, float] = {}
        self.refuses: Callable[[str], bool] = lambda name: name.startswith(BAD)

    def _answer(self) -> None:
        self.calls += 1
        self.clock.spend(self.time_out if self.dead else self.seconds)
        if self.dead:
            raise ConnectTimeoutError(endpoint_url="service")

    def describe_event_bus(self, Name):
        """The test of the calls' times begins with a bus that is known to exist."""

    def put_events(self, Entries):
        self._answer()
        bad = [self.refuses(json.loads(entry["Detail"])["tag"]) for entry in Entries]
        if any(bad) and self.refuses_calls:
            raise ClientError({"Error": {"Code": "ValidationException"}}, "PutEvents")
        self.events += [e["Detail"] for e, refused in zip(Entries, bad, strict=True) if not refused]
        results = [{"ErrorCode": "MalformedDetail"} if refused else {} for refused in bad]
        return {"FailedEntryCount": sum(bad), "Entries": results}

    def send_task_success(self, taskToken, **_):
        self._answer()
        if self.refuses(taskToken):
            message = f"the token {taskToken} is of another account"
            error = {"Code": "AccessDeniedException", "Message": message}
            raise ClientError({"Error": error}, "SendTaskSuccess")
        self.tasks[taskToken] = self.clock.now

    send_task_failure = send_task_success

    def send_message_batch(self, QueueUrl, Entries):
        self._answer()
        return {}


class SlowFunctions(lambda_src.environment.Process):
    """The consumer and the sweeper; each invocation must end within its time.

    They have one worker, and the store stands for its client.
    """

    def __init__(self, monkeypatch, seconds: float = 60) -> None:
        names = ("TABLE_NAME", "TABLE_ARN", "EVENT_BUS_NAME", "DEAD_LETTER_QUEUE_URL")
        unset = dict.fromkeys(lambda_src.environment._VARIABLES)
        variables = {**unset, **dict.fromkeys(names, "name")}
        super().__init__(lambda_src.environment.Settings.of(variables))
        self.clock = clock = Clock()
        self.seconds = seconds
        longest = TimeOuts.within(seconds).longest_call
        self.table = SlowStore(clock, longest)
        self.bus, self.queue, self.tasks = (SlowClient(clock, longest) for _ in range(3))
        self.clients = {"dynamodb": self.table, "events": self.bus, "sqs": self.queue}
        self.clients["stepfunctions"] = self.tasks
        self.workers = Workers(1)
        channels = (EVENT, *RESUME_KINDS)
        self.breakers = {name: CircuitBreaker(clock=lambda: clock.now) for name in channels}
        for module in (lambda_src.consumer, lambda_src.sweeper):
            monkeypatch.setattr(module, "process", lambda: self)
        now = lambda: int((START + clock.now) * 1000)  # noqa: E731
        monkeypatch.setitem(ChainWriter.__init__.__kwdefaults__, "clock", now)
        defaults = [
            clock.spend if getattr(value, "__name__", "") == "sleep" else value
            for value in RetryPolicy.__init__.__defaults__
        ]
        monkeypatch.setattr(RetryPolicy.__init__, "__defaults__", tuple(defaults))

    def store(self, client: Any) -> Any:
        self.table.budget = budget_of(client)
        return client

    def _call(self, handler, event) -> Any:
        context = Context(self.seconds, clock=lambda: self.clock.now)
        try:
            return handler(event, context)
        finally:
            assert self.clock.now <= context.end, "the invocation ran past its time"

    def consume(self, bodies: dict[str, str], receives: dict[str, int] | None = None) -> list[str]:
        """Handle messages, id to body; return the ids of those that are delivered again."""
        counts = {
            id: {"ApproximateReceiveCount": str((receives or {}).get(id, 1))} for id in bodies
        }
        records = [
            {"messageId": id, "body": body, "attributes": counts[id]} for id, body in bodies.items()
        ]
        with suppress(BatchError):
            response = self._call(lambda_src.consumer.handler, {"Records": records})
            return [failure["itemIdentifier"] for failure in response["batchItemFailures"]]
        return list(bodies)

    def sweep(self) -> dict[str, Any]:
        return self._call(lambda_src.sweeper.handler, {})

    def sweep_each_minute(self, minutes: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Sweep once a minute; yield the minutes and the figures."""
        for minute in range(minutes):
            began = self.clock.now
            yield minute, self.sweep()
            self.clock.now = began + 60
