"""The consumer: applies a batch of messages to chains and publishes the events of ended ones.

A message is parsed (`xorack.core.message`), its requests are grouped by chain, each chain is
written once (`xorack.acker.chain_writer`), and pending events are published
(`xorack.acker.outbox`). If a step fails:

- rejected requests go to the dead-letter queue, and the requests around them apply;
- a message that is older than the tombstones' retention is rejected whole;
- a chain that cannot be written, or for which no time is left, fails only the messages that hold
  requests for it. Their other requests are duplicates when the messages are delivered again;
- an event that cannot be published stays pending, and fails no message: the sweeper publishes it.
"""

from __future__ import annotations

import logging
from collections import ChainMap, Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ldexp
from typing import NamedTuple

from xorack.acker.chain_writer import CachedChain, ChainWriter, WriteStats
from xorack.acker.outbox import Outbox
from xorack.acker.reused import in_words
from xorack.aws.log import LOG, log_chain, log_failures
from xorack.core.chain import Chain
from xorack.core.errors import ArgumentError, RequestIdReused
from xorack.core.event import event_id
from xorack.core.message import Rejected, parse, reject
from xorack.core.ports import NO_TIME
from xorack.core.request import Request
from xorack.core.transitions import Applied

_READ_ATTEMPTS = 3
_SLICE = 100
"""Chains that are read together: one call reads as many."""
_IN_WORDS = 100
"""Used ids of a batch whose requests are explained: each takes some milliseconds."""


class Message(NamedTuple):
    """A message of the queue.

    Attributes:
        receives: How often the queue delivered the message, this time included.
        sent_at: Time when it was first sent, milliseconds since the epoch, if known.
        sender: The id of the principal that sent it, if known.
    """

    id: str
    body: str
    receives: int = 1
    sent_at: int | None = None
    sender: str | None = None


@dataclass
class BatchResult:
    """The result of a batch.

    Attributes:
        failed: Messages that must be delivered again: message id to reason.
        outcomes: Number of requests that were ``applied``, ``duplicate``, ``late``, ``rejected``;
            of the rejected ones, ``reused`` another request's id; of the duplicates, ``repeated``
            creates of chains that had ended, as the item counts them.
        ended: Chains ended, by status.
        latencies_ms: Milliseconds from create to ack of each chain that was acked here.
        events: Events published; the sweeper publishes those that are pending.
        refused: Events and callbacks that a service refused for the first time.
    """

    failed: dict[str, str] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)
    created: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    latencies_ms: list[int] = field(default_factory=list)
    events: int = 0
    events_pending: int = 0
    refused: int = 0
    stats: WriteStats = field(default_factory=WriteStats)


class _Batch:
    """The requests of a batch by chain, each with the id of its message."""

    def __init__(self, messages: Sequence[Message], oldest: int) -> None:
        self.messages = {message.id: message for message in messages}
        self.requests: dict[str, list[tuple[Request, str]]] = defaultdict(list)
        self.chain_counts: Counter[str] = Counter()
        self.rejected: list[Rejected] = []
        self.rejected_requests: dict[str, list[tuple[Request, str]]] = defaultdict(list)
        self.failed: dict[str, str] = {}
        self.not_written: dict[str, str] = {}
        self.not_read: dict[str, str] = {}
        self.not_counted: dict[str, str] = {}
        for message in messages:
            if message.sent_at is not None and message.sent_at < oldest:
                # The tombstone of its chain may be gone: nothing tells whether it was applied.
                expected = "a time within the retention of finished chains"
                reason = str(ArgumentError("sent_at", message.sent_at, expected))
                self.reject(message.id, [Rejected(message.body, reason)])
                continue
            requests, rejected = parse(message.body)
            for request in requests:
                self.requests[request.tag].append((request, message.id))
            self.reject(message.id, rejected)
            self.chain_counts[message.id] = len({request.tag for request in requests})

    def reject(self, id: str, entries: Iterable[Rejected]) -> None:
        of = self.messages[id]
        for entry in entries:
            known = entry._replace(sent_at=of.sent_at, message_id=id, sender=of.sender)
            self.rejected.append(known)

    def sources(self, tag: str) -> list[Message]:
        """Return the message of each request for a chain."""
        return [self.messages[id] for _, id in self.requests[tag]]

    def is_new(self, tag: str) -> bool:
        """Guess whether a chain does not exist: its create comes, in a message that is new."""
        creates = any(request.op == "create" for request, _ in self.requests[tag])
        return creates and max(message.receives for message in self.sources(tag)) == 1

    def rank(self, tag: str) -> float:
        """Return the rank of a chain in the order of writes, the lowest first.

        A message of few chains would wait for the writes of thousands. One that was delivered more
        often has fewer attempts left: each counts as an eighth of the chains.
        """
        some = self.sources(tag)
        return min(ldexp(self.chain_counts[one.id], -3 * one.receives) for one in some)

    def fail(self, tag: str, reason: str) -> None:
        self.not_written[tag] = reason
        for _, id in self.requests[tag]:
            self.failed.setdefault(id, reason)

    def message_ids(self, tags: Iterable[str]) -> dict[str, str]:
        """Return the ids of the messages of chains as a field of a log line."""
        ids = dict.fromkeys(id for tag in tags for _, id in self.requests[tag])
        return {"message_ids": " ".join(ids)}

    def log_failures(self) -> None:
        log_failures(logging.WARNING, "chains not read together", self.not_read)
        log_failures(logging.WARNING, "chains not written", self.not_written, self.message_ids)
        log_failures(logging.WARNING, "late requests not counted", self.not_counted)


