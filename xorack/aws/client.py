"""boto3 clients with explicit time-outs and retries, and a classification of AWS's errors."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError

from xorack.aws.retry import RetryPolicy
from xorack.core.budget import UNLIMITED, Budget, TimeOuts
from xorack.core.errors import UnavailableError
from xorack.core.ports import NO_TIME, Failure, FailureKind

_Key = TypeVar("_Key")
_Entry = TypeVar("_Entry")

_TRANSIENT = frozenset(
    (
        "BandwidthLimitExceeded",
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "InternalServiceError",
        "KMSThrottlingException",  # Kinesis
        "KmsThrottled",  # SQS
        "KmsThrottlingException",  # Step Functions
        "LimitExceededException",
        "PriorRequestNotComplete",
        "ProvisionedThroughputExceededException",
        "ReplicatedWriteConflictException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "TransactionConflictException",
        "TransactionInProgressException",
    )
)
"""Codes of throttling and of outages. Some services put their name and a dot before the code."""


def is_transient_code(code: str) -> bool:
    """Return whether a retry may help after this error code.

    The code may begin with a service's name.
    """
    return code.rpartition(".")[2] in _TRANSIENT


def config_of(time_outs: TimeOuts, attempts: int = 1) -> Config:
    return Config(
        connect_timeout=time_outs.connect,
        read_timeout=time_outs.read,
        max_pool_connections=32,
        retries={"mode": "standard", "total_max_attempts": attempts},
    )


CONFIG = config_of(TimeOuts(connect=3, read=10), attempts=3)
"""The configuration for producers and the direct API. botocore's defaults wait for minutes."""


_making = threading.RLock()
"""Locked while a client is made, because boto3's session is not thread-safe. Its clients are."""


def _new_lock() -> None:
    """Replace the lock in a forked process, because a thread of the parent may have locked it."""
    global _making  # noqa: PLW0603
    _making = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)


def make_client(service: str, *, config: Config = CONFIG, **settings: Any) -> Any:
    """Make a boto3 client. ``settings`` are further arguments of ``boto3.client``."""
    # boto3 does not read AWS_REGION, so it is used if neither the caller nor the session has one.
    session = boto3.DEFAULT_SESSION
    chosen = session and session._session.instance_variables().get("region")  # noqa: SLF001
    region = settings.pop("region_name", None) or chosen or os.environ.get("AWS_REGION") or None
    with _making:
        return boto3.client(service, region, config=config, **settings)


class PerProcess:
    """A boto3 client that each process makes at its first call, as forks cannot share connections.

    Threads may share an object.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._made: tuple[int, Any] = (0, None)

    def __getattr__(self, operation: str) -> Any:
        if self._made[0] != os.getpid():
            with _making:
                if self._made[0] != os.getpid():
                    self._made = (os.getpid(), self._make())
        return getattr(self._made[1], operation)


class BoundedClient:
    """A boto3 client for one step of an invocation. It connects at the first call.

    If no time is left, each call raises `UnavailableError` with a TimeoutError as its cause.
    """

    def __init__(self, connect: Callable[[], Any], budget: Budget) -> None:
        self._connect = connect
        self.budget = budget

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        def bounded(*arguments: Any, **named: Any) -> Any:
            if self.budget.left() <= 0:
                raise UnavailableError(TimeoutError(NO_TIME.reason))
            return getattr(self._connect(), operation)(*arguments, **named)

        return bounded


def budget_of(client: Any) -> Budget:
    return client.budget if isinstance(client, BoundedClient) else UNLIMITED


def error_code(error: Exception) -> str:
    """Return the code of an AWS error, or the class name of another error."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", "Unknown"))
    return type(error).__name__


def is_transient(error: Exception) -> bool:
    """Return whether a retry may help: throttling, 5xx, time-outs, broken connections.

    The failed call may have taken effect.
    """
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return is_transient_code(error_code(error)) or status >= 500
    return isinstance(error, (ConnectionError, HTTPClientError))


class NotAccepted(NamedTuple):
    """The failure of one entry of a batch call. It is permanent if a retry cannot help."""

    reason: str
    permanent: bool = False
    kind: FailureKind = "outage"

    @property
    def failure(self) -> Failure:
        return Failure(self.kind, self.reason)


def batches(
    entries: Iterable[_Entry], size_of: Callable[[_Entry], int], most: int, max_bytes: int
) -> Iterator[list[_Entry]]:
    """Group entries into batch calls of limited number and size. A larger entry goes alone."""
    batch: list[_Entry] = []
    left = max_bytes
    for entry in entries:
        size = size_of(entry)
        if batch and (len(batch) == most or size > left):
            yield batch
            batch, left = [], max_bytes
        batch.append(entry)
        left -= size
    if batch:
        yield batch


def send_entries(
    entries: Mapping[_Key, _Entry],
    send: Callable[[Mapping[_Key, _Entry]], Mapping[_Key, NotAccepted]],
    policy: RetryPolicy,
    budget: Budget,
) -> dict[_Key, Failure]:
    """Send the entries of one batch call by key, and retry entries that were not accepted.

    ``send`` makes one call, and returns the entries that were not accepted although the response
    was 200. Returns the failures of the entries that were never accepted.
    """
    retry = policy.start(budget)
    left = dict(entries)
    failed: dict[_Key, Failure] = {}
    while True:
        try:
            not_accepted = send(left)
            failures = {key: entry.failure for key, entry in not_accepted.items()}
            failed |= {key: failures[key] for key, entry in not_accepted.items() if entry.permanent}
            left = {key: left[key] for key in failures if key not in failed}
        except UnavailableError as error:
            is_late = isinstance(error.cause, TimeoutError)
            failures = dict.fromkeys(left, NO_TIME if is_late else Failure("outage", str(error)))
        except (ClientError, BotoCoreError) as error:
            failures = dict.fromkeys(left, Failure("outage", f"{error_code(error)}: {error}"))
            if not is_transient(error):
                return {**failed, **failures}
        if not left or not retry.again():
            return {**failed, **{key: failures[key] for key in left}}
