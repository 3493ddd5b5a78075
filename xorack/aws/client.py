"""How xorack talks to AWS: clients with their timeouts and retries said, and errors told apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    HTTPClientError,
)

if TYPE_CHECKING:
    from xorack.core.retry import RetryPolicy

__all__ = ["CONFIG", "NotTaken", "error_code", "is_transient", "make_client", "send_entries"]

_Entry = TypeVar("_Entry")

_TRANSIENT = frozenset(
    {
        "InternalFailure",
        "InternalServerError",
        "InternalServiceError",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestTimeout",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TransactionConflictException",
        "TransactionInProgressException",
    }
)


CONFIG = Config(
    connect_timeout=3,
    read_timeout=10,
    max_pool_connections=32,
    retries={"mode": "standard", "total_max_attempts": 3},
)
"""Calls that end soon, one way or the other."""


def make_client(service: str, **settings: Any) -> Any:
    """A boto3 client whose calls end soon, one way or the other.

    botocore's own defaults wait a minute for an answer, which is longer than the function has.
    Few tries of its own: the retries that know what they are retrying are ours.

    Args:
        service: ``dynamodb``, ``sqs``, ...
        **settings: Passed to ``boto3.client``.

    Returns:
        The client; endpoint, region and credentials by the default chain.
    """
    return boto3.client(service, config=CONFIG, **settings)


def error_code(error: Exception) -> str:
    """The code of an AWS error; of others their name."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", "Unknown"))
    return type(error).__name__


def is_transient(error: Exception) -> bool:
    """Whether the same call may go through later; and if it timed out, whether it may have landed.

    Args:
        error: What a boto3 call raised.

    Returns:
        True for throttling, 5xx, time-outs and broken connections; False for what stays wrong.
    """
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return error_code(error) in _TRANSIENT or status >= 500
    return isinstance(error, (ConnectionError, HTTPClientError)) and isinstance(
        error, BotoCoreError
    )


class NotTaken(NamedTuple):
    """What a batch call says of an entry that it did not take.

    Attributes:
        why: Code and message.
        hopeless: Whether it would say the same again.
    """

    why: str
    hopeless: bool = False


def send_entries(
    entries: Mapping[int, _Entry],
    send: Callable[[Mapping[int, _Entry]], Mapping[int, NotTaken]],
    policy: RetryPolicy,
) -> dict[int, str]:
    """Send the entries of one batch call, and again those that were not taken.

    Args:
        entries: Position -> entry.
        send: Makes the call for some of them, and tells which were not taken: an answer of 200 may
            hold such.
        policy: When to try again.

    Returns:
        What is left: position -> why.
    """
    retry = policy.start()
    left = dict(entries)
    hopeless: dict[int, str] = {}
    while True:
        try:
            not_taken = send(left)
            reasons = {position: one.why for position, one in not_taken.items()}
            hopeless.update({p: one.why for p, one in not_taken.items() if one.hopeless})
            left = {position: left[position] for position in reasons if position not in hopeless}
        except (ClientError, BotoCoreError) as error:
            reasons = dict.fromkeys(left, f"{error_code(error)}: {error}")
            if not is_transient(error):
                return {**hopeless, **reasons}
        if not left or not retry.again():
            return {**hopeless, **{position: reasons[position] for position in left}}
