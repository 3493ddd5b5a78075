"""The settings of the functions, the state of their process, and one invocation."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from lambda_src.logs import set_up_logs
from xorack.acker.breaker import CircuitBreaker
from xorack.acker.chain_writer import ChainWriter
from xorack.acker.outbox import Outbox
from xorack.acker.parallel import Workers
from xorack.aws import schema
from xorack.aws.callbacks import CALLBACK_SERVICES, CallbackSender
from xorack.aws.client import BoundedClient, config_of, make_client
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.eventbridge import BusCheck, EventBus
from xorack.aws.naming_time import CONSUMERS_SHARE, NamingTime
from xorack.aws.retry import RetryPolicy
from xorack.core.budget import Budget, TimeOuts
from xorack.core.chain import EVENT
from xorack.core.checks import MAX_TIMEOUT_SECONDS, RESUME_KINDS
from xorack.core.errors import ArgumentError, UnavailableError
from xorack.core.masking import mask_of
from xorack.core.transitions import Limits, Retentions

if TYPE_CHECKING:
    from xorack.core.message import Rejected
    from xorack.core.ports import Publisher

SERVICE = os.environ.get("POWERTOOLS_SERVICE_NAME") or "xorack"
"""The name that distinguishes the metrics and logs of several ackers."""
set_up_logs(SERVICE)
_VARIABLES = (
    "TABLE_NAME",
    "TABLE_ARN",
    "PARTITION_KEY",
    "CHECK_TABLE",
    "EVENT_BUS_NAME",
    "DEAD_LETTER_QUEUE_URL",
    "DEFAULT_TIMEOUT_SECONDS",
    "PENDING_TIMEOUT_SECONDS",
    "RETENTION_SECONDS",
    "RESUME",
    "MASK",
    # The boto3 clients depend on these variables.
    "AWS_ENDPOINT_URL",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
)
_DAY_SECONDS = 86_400
_UNKNOWN_SECONDS = 60.0
"""The time of an invocation whose context has no clock."""
_WORKERS = 8
_REPORTS = RetryPolicy(attempts=2, cap_seconds=1.0)


@dataclass(frozen=True)
class Settings:
    """The settings of a function. Each environment variable has the same name in capitals."""

    table_name: str
    table_arn: str | None
    partition_key: str
    check_table: bool
    event_bus_name: str
    dead_letter_queue_url: str | None
    limits: Limits

    @classmethod
    def of(cls, variables: Mapping[str, str | None]) -> Settings:
        """Read the settings; raise ArgumentError if a variable is invalid."""
        limits = Limits(
            default_timeout_ms=_milliseconds(variables, "DEFAULT_TIMEOUT_SECONDS", _DAY_SECONDS),
            pending_timeout_ms=_milliseconds(
                variables, "PENDING_TIMEOUT_SECONDS", 14 * _DAY_SECONDS
            ),
            retention_ms=_milliseconds(variables, "RETENTION_SECONDS", 30 * _DAY_SECONDS),
            resumes=_kinds_of_callbacks(variables["RESUME"] or ""),
            mask=mask_of(variables["MASK"], "MASK"),
        )
        return cls(
            table_name=required("TABLE_NAME", variables["TABLE_NAME"]),
            table_arn=variables["TABLE_ARN"],
            partition_key=variables["PARTITION_KEY"] or schema.TAG,
            check_table=variables.get("CHECK_TABLE") == "true",
            event_bus_name=required("EVENT_BUS_NAME", variables["EVENT_BUS_NAME"]),
            dead_letter_queue_url=variables["DEAD_LETTER_QUEUE_URL"],
            limits=limits,
        )


def required(name: str, value: str | None) -> str:
    """Return the value of a variable; raise ArgumentError if it is missing or empty."""
    if not value:
        raise ArgumentError(name, value, "a value in the function's environment")
    return value


def _milliseconds(variables: Mapping[str, str | None], name: str, default: int) -> int:
    value = variables[name] or str(default)
    valid = value.isascii() and value.isdigit() and len(value) <= 9
    if not valid or not 0 < int(value) <= MAX_TIMEOUT_SECONDS:
        expected = f"a whole number of seconds, above 0 and up to {MAX_TIMEOUT_SECONDS}"
        raise ArgumentError(name, value, expected)
    return int(value) * 1000


def _kinds_of_callbacks(text: str) -> frozenset[str]:
    """Return the kinds of callbacks that the functions may make."""
    kinds = frozenset(filter(None, text.split(",")))
    if unknown := kinds - RESUME_KINDS.keys():
        expected = f"some of {', '.join(RESUME_KINDS)}, separated by commas"
        raise ArgumentError("RESUME", min(unknown), expected)
    return kinds


class Process:
    """The objects that a process keeps between invocations.

    Attributes:
        clients: The boto3 clients that were made so far, by service.
        workers: The threads for calls.
        breakers: A circuit breaker for each kind of report.
        bus_check: Remembers whether the bus existed within the last minute.
        table_arn: The ARN of the table once it is known.
        table_checked: True if the stack created the table, or a check has succeeded.
        earlier_retentions: See `Limits`. None until they are read.
        retention_recorded: True once the table knows the current retention.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clients: dict[str, Any] = {}
        self.workers = Workers(_WORKERS)
        self.breakers = {report: CircuitBreaker() for report in (EVENT, *RESUME_KINDS)}
        self.bus_check = BusCheck()
        self.table_arn = settings.table_arn
        self.table_checked = not settings.check_table
        self.earlier_retentions: Retentions | None = None
        self.retention_recorded = False
        self._time_outs: TimeOuts | None = None
        self._connecting = threading.Lock()

    def begin(self, context: Any, *, attempts: int = 1000) -> Invocation:
        """Begin an invocation, which makes at most `attempts` attempts to write a chain.

        The time-outs of calls follow from the time of this invocation, or of an earlier one.
        """
        seconds_left = _clock(context)
        time_outs = TimeOuts.within(seconds_left())
        if self._time_outs is None:
            self._time_outs = time_outs
        elif time_outs.longest_call > 2 * self._time_outs.longest_call:
            # Lambda repeats a slow initialization within the first invocation, at the cost of its
            # time.
            self._time_outs = time_outs
            self.clients.clear()
        budget = Budget(seconds_left, self._time_outs)
        writes, events, dead_letters = map(budget.before, (2, 1, 0))
        return Invocation(self, attempts, writes, events, dead_letters)

    def client(self, service: str, budget: Budget) -> BoundedClient:
        """Return the client of a service for one step. The client connects at its first call."""

        def connect() -> Any:
            with self._connecting:
                if service not in self.clients:
                    self.clients[service] = make_client(service, config=config_of(budget.time_outs))
                return self.clients[service]

        return BoundedClient(connect, budget)

    def store(self, client: Any) -> DynamoDBStore:
        return DynamoDBStore(
            self.settings.table_name,
            self.settings.partition_key,
            client,
            retention_ms=self.settings.limits.retention_ms,
        )

    def find_table(self, store: DynamoDBStore) -> str:
        """Return the ARN of the table, from the environment or from DynamoDB."""
        if self.table_arn is None:
            self.table_arn = store.table.find_arn()
        return self.table_arn


