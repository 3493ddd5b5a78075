"""boto3 clients with explicit time-outs and retries, and the classification of AWS errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    HTTPClientError,
)

from xorack.core.retry import RetryPolicy

__all__ = ["CONFIG", "NotAccepted", "error_code", "is_transient", "make_client", "send_entries"]

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
"""Few attempts and short time-outs: botocore's defaults wait longer than a function may run."""


def make_client(service: str, **settings: Any) -> Any:
    """Create a boto3 client with `CONFIG`.

    Args:
        service: ``dynamodb``, ``sqs``, ...
        **settings: Arguments of ``boto3.client``.
    """
    return boto3.client(service, config=CONFIG, **settings)


def error_code(error: Exception) -> str:
    """Return the code of an AWS error; the class name of any other error."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", "Unknown"))
    return type(error).__name__


def is_transient(error: Exception) -> bool:
    """Return True if a retry may help: throttling, 5xx, time-outs, broken connections.

    A call that failed so may have taken effect.
    """
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return error_code(error) in _TRANSIENT or status >= 500
    return isinstance(error, (ConnectionError, HTTPClientError)) and isinstance(
        error, BotoCoreError
    )


class NotAccepted(NamedTuple):
    """The failure of one entry of a batch call.

    Attributes:
        reason: Code and message.
        permanent: True if a retry cannot help.
    """

    reason: str
    permanent: bool = False


def send_entries(
    entries: Mapping[int, _Entry],
    send: Callable[[Mapping[int, _Entry]], Mapping[int, NotAccepted]],
    policy: RetryPolicy,
) -> dict[int, str]:
    """Send the entries of one batch call; retry those that were not accepted.

    Args:
        entries: Position to entry.
        send: Calls the service with some entries; returns those that were not accepted. A response
            of 200 may hold such.
        policy: The limits of retries.

    Returns:
        The entries that were not accepted in the end: position to reason.
    """
    retry = policy.start()
    left = dict(entries)
    failed: dict[int, str] = {}
    while True:
        try:
            not_accepted = send(left)
            reasons = {position: entry.reason for position, entry in not_accepted.items()}
            failed.update({p: entry.reason for p, entry in not_accepted.items() if entry.permanent})
            left = {position: left[position] for position in reasons if position not in failed}
        except (ClientError, BotoCoreError) as error:
            reasons = dict.fromkeys(left, f"{error_code(error)}: {error}")
            if not is_transient(error):
                return {**failed, **reasons}
        if not left or not retry.again():
            return {**failed, **{position: reasons[position] for position in left}}
