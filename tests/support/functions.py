"""The Lambda functions in this process, over the resources of a test."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import reduce
from typing import Any

from xorack.core.errors import BatchError
from xorack.core.hashing import unit_id
from xorack.core.message import pack
from xorack.core.request import Request
from xorack.core.stamp import traced, xor


def message(*requests) -> str:
    """Pack requests into one message."""
    (body,) = pack(requests, max_bytes=1_000_000)
    return body


def acked(tag: str) -> tuple[Request, Request]:
    """Return the requests of a chain that is acked at once."""
    return Request.create(tag, "c", b"\1"), Request.stamp_(tag, "s", b"\1", finished=1)


def chain(tag, children, **options):
    """Yield the requests of a chain that ends acked: a root with children."""
    root = unit_id(tag)
    units = [unit_id(tag, n) for n in range(children)]
    yield Request.create(tag, "create", traced(root), **options)
    split = reduce(xor, map(traced, [root, *units]))
    yield Request.stamp_(tag, "split", split, started=children, finished=1)
    for n, unit in enumerate(units):
        yield Request.stamp_(tag, f"done {n}", traced(unit), finished=1)


def receive_bodies(aws, queue_url: str) -> list[str]:
    """Take all messages off a queue; return their bodies."""
    return [received["Body"] for received in aws.receive_all(queue_url)]


class Context:
    """The part of a Lambda context that the functions use."""

    function_name = "consumer"
    memory_limit_in_mb = 256
    invoked_function_arn = "arn:aws:lambda:eu-west-1:123456789012:function:consumer"
    aws_request_id = "request"

    def __init__(self, seconds: float = 30, *, clock: Callable[[], float] = lambda: 0) -> None:
        """Start with the seconds left by a clock; the default one stands still."""
        self._clock, self.end = clock, clock() + seconds

    def get_remaining_time_in_millis(self) -> int:
        return int((self.end - self._clock()) * 1000)


class Functions:
    """The consumer and the sweeper."""

    def __init__(self, aws, monkeypatch) -> None:
        for name, value in aws.environ().items():
            monkeypatch.setenv(name, value)
        self.aws = aws
        self.item = aws.item

    def consume(self, *bodies: str, context: Any = None) -> list[str]:
        """Handle messages m0, m1, ...; return the ids of those that are delivered again."""
        from lambda_src.consumer import handler

        records = [{"messageId": f"m{n}", "body": body} for n, body in enumerate(bodies)]
        with suppress(BatchError):
            response = handler({"Records": records}, context or Context())
            assert set(response) == {"batchItemFailures"}
            return [failure["itemIdentifier"] for failure in response["batchItemFailures"]]
        return [record["messageId"] for record in records]

    def deliver(self, times: int = 1) -> list[str]:
        """Hand all messages of the queue to the consumer; return their bodies."""
        bodies = receive_bodies(self.aws, self.aws.queue_url)
        for _ in range(times):
            assert self.consume(*bodies) == []
        return bodies

    def sweep(self) -> dict[str, Any]:
        from lambda_src.sweeper import handler

        return handler({}, Context())

    def events(self) -> dict[str, dict[str, Any]]:
        """Take the events since the last call: tag to detail."""
        return {event["detail"]["tag"]: event["detail"] for event in self.aws.events()}
