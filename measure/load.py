"""The load: chains as texts of requests, packed to messages, and sent with faults."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain, islice
from math import inf
from typing import Any, NamedTuple

from measure.options import MAX_DELAY_SECONDS, TAG, Options, Plan
from xorack.acker.parallel import Workers
from xorack.aws.retry import RetryPolicy
from xorack.aws.sqs import make_message, send_messages
from xorack.core.message import pack
from xorack.core.request import Request
from xorack.core.stamp import traced, xor

_ATTEMPTS, _TOGETHER = 8, 10
_OPEN_CHAINS, _THREADS = 20, 4
_TIMEOUT_SECONDS = 86_400.0
"""Outlasts a run: chains that lose units get a nearer deadline."""
_MAX_LATE = 1000
"""Bodies that are kept to send them again: they stay in memory."""


def texts(plan: Plan) -> Iterator[str]:
    """Yield the requests of a chain as JSON texts, in the order in which it sends them."""
    bodies = (request.to_json() for request in requests(plan))
    head = [next(bodies)]
    if plan.bad is not None and plan.bad != "not JSON":
        head.append({**head[0], "timeout": head[0]["timeout"] + 1})
    in_order = chain(bodies, reversed(head)) if plan.reverse else chain(head, bodies)
    return (json.dumps(request, separators=(",", ":")) for request in in_order)


def requests(plan: Plan) -> Iterator[Request]:
    """Yield the valid requests of a chain."""
    options, tag = plan.options, plan.tag

    def fold(first: int, end: int) -> bytes:
        return reduce(xor, (bytes(traced(plan.unit(position))) for position in range(first, end)))

    root, detail = traced(plan.unit(0)), {"chain": plan.number}
    yield Request.create(tag, "create", root, timeout=_TIMEOUT_SECONDS, detail=detail)
    if plan.finished:
        yield Request.stamp_(tag, "root", fold(0, plan.units), started=plan.units - 1, finished=1)
    for first in range(1, plan.finished, options.fold):
        end = min(first + options.fold, plan.finished)
        yield Request.stamp_(tag, f"units {first}", fold(first, end), finished=end - first)


def interleave(plans: Iterator[Plan], width: int) -> Iterator[str]:
    """Yield the requests' texts of the chains in turn; `width` chains are open at a time."""
    streams = [texts(plan) for plan in islice(plans, width)]
    while streams:
        for stream in list(streams):
            text = next(stream, None)
            if text is not None:
                yield text
                continue
            streams.remove(stream)
            streams += [texts(plan) for plan in islice(plans, 1)]


@dataclass
class Sent:
    """What was sent. Times are seconds since the epoch by this machine's clock."""

    requests: int = 0  # without copies
    messages: int = 0  # with copies
    copies: int = 0
    first: float = inf  # begin of the first call
    last: float = 0.0  # end of the last one
    times: dict[str, float] = field(default_factory=dict)
    """When SQS may deliver each chain's last message at the earliest, by tag."""
    late: list[str] = field(default_factory=list)  # bodies to send again when all chains have ended


class Message(NamedTuple):
    """A message to send, with SQS's DelaySeconds; of a copy, the body was sent before."""

    body: str
    delay_seconds: int = 0
    copy: bool = False


@dataclass
class Sender:
    """Sends the chains of a run to a queue, from several threads."""

    options: Options
    run: str
    queue_url: str
    client: Any
    sent: Sent = field(default_factory=Sent)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self) -> Sent:
        """Send all messages; raise SendError if the queue does not accept them."""
        self.deliver(self._messages())
        return self.sent

    def _messages(self) -> Iterator[Message]:
        """Yield the messages with their faults."""
        options = self.options
        draw = random.Random(f"{options.seed}/messages/0")
        for plan in options.plans(self.run):
            if plan.bad == "not JSON":
                yield Message(f'{{"tag":"{plan.tag}", not JSON')
        texts_of_all = interleave(options.plans(self.run), _OPEN_CHAINS)
        for body in pack(texts_of_all, options.message_bytes):
            delay = draw.randint(1, MAX_DELAY_SECONDS) if draw.random() < options.delay else 0
            yield Message(body, delay)
            if draw.random() < options.duplicate:
                yield Message(body, draw.randint(delay, MAX_DELAY_SECONDS), copy=True)
                if len(self.sent.late) < _MAX_LATE:
                    self.sent.late.append(body)

    def deliver(self, messages: Iterator[Message]) -> None:
        """Send messages, ten at a time in each thread, within the rate."""
        options = self.options
        at_a_time = max(1, min(_THREADS, int(options.rate / _TOGETHER)))
        workers, begun, count = Workers(_THREADS), time.monotonic(), 0
        parts = iter(lambda: list(islice(messages, _TOGETHER)), [])
        while batches := list(islice(parts, at_a_time)):
            workers.map(self._send, batches)
            count += sum(map(len, batches))
            time.sleep(max(0.0, begun + count / options.rate - time.monotonic()))

    def _send(self, batch: Sequence[Message]) -> None:
        begun, sent = time.time(), self.sent
        # A group of a fair queue: the flood does not delay other senders' messages.
        entries = [
            {**make_message(m.body, self.run), "DelaySeconds": m.delay_seconds} for m in batch
        ]
        send_messages(self.queue_url, entries, self.client, RetryPolicy(attempts=_ATTEMPTS))
        with self._lock:
            sent.first, sent.last = min(sent.first, begun), max(sent.last, time.time())
            sent.messages += len(batch)
            for body, delay, copy in batch:
                sent.copies += copy
                tags = [] if copy else TAG.findall(body)
                sent.requests += len(tags)
                for tag in tags:
                    sent.times[tag] = max(sent.times.get(tag, 0.0), begun + delay)
