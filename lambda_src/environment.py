"""Services that the functions' environment variables name, created at the first call."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from xorack.aws import schema
from xorack.aws.client import make_client
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.eventbridge import EventBus
from xorack.core.errors import InvalidRequest
from xorack.core.retry import RetryPolicy

if TYPE_CHECKING:
    from xorack.acker.chain_writer import ChainWriter, Limits
    from xorack.acker.outbox import Outbox
    from xorack.core.message import Rejected

SERVICE = os.environ.get("POWERTOOLS_SERVICE_NAME") or "xorack"
"""The name that tells the metrics and logs of several ackers apart."""
_VARIABLES = (
    "TABLE_NAME",
    "PARTITION_KEY",
    "EVENT_BUS_NAME",
    "DEAD_LETTER_QUEUE_URL",
    "DEFAULT_TIMEOUT_SECONDS",
    "RETENTION_SECONDS",
    # The boto3 clients depend on these.
    "AWS_ENDPOINT_URL",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
)
_DAY = 86_400
_AFTER_WRITES_SECONDS = 3.0
"""Time reserved for the steps after the writes: events, dead letters, metrics, the response."""
_RESPONSE_SECONDS = 1.0
"""Time reserved for metrics and the response."""
_SEND_POLICY = RetryPolicy(attempts=5, cap=1.0)
_WORKERS = 8


def services() -> Services:
    """Return the services that the environment names, created once for each set of values."""
    return _services(tuple((name, os.environ.get(name)) for name in _VARIABLES))


@lru_cache(maxsize=4)
def _services(variables: tuple[tuple[str, str | None], ...]) -> Services:
    return Services(dict(variables))


class Services:
    """The services of a function; a property raises InvalidRequest if its variable is invalid."""

    def __init__(self, variables: dict[str, str | None]) -> None:
        self._variables = variables

    def _text(self, name: str) -> str:
        value = self._variables[name]
        if not value:
            raise InvalidRequest(name, value, "a value: it is an environment variable")
        return value

    def _milliseconds(self, name: str, default: int) -> int:
        value = self._variables[name] or str(default)
        if not value.isascii() or not value.isdigit() or int(value) == 0:
            raise InvalidRequest(name, value, "a whole number of seconds above 0")
        return int(value) * 1000

    @cached_property
    def limits(self) -> Limits:
        """Default time-out and retention."""
        from xorack.acker.chain_writer import Limits  # the widget writes nothing

        return Limits(
            default_timeout=self._milliseconds("DEFAULT_TIMEOUT_SECONDS", _DAY),
            retention=self._milliseconds("RETENTION_SECONDS", 30 * _DAY),
        )

    @cached_property
    def store(self) -> DynamoDBStore:
        """The table."""
        return DynamoDBStore(
            self._text("TABLE_NAME"),
            self._variables["PARTITION_KEY"] or schema.TAG,
            make_client("dynamodb"),
            retention=self._milliseconds("RETENTION_SECONDS", 30 * _DAY),
        )

    @cached_property
    def bus(self) -> EventBus:
        """The event bus."""
        name = self._text("EVENT_BUS_NAME")
        return EventBus(name, make_client("events"), policy=_SEND_POLICY)

    @cached_property
    def sqs(self) -> Any:
        """The SQS client."""
        return make_client("sqs")

    def writer(self, context: Any) -> ChainWriter:
        """Return a chain writer within the time left of an invocation; 12 attempts if unknown."""
        from xorack.acker.chain_writer import ChainWriter

        policy = RetryPolicy(attempts=12)
        if hasattr(context, "get_remaining_time_in_millis"):
            time_left = _time_left(context, _AFTER_WRITES_SECONDS)
            policy = RetryPolicy(attempts=1000, time_left=time_left)
        return ChainWriter(self.store, retry_policy=policy, limits=self.limits)

    def outbox(self, writer: ChainWriter) -> Outbox:
        """Return an outbox for the bus."""
        from xorack.acker.outbox import Outbox

        return Outbox(writer, self.bus, workers=_WORKERS)

    def dead_letters(self, context: Any) -> LazyDeadLetters:
        """Return the dead-letter queue, within the time left of an invocation."""
        return LazyDeadLetters(self, self._text("DEAD_LETTER_QUEUE_URL"), context)


class LazyDeadLetters:
    """A `xorack.core.ports.DeadLetters` that imports and connects at the first rejected request.

    Few batches hold one.
    """

    def __init__(self, services: Services, queue_url: str, context: Any) -> None:
        self._services = services
        self._queue_url = queue_url
        self._context = context

    def send(self, rejected: Sequence[Rejected]) -> list[int]:
        """See `xorack.core.ports.DeadLetters.send`."""
        if not rejected:
            return []
        from xorack.aws.sqs import DeadLetterQueue

        policy = replace(_SEND_POLICY, time_left=_time_left(self._context, _RESPONSE_SECONDS))
        return DeadLetterQueue(self._queue_url, self._services.sqs, policy=policy).send(rejected)


def _time_left(context: Any, reserved: float) -> Callable[[], float]:
    """Return a function for the seconds left of an invocation; unlimited without a clock."""
    remaining = getattr(context, "get_remaining_time_in_millis", None)
    if remaining is None:
        return lambda: float("inf")
    return lambda: float(remaining() / 1000 - reserved)
