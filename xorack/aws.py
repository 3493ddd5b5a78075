"""How xorack talks to AWS: clients with their timeouts and retries said, and errors told apart."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    HTTPClientError,
)

__all__ = ["CONFIG", "client", "error_code", "is_transient"]

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


def client(service: str, **settings: Any) -> Any:
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
