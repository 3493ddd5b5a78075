"""The functions' environment, read at the first call and checked."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from xorack.aws.client import make_client
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.eventbridge import EventBus
from xorack.core.errors import InvalidRequest
from xorack.core.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xorack.core.message import Rejected

SERVICE = os.environ.get("POWERTOOLS_SERVICE_NAME") or "xorack"
"""By which the metrics and logs of several ackers are told apart."""
_DAY = 86_400
_READ = (
    "TABLE_NAME",
    "PARTITION_KEY",
    "EVENT_BUS_NAME",
    "DEAD_LETTER_QUEUE_URL",
    "DEFAULT_TIMEOUT_SECONDS",
    "RETENTION_SECONDS",
    # Not ours, but what clients are made of.
    "AWS_ENDPOINT_URL",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
)
_SPARE_SECONDS = 3.0
"""Time kept for what comes after the writes: events, dead letters, metrics, the answer."""
_ANSWER_SECONDS = 1.0
"""Of this, time that is kept for the metrics and the answer alone."""
_SENDS = RetryPolicy(attempts=5, cap=1.0)


class Environment(NamedTuple):
    """What a function works with.

    Attributes:
        store: The table.
        bus: The event bus.
        default_timeout: Milliseconds.
        retention: Milliseconds.
    """

    store: DynamoDBStore
    bus: EventBus
    default_timeout: int
    retention: int


class DeadLetters:
    """A `xorack.core.ports.DeadLetters` that costs nothing while there are no letters.

    Hardly any batch holds one: what sending takes is imported, and its client made, at the first.
    """

    def __init__(self, variables: _Variables, context: Any = None) -> None:
        self._queue_url = _text(variables, "DEAD_LETTER_QUEUE_URL")
        self._variables = variables
        self._context = context

    def send(self, refused: Sequence[Rejected]) -> list[int]:
        """See `xorack.core.ports.DeadLetters.send`."""
        if not refused:
            return []
        from xorack.aws.sqs import DeadLetterQueue

        policy = replace(_SENDS, time_left=_time_left(self._context, _ANSWER_SECONDS))
        client = _letters_client(self._variables)
        return DeadLetterQueue(self._queue_url, client, policy=policy).send(refused)


def environment() -> Environment:
    """The environment, with clients that are made once for each set of its values.

    Returns:
        The environment.

    Raises:
        InvalidRequest: A variable is missing or wrong; the error names it.
    """
    return _environment(_variables())


def dead_letters(context: Any = None) -> DeadLetters:
    """The dead-letter queue, for the function that has one; its client is made once, likewise.

    Args:
        context: The Lambda context: letters that there is no time for are told, not sent.

    Returns:
        The queue.

    Raises:
        InvalidRequest: The variable is missing; the error names it.
    """
    return DeadLetters(_variables(), context)


def chain_store() -> DynamoDBStore:
    """The table alone, for a function that only looks; its client is made once, likewise.

    Returns:
        The table.

    Raises:
        InvalidRequest: A variable is missing; the error names it.
    """
    return _store(_variables())


_Variables = tuple[tuple[str, str | None], ...]


def _variables() -> _Variables:
    """The variables as they are now: what is made of them is made once for each set of values."""
    return tuple((name, os.environ.get(name)) for name in _READ)


def _text(variables: _Variables, name: str) -> str:
    value = dict(variables)[name]
    if not value:
        raise InvalidRequest(name, value, "a value: it is an environment variable")
    return value


def _seconds(variables: _Variables, name: str, default: int) -> int:
    value = dict(variables)[name]
    if not value:
        return default * 1000
    if not value.isascii() or not value.isdigit() or int(value) == 0:
        raise InvalidRequest(name, value, "a whole number of seconds above 0")
    return int(value) * 1000


@lru_cache(maxsize=4)
def _store(variables: _Variables) -> DynamoDBStore:
    return DynamoDBStore(
        _text(variables, "TABLE_NAME"),
        dict(variables)["PARTITION_KEY"] or "tag",
        make_client("dynamodb"),
        retention=_seconds(variables, "RETENTION_SECONDS", 30 * _DAY),
    )


@lru_cache(maxsize=4)
def _letters_client(_: _Variables) -> Any:
    return make_client("sqs")


@lru_cache(maxsize=4)
def _environment(variables: _Variables) -> Environment:
    return Environment(
        store=_store(variables),
        bus=EventBus(_text(variables, "EVENT_BUS_NAME"), make_client("events"), policy=_SENDS),
        default_timeout=_seconds(variables, "DEFAULT_TIMEOUT_SECONDS", _DAY),
        retention=_seconds(variables, "RETENTION_SECONDS", 30 * _DAY),
    )


def policy_within(context: Any) -> RetryPolicy:
    """When to try again, within what is left of the invocation.

    Args:
        context: The Lambda context; anything without a clock counts as half a minute.

    Returns:
        The policy.
    """
    if getattr(context, "get_remaining_time_in_millis", None) is None:
        return RetryPolicy(attempts=12)
    return RetryPolicy(attempts=1000, time_left=_time_left(context, _SPARE_SECONDS))


def _time_left(context: Any, spare: float) -> Callable[[], float]:
    """Seconds left of an invocation, but for some to spare; no end of them without a clock."""
    remaining: Callable[[], int] | None = getattr(context, "get_remaining_time_in_millis", None)
    if remaining is None:
        return lambda: float("inf")
    clock = remaining
    return lambda: clock() / 1000 - spare