class Consumer:
    """Consumes batches of messages."""

    def __init__(
        self,
        writer: ChainWriter,
        outbox: Outbox,
        send_rejected: Callable[[Sequence[Rejected]], list[int]],
    ) -> None:
        """Write within the budget of the writer, and publish within that of the outbox.

        ``send_rejected`` sends rejected requests to the dead-letter queue, and returns the
        positions of those that it could not send.
        """
        self.writer = writer
        self.writer.ends = set()
        self.outbox = outbox
        self.workers = outbox.workers
        self.send_rejected = send_rejected

    def consume(self, messages: Sequence[Message]) -> BatchResult:
        """Consume messages in any order. Those that are not in ``failed`` may be deleted then."""
        batch = _Batch(messages, self.writer.oldest())
        result = BatchResult(stats=self.writer.stats)
        result.outcomes["rejected"] += sum(entry.request_count for entry in batch.rejected)
        pending = self._write_chains(batch, result)
        reports = self.outbox.publish(pending)
        result.events_pending, result.refused = len(reports.pending), reports.alerts
        result.events = len(pending) - len(reports.pending.keys() | reports.refused.keys())
        assert result.events >= 0, "what is pending or refused was to be published"
        self._send_rejected(batch)
        result.failed = batch.failed
        return result

    def _write_chains(self, batch: _Batch, result: BatchResult) -> list[Chain]:
        tags = sorted(batch.requests, key=batch.rank)
        pending = []
        size = _SLICE * self.workers.count
        for at in range(0, len(tags), size):
            part = tags[at : at + size]
            slices = [part[n : n + _SLICE] for n in range(0, len(part), _SLICE)]
            read = self.workers.map(partial(self._read, batch), slices)
            write = partial(self._write, batch, ChainMap(*read))
            for tag, applied in zip(part, self.workers.map(write, part), strict=True):
                if isinstance(applied, str):
                    batch.fail(tag, applied)
                    continue
                self._account(batch, tag, applied, result)
                if applied.chain is not None and applied.chain.due_channels(self.writer.now()):
                    pending.append(applied.chain)
        batch.log_failures()
        return pending

    def _read(self, batch: _Batch, tags: Sequence[str]) -> dict[str, CachedChain]:
        """Read the chains that are not new in one go; none of them if that fails."""
        known = {tag: CachedChain(None, verified=False) for tag in tags if batch.is_new(tag)}
        stored = [tag for tag in tags if tag not in known]
        if not stored or not self.writer.has_time():
            return known
        try:
            chains = self.writer.read(stored, attempts=_READ_ATTEMPTS)
        except Exception as error:  # noqa: BLE001 - each chain is read, and fails, by itself
            batch.not_read.update(dict.fromkeys(stored, f"{type(error).__name__}: {error}"))
            return known
        return known | {tag: CachedChain(chains.get(tag), verified=True) for tag in stored}

    def _write(self, batch: _Batch, known: Mapping[str, CachedChain], tag: str) -> Applied | str:
        """Apply one chain's requests; return the reason if that fails."""
        if not self.writer.has_time():
            return NO_TIME
        try:
            requests = [request for request, _ in batch.requests[tag]]
            sent_at = [message.sent_at for message in batch.sources(tag)]
            applied = self.writer.apply(tag, requests, known.get(tag), sent_at=sent_at)
        except Exception as error:  # noqa: BLE001 - a failure affects only this chain
            return f"{type(error).__name__}: {error}"
        return self._counted(batch, tag, applied)

    def _counted(self, batch: _Batch, tag: str, applied: Applied) -> Applied | str:
        """Count what came after a chain's end, in one write at most; it prolongs the tombstone."""
        chain = applied.chain
        repeated, late = _after_the_end(batch, tag, applied)
        if chain is None or not chain.final:
            return applied
        kept_from = max(chain.ended_at or 0, chain.last_late_at or 0)
        sent_at = max(one.sent_at or 0 for one in batch.sources(tag))
        if not (late or repeated or sent_at > kept_from):
            return applied
        try:
            return applied._replace(chain=self.writer.count_late(chain, repeated, late))
        except Exception as error:  # noqa: BLE001 - a count is not worth another delivery
            reason = f"{type(error).__name__}: {error}"
            if sent_at - kept_from > self.writer.now() - self.writer.oldest():
                return reason  # the tombstone may be gone before the message
            batch.not_counted[tag] = reason
            return applied

    def _account(self, batch: _Batch, tag: str, applied: Applied, result: BatchResult) -> None:
        """Count the outcomes of a chain's requests; collect the rejected ones."""
        kinds = Counter([kind for _, kind, _ in applied.outcomes])
        result.outcomes.update(kinds)
        ops = [request.op for request, kind, _ in applied.outcomes if kind == "applied"]
        result.created += ops.count("create")
        result.outcomes["repeated"] += _after_the_end(batch, tag, applied)[0]
        if kinds["rejected"]:
            for (_, _, error), (request, id) in zip(
                applied.outcomes, batch.requests[tag], strict=True
            ):
                if error is not None:
                    result.outcomes["reused"] += isinstance(error, RequestIdReused)
                    few = result.outcomes["reused"] <= _IN_WORDS
                    reason = in_words(error, request, applied.chain) if few else str(error)
                    batch.rejected_requests[id].append((request, reason))
        chain = applied.chain
        if chain is not None and self.writer.ended(chain):
            result.ended[chain.status] += 1
            created_at, ended_at = chain.created_at, chain.ended_at
            if chain.status == "acked" and created_at is not None and ended_at is not None:
                result.latencies_ms.append(max(0, ended_at - created_at))
            level, message = logging.INFO, "chain ended"
        else:
            level, message = logging.DEBUG, "chain written"
        if chain is not None and LOG.isEnabledFor(level):
            fields: dict[str, object] = {"status": chain.status}
            fields.update((str(kind), count) for kind, count in kinds.items())
            fields.update({"event_id": event_id(chain)} if chain.final else {})
            log_chain(level, message, tag, **fields, **batch.message_ids([tag]))

    def _send_rejected(self, batch: _Batch) -> None:
        """Send rejected requests, also those of messages that are delivered again."""
        for id, requests in batch.rejected_requests.items():
            batch.reject(id, reject(requests))
        if not batch.rejected:
            return
        # A reason holds part of the invalid value; its dead-lettered message has all of it.
        kind = batch.rejected[0].reason.partition(":")[0]
        count = sum(entry.request_count for entry in batch.rejected)
        ids = " ".join(dict.fromkeys(str(entry.message_id) for entry in batch.rejected))
        extra = {"failures": count, "why": kind, "message_ids": ids}
        LOG.warning("requests rejected", extra=extra)
        for position in self.send_rejected(batch.rejected):
            reason = "its rejected requests could not be sent to the dead-letter queue"
            batch.failed.setdefault(str(batch.rejected[position].message_id), reason)


def _after_the_end(batch: _Batch, tag: str, applied: Applied) -> tuple[int, int]:
    """Return how many copies of the create, and late requests, came after a chain's end.

    What SQS delivers again is not counted: its message may have ended the chain. Nor is a copy of
    the create in the batch that ended it, while a late request is of a later write.
    """
    chain, outcomes = applied
    if chain is None or not chain.final:
        return 0, 0
    sources = zip(outcomes, batch.sources(tag), strict=True)
    new = [one for one, message in sources if message.receives == 1]
    copies = [one for one in new if one.kind == "duplicate" and one.request.op == "create"]
    ends = any(one.kind == "applied" for one in outcomes)
    return 0 if ends else len(copies), sum(one.kind == "late" for one in new)
