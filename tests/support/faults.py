"""Faults between boto3 and AWS: below botocore, so that its own retries run as they would."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import contextmanager
from unittest.mock import patch

from botocore.awsrequest import AWSResponse
from botocore.exceptions import ReadTimeoutError
from moto.core.models import botocore_stubber


class _Raw:
    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, **_):
        yield self._body


def wire_error(request, code: str, status: int) -> AWSResponse:
    """An error as it comes back over the wire."""
    body = f'{{"__type":"{code}","message":"{code}, says the test"}}'.encode()
    return AWSResponse(request.url, status, {"x-amzn-errortype": code}, _Raw(body))


@contextmanager
def _on_the_wire(operation: str, times: int, fault: Callable):
    """`fault(deliver, request)` stands in for the wire, for the next calls of an operation."""
    stubber = type(botocore_stubber)
    original = stubber.__call__
    guard = threading.Lock()
    left = [times]

    def call(self, event_name, request, **more):
        with guard:
            hit = event_name.endswith(f".{operation}") and left[0] > 0
            left[0] -= hit
        if hit:
            return fault(lambda: original(self, event_name, request, **more), request)
        return original(self, event_name, request, **more)

    with patch.object(stubber, "__call__", call):
        yield left


def answers_lost(operation: str, times: int = 1):
    """Calls take effect, and their answers never arrive. Yields how many are left to be lost."""

    def lose(deliver, request):
        assert deliver() is not None
        raise ReadTimeoutError(endpoint_url=request.url)

    return _on_the_wire(operation, times, lose)


def refused(operation: str, code: str, times: int = 1, status: int = 400):
    """Calls do not arrive; an error comes back. Yields how many are left to be refused."""
    return _on_the_wire(operation, times, lambda _, request: wire_error(request, code, status))


@contextmanager
def counted(client):
    """Counts a client's calls by operation."""
    calls: dict[str, int] = {}

    def count(model=None, **_):
        calls[model.name] = calls.get(model.name, 0) + 1

    client.meta.events.register("before-call.*.*", count)
    try:
        yield calls
    finally:
        client.meta.events.unregister("before-call.*.*", count)