_process: Process | None = None
_variables: dict[str, str | None] = {}
"""The state of this process, and the variables from which it was built."""


def process() -> Process:
    """Return the state of this process. It is rebuilt if the environment has changed."""
    global _process, _variables
    variables = {name: os.environ.get(name) for name in _VARIABLES}
    if _process is None or variables != _variables:
        _process, _variables = Process(Settings.of(variables)), variables
    return _process


@dataclass(frozen=True)
class Invocation:
    """One invocation, from which a handler builds its service.

    Its steps are writes, events and dead letters. Each step has a budget of the invocation's time.
    """

    process: Process
    attempts: int
    writes: Budget
    events: Budget
    dead_letters: Budget

    def make_writer(self) -> ChainWriter:
        """Make the writer of the first step, after checking a table that the user supplies.

        Raises:
            UnavailableError, ClientError: The earlier retentions cannot be read. The retentions
                must not be guessed, because an old message could then start an ended chain again.
        """
        process, store = self.process, self.process.store(self._client("dynamodb", self.writes))
        if not process.table_checked:
            process.table_checked = store.table.check()
        if process.earlier_retentions is None:
            read = partial(store.earlier_retentions, record=False)
            retry = RetryPolicy(attempts=3, cap_seconds=1.0).start(self.writes)
            process.earlier_retentions, process.retention_recorded = retry.call(read)
        return self._writer(self.writes)

    def make_outbox(self, writer: ChainWriter, naming_share: float = CONSUMERS_SHARE) -> Outbox:
        """Make the outbox of the second step.

        Its writes count together with the writes of the first step.
        """
        process, budget = self.process, self.events
        store = process.store(self._client("dynamodb", budget))
        marker = self._writer(budget)
        marker.stats = writer.stats
        naming = NamingTime(budget, naming_share)
        bus = EventBus(
            process.settings.event_bus_name,
            self._client("events", budget),
            find_table=partial(process.find_table, store),
            policy=_REPORTS,
            naming=naming,
            check=process.bus_check,
        )
        publishers: dict[str, Publisher] = {EVENT: bus}
        # This includes kinds of callbacks that the settings no longer permit. AWS refuses such
        # callbacks, and the acker gives them up after a day.
        for kind in RESUME_KINDS:
            client = self._client(CALLBACK_SERVICES[kind].client, budget)
            publishers[kind] = CallbackSender(kind, client, policy=_REPORTS, naming=naming)
        return Outbox(marker, publishers, workers=process.workers, breakers=process.breakers)

    def make_dead_letters(self) -> Callable[[Sequence[Rejected]], list[int]]:
        """Make the function of the third step, which sends rejected requests."""
        name = "DEAD_LETTER_QUEUE_URL"
        queue_url = required(name, self.process.settings.dead_letter_queue_url)

        def send_dead_letters(rejected: Sequence[Rejected]) -> list[int]:
            from xorack.aws.sqs import send_rejected  # imported here: few batches need it

            policy = RetryPolicy(attempts=5, cap_seconds=1.0)
            client = self._client("sqs", self.dead_letters)
            return send_rejected(queue_url, client, rejected, policy, self.process.workers.map)

        return send_dead_letters

    def record_retention(self) -> None:
        """Record the current retention once, for later invocations, without delaying the batch."""
        process = self.process
        if process.retention_recorded:
            return
        store = process.store(self._client("dynamodb", self.dead_letters))
        with suppress(UnavailableError, ClientError):  # the next invocation retries
            earlier, process.retention_recorded = store.earlier_retentions(record=True)
            process.earlier_retentions = earlier

    def _client(self, service: str, budget: Budget) -> BoundedClient:
        return self.process.client(service, budget)

    def _writer(self, budget: Budget) -> ChainWriter:
        # Few consumers write the same chain, and a writer that waits long loses to newer writers.
        policy = RetryPolicy(attempts=self.attempts, cap_seconds=1.0)
        earlier = self.process.earlier_retentions or ()
        limits = self.process.settings.limits._replace(earlier_retentions=earlier)
        store = self.process.store(self._client("dynamodb", budget))
        return ChainWriter(store, policy=policy, budget=budget, limits=limits)


def _clock(context: Any) -> Callable[[], float]:
    """Return a function that returns the seconds left in an invocation."""
    remaining = getattr(context, "get_remaining_time_in_millis", None)
    if remaining is not None:
        return lambda: float(remaining() / 1000)
    end = time.monotonic() + _UNKNOWN_SECONDS
    return lambda: end - time.monotonic()
