"""Services that the functions' environment variables name, created at the first call."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from lambda_src.logs import set_up_logs
from xorack.aws import schema
from xorack.aws.client import BoundedClient, config_of, make_client
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.eventbridge import EventBus
from xorack.aws.naming_time import NamingTime
from xorack.aws.retry import RetryPolicy
from xorack.core.budget import Budget, TimeOuts
from xorack.core.chain import EVENT
from xorack.core.checks import MAX_TIMEOUT_SECONDS, RESUME_KINDS
from xorack.core.errors import ArgumentError, UnavailableError
from xorack.core.masking import mask_of
from xorack.core.transitions import Limits, Retentions

if TYPE_CHECKING:
    from xorack.acker.breaker import CircuitBreaker
    from xorack.acker.chain_writer import ChainWriter
    from xorack.acker.outbox import Outbox
    from xorack.acker.parallel import Workers
    from xorack.core.message import Rejected
    from xorack.core.ports import Publisher

SERVICE = os.environ.get("POWERTOOLS_SERVICE_NAME") or "xorack"
"""The name that tells the metrics and logs of several ackers apart."""
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
    # The boto3 clients depend on these.
    "AWS_ENDPOINT_URL",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
)
_DAY_SECONDS = 86_400
_UNKNOWN_SECONDS = 60.0
"""Time of an invocation whose context has no clock."""
_WORKERS = 8
_REPORTS = RetryPolicy(attempts=2, cap_seconds=1.0)


def services() -> Services:
    """Return the services that the environment names, created once for each set of values."""
    return _services(tuple((name, os.environ.get(name)) for name in _VARIABLES))


@lru_cache(maxsize=4)
def _services(variables: tuple[tuple[str, str | None], ...]) -> Services:
    return Services(dict(variables))


class Services:
    """The services of a function. All raise ArgumentError if a variable is invalid.

    Attributes:
        clients: The boto3 clients that exist already, by service.
        table_checked: True if the stack created the table, or a check has found no fault.
        earlier_retentions: See `Limits`; None until they are read.
        retention_recorded: True once the table knows the present one.
    """

    def __init__(self, variables: dict[str, str | None]) -> None:
        self._variables = variables
        self.clients: dict[str, Any] = {}
        self._connecting = threading.Lock()
        self._time_outs: TimeOuts | None = None
        self._table_arn: str | None = None
        self.table_checked = variables.get("CHECK_TABLE") != "true"
        self.earlier_retentions: Retentions | None = None
        self.retention_recorded = False

    def text(self, name: str) -> str:
        value = self._variables[name]
        if not value:
            raise ArgumentError(name, value, "a value: it is an environment variable")
        return value

    def _milliseconds(self, name: str, default: int) -> int:
        value = self._variables[name] or str(default)
        valid = value.isascii() and value.isdigit() and len(value) <= 9
        if not valid or not 0 < int(value) <= MAX_TIMEOUT_SECONDS:
            expected = f"a whole number of seconds, above 0 and up to {MAX_TIMEOUT_SECONDS}"
            raise ArgumentError(name, value, expected)
        return int(value) * 1000

    @cached_property
    def limits(self) -> Limits:
        return Limits(
            default_timeout_ms=self._milliseconds("DEFAULT_TIMEOUT_SECONDS", _DAY_SECONDS),
            pending_timeout_ms=self._milliseconds("PENDING_TIMEOUT_SECONDS", 14 * _DAY_SECONDS),
            retention_ms=self._milliseconds("RETENTION_SECONDS", 30 * _DAY_SECONDS),
            resumes=self.resumes,
            mask=mask_of(self._variables["MASK"], "MASK"),
        )

    def find_table(self, store: DynamoDBStore) -> str:
        """Find the ARN of the table: the stack's output, or DynamoDB's."""
        if self._table_arn is None:
            self._table_arn = self._variables["TABLE_ARN"] or store.table.find_arn()
        return self._table_arn

    @cached_property
    def resumes(self) -> frozenset[str]:
        """The kinds of waiting executions that the functions may resume."""
        kinds = frozenset(filter(None, (self._variables["RESUME"] or "").split(",")))
        if unknown := kinds - RESUME_KINDS.keys():
            expected = f"some of {', '.join(RESUME_KINDS)}, separated by commas"
            raise ArgumentError("RESUME", min(unknown), expected)
        return kinds

    @cached_property
    def workers(self) -> Workers:
        from xorack.acker.parallel import Workers

        return Workers(_WORKERS)

    @cached_property
    def breakers(self) -> dict[str, CircuitBreaker]:
        """The circuit breakers of the channels: they remember failures across invocations."""
        from xorack.acker.breaker import CircuitBreaker

        return {channel: CircuitBreaker() for channel in (EVENT, *RESUME_KINDS)}

    def invocation(self, context: Any, *, attempts: int = 1000) -> Invocation:
        """Start an invocation, which writes a chain in at most `attempts` attempts.

        The time-outs of calls follow from its time, or an earlier one's.
        """
        seconds_left = _clock(context)
        time_outs = TimeOuts.within(seconds_left())
        if self._time_outs is None:
            self._time_outs = time_outs
        elif time_outs.longest_call > 2 * self._time_outs.longest_call:
            # Lambda repeats a slow initialization in the first invocation, at the cost of its time.
            self._time_outs = time_outs
            self.clients.clear()
        return Invocation(self, Budget(seconds_left, self._time_outs), attempts)

    def client(self, service: str, time_outs: TimeOuts) -> Any:
        with self._connecting:
            if service not in self.clients:
                self.clients[service] = make_client(service, config=config_of(time_outs))
            return self.clients[service]

    def store(self, client: Any) -> DynamoDBStore:
        return DynamoDBStore(
            self.text("TABLE_NAME"),
            self._variables["PARTITION_KEY"] or schema.TAG,
            client,
            retention_ms=self.limits.retention_ms,
        )


class Invocation:
    """The services of one invocation, within its time.

    Its steps are writes, events, dead letters; each has a `Budget`.
    """

    def __init__(self, services: Services, budget: Budget, attempts: int) -> None:
        self._services = services
        self._attempts = attempts
        self._writes, self._events, self._dead_letters = map(budget.before, (2, 1, 0))

    def client(self, service: str, budget: Budget | None = None) -> BoundedClient:
        """Return the client of a service for a step, by default for the last."""
        budget = budget or self._dead_letters
        connect = partial(self._services.client, service, budget.time_outs)
        return BoundedClient(connect, budget)

    def store(self, budget: Budget | None = None) -> DynamoDBStore:
        """Return the table for a step, by default for the last."""
        return self._services.store(self.client("dynamodb", budget))

    @cached_property
    def writer(self) -> ChainWriter:
        """The first step: writes, after the check of a table that the stack did not create."""
        if not self._services.table_checked:
            self._services.table_checked = self.store(self._writes).table.check()
        if self._services.earlier_retentions is None:
            self._read_retentions(self._writes, record=False)
        return self._writer(self._writes)

    def record_retention(self) -> None:
        """Write down the retention for those after it, once: a batch does not wait for this."""
        if not self._services.retention_recorded:
            self._read_retentions(self._dead_letters, record=True)

    def _read_retentions(self, budget: Budget, *, record: bool) -> None:
        with suppress(UnavailableError, ClientError):  # a table that is down is down for all
            earlier, recorded = self.store(budget).earlier_retentions(record=record)
            self._services.earlier_retentions = earlier
            self._services.retention_recorded = recorded

    @cached_property
    def outbox(self) -> Outbox:
        """The second step: events."""
        from xorack.acker.outbox import Outbox
        from xorack.aws.resume import SERVICES, Resumer

        services = self._services
        budget = self._events
        writer = self._writer(budget)
        writer.stats = self.writer.stats
        naming = NamingTime(budget)
        bus = EventBus(
            services.text("EVENT_BUS_NAME"),
            self.client("events", budget),
            find_table=partial(services.find_table, self.store(budget)),
            policy=_REPORTS,
            naming=naming,
        )
        channels: dict[str, Publisher] = {EVENT: bus}
        # Also the kinds that the settings do not permit any more: AWS refuses, and that has an end.
        for kind in RESUME_KINDS:
            client = self.client(SERVICES[kind].client, budget)
            channels[kind] = Resumer(kind, client, policy=_REPORTS, naming=naming)
        return Outbox(writer, channels, workers=services.workers, breakers=services.breakers)

    @cached_property
    def send_rejected(self) -> Callable[[Sequence[Rejected]], list[int]]:
        """The third step: dead letters."""
        queue_url = self._services.text("DEAD_LETTER_QUEUE_URL")

        def send(rejected: Sequence[Rejected]) -> list[int]:
            from xorack.aws.sqs import send_rejected  # few batches hold any

            policy = RetryPolicy(attempts=5, cap_seconds=1.0)
            call_all = self._services.workers.map
            return send_rejected(queue_url, self.client("sqs"), rejected, policy, call_all)

        return send

    def _writer(self, budget: Budget) -> ChainWriter:
        from xorack.acker.chain_writer import ChainWriter

        # Few consumers share a chain, and one that waits long is overtaken by each new one.
        policy = RetryPolicy(attempts=self._attempts, cap_seconds=1.0)
        earlier = self._services.earlier_retentions or ()
        limits = self._services.limits._replace(earlier_retentions=earlier)
        return ChainWriter(self.store(budget), policy=policy, budget=budget, limits=limits)


def _clock(context: Any) -> Callable[[], float]:
    """Return a function that tells the seconds left of an invocation."""
    remaining = getattr(context, "get_remaining_time_in_millis", None)
    if remaining is not None:
        return lambda: float(remaining() / 1000)
    end = time.monotonic() + _UNKNOWN_SECONDS
    return lambda: end - time.monotonic()
