"""Faults between boto3 and AWS, below botocore: its own retries run, without their waits."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import patch

from botocore.awsrequest import AWSResponse
from botocore.exceptions import ReadTimeoutError
from moto.core.models import botocore_stubber

_CLOCK = SimpleNamespace(**{**vars(time), "sleep": lambda seconds: None})


def error_response(request, code: str, status: int = 400) -> AWSResponse:
    """Make an error as AWS sends it."""
    body = f'{{"__type":"{code}","message":"{code} by the test"}}'.encode()
    raw = SimpleNamespace(stream=lambda **_: iter([body]))
    return AWSResponse(request.url, status, {"x-amzn-errortype": code}, raw)


@contextmanager
def on_the_wire(fault: Callable):
    """Replace the wire: `fault(operation, deliver, request)` returns the response of each call."""
    stubber = type(botocore_stubber)
    original = stubber.__call__

    def call(self, event_name, request, **rest):
        operation = event_name.rpartition(".")[2]
        return fault(operation, lambda: original(self, event_name, request, **rest), request)

    with patch.object(stubber, "__call__", call), patch("botocore.endpoint.time", _CLOCK):
        yield


@contextmanager
def _faults(operation: str, times: int, fault: Callable):
    """Replace the next calls of an operation; yield a list of the number that is left."""
    guard = threading.Lock()
    left = [times]

    def call(called, deliver, request):
        with guard:
            hit = called == operation and left[0] > 0
            left[0] -= hit
        return fault(deliver, request) if hit else deliver()

    with on_the_wire(call):
        yield left


def lost_responses(operation: str, times: int = 1):
    """Let calls take effect and lose their responses."""

    def lose(deliver, request):
        assert deliver() is not None
        raise ReadTimeoutError(endpoint_url=request.url)

    return _faults(operation, times, lose)


def failing(operation: str, code: str, times: int = 99, status: int = 400):
    """Answer calls with an error; they do not arrive."""
    return _faults(operation, times, lambda _, request: error_response(request, code, status))


@contextmanager
def counted_calls(client):
    """Count a client's calls by operation."""
    calls: Counter[str] = Counter()

    def count(model=None, **_):
        calls[model.name] += 1

    client.meta.events.register("before-call.*.*", count)
    try:
        yield calls
    finally:
        client.meta.events.unregister("before-call.*.*", count)
