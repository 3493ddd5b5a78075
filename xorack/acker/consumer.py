"""The consumer: applies a batch of messages to chains and publishes the events of ended ones.

A message is parsed (`xorack.core.message`), its requests are grouped by chain, each chain is
written once (`xorack.acker.chain_writer`), and pending events are published
(`xorack.acker.outbox`). If a step fails:

- rejected requests go to the dead-letter queue, and the requests around them apply;
- a message that is older than the tombstones' retention is rejected entirely;
- a chain that is throttled, or that others write, is tried again when all others are written;
- a chain that cannot be written, or for which no time is left, fails only the messages that hold
  requests for it. Their other requests are duplicates when the messages are delivered again;
- an event that cannot be published stays pending, and fails no message: the sweeper publishes it.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ldexp
from typing import NamedTuple

from xorack.acker.chain_writer import Application, CachedChain, ChainWriter, WriteStats
from xorack.acker.outbox import Outbox
from xorack.acker.reused import in_words
from xorack.aws.log import LOG, log_chain, log_failures
from xorack.core.chain import Chain
from xorack.core.errors import ArgumentError, RequestIdReused
from xorack.core.event import event_id
from xorack.core.masking import masked_dead_letter
from xorack.core.message import Rejected, parse, reject
from xorack.core.ports import NO_TIME
from xorack.core.request import Request
from xorack.core.transitions import Applied

_READ_ATTEMPTS = 3
_SLICE = 100
"""Chains that are read together: one call reads as many."""
_FIRST_ATTEMPTS = 4
"""Attempts of a chain's first write, within a tenth of a second: others wait behind it."""
_LAST_OUTAGES = 8
"""Attempts of a chain in a row, within about a second, that the table does not answer."""
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
    """The result of a batch."""

    failed: dict[str, str] = field(default_factory=dict)
    """Messages that must be delivered again: message id to reason."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Requests by outcome; of the rejected ones, ``reused`` another request's id; of the
    duplicates, ``repeated`` creates of chains that had ended, as the item counts them."""
    created: int = 0
    ended: Counter[str] = field(default_factory=Counter)  # chains, by status
    latencies_ms: list[int] = field(default_factory=list)  # from create to ack, of each acked here
    events: int = 0  # published
    events_pending: int = 0  # for the sweeper to publish
    refused: int = 0  # events and callbacks that a service refused for the first time
    stats: WriteStats = field(default_factory=WriteStats)


class _Batch:
    """The requests of a batch by chain, each with its message."""

    def __init__(
        self, messages: Sequence[Message], oldest: int, mask: Collection[str] = ()
    ) -> None:
        self.mask = mask
        self.requests: dict[str, list[tuple[Request, Message]]] = defaultdict(list)
        self.chain_counts: Counter[str] = Counter()
        self.rejected: list[Rejected] = []
        self.rejected_requests: dict[Message, list[tuple[Request, str]]] = defaultdict(list)
        self.failed: dict[str, str] = {}
        self.left: dict[str, list[tuple[Request, Message]]] = {}
        self.not_written: dict[str, str] = {}
        self.not_read: dict[str, str] = {}
        self.not_counted: dict[str, str] = {}
        for message in messages:
            if message.sent_at is not None and message.sent_at < oldest:
                # The tombstone of its chain may be gone: nothing tells whether it was applied.
                expected = "a time within the retention of finished chains"
                reason = str(ArgumentError("sent_at", message.sent_at, expected))
                self.reject(message, [Rejected(message.body, reason)])
                continue
            requests, rejected = parse(message.body, hide_values=bool(mask))
            for request in requests:
                self.requests[request.tag].append((request, message))
            self.reject(message, rejected)
            self.chain_counts[message.id] = len({request.tag for request in requests})

    def reject(self, of: Message, entries: Iterable[Rejected]) -> None:
        for one in entries:
            body = masked_dead_letter(one.body, self.mask)
            known = one._replace(sent_at=of.sent_at, message_id=of.id, sender=of.sender)
            self.rejected.append(known._replace(body=body))

    def sources(self, tag: str) -> list[Message]:
        """Return the message of each request for a chain."""
        return [message for _, message in self.requests[tag]]

    def is_new(self, tag: str) -> bool:
        """Guess whether a chain does not exist: its create comes, in a message that is new."""
        creates = any(request.op == "create" for request, _ in self.requests[tag])
        return creates and max(message.receives for message in self.sources(tag)) == 1

    def rank(self, tag: str) -> float:
        """Return the rank of a chain in the order of writes, the lowest first."""
        # A message of few chains would wait for the writes of thousands. One that was delivered
        # more often has fewer attempts left: each counts as an eighth of the chains.
        some = self.sources(tag)
        return min(ldexp(self.chain_counts[one.id], -3 * one.receives) for one in some)

    def fail(self, tag: str, reason: str, left: Iterable[int]) -> None:
        """Fail the messages of those requests of a chain that are left; keep the others."""
        self.not_written[tag] = reason
        requests, positions = self.requests[tag], {*left}
        self.left[tag] = [one for n, one in enumerate(requests) if n in positions]
        self.requests[tag] = [one for n, one in enumerate(requests) if n not in positions]
        for _, message in self.left[tag]:
            self.failed.setdefault(message.id, reason)

    def message_ids(self, tags: Iterable[str]) -> dict[str, str]:
        """Return the ids of the messages of chains as a field of a log line."""
        entries = (self.left.get(tag) or self.requests[tag] for tag in tags)
        ids = dict.fromkeys(message.id for some in entries for _, message in some)
        return {"message_ids": " ".join(ids)}

    def log_failures(self) -> None:
        log_failures(logging.WARNING, "chains not read together", self.not_read)
        log_failures(logging.WARNING, "chains not written", self.not_written, self.message_ids)
        log_failures(logging.WARNING, "late requests not counted", self.not_counted)


class _Slice:
    """Chains that are read together when the first of them is written. Threads share it."""

    def __init__(self, read: Callable[[], dict[str, CachedChain]]) -> None:
        self._read = read
        self._known: dict[str, CachedChain] | None = None
        self._lock = threading.Lock()

    def take(self, tag: str) -> CachedChain | None:
        with self._lock:
            if self._known is None:
                self._known = self._read()
            return self._known.pop(tag, None)


class Consumer:
    """Consumes batches of messages."""

    def __init__(
        self,
        writer: ChainWriter,
        outbox: Outbox,
        send_rejected: Callable[[Sequence[Rejected]], list[int]],
    ) -> None:
        """Write within the budget of the writer, and publish within that of the outbox.

        ``send_rejected`` dead-letters requests; it returns the positions of those not sent.
        """
        self.writer = writer
        self.writer.ends = set()
        self.outbox, self.workers = outbox, outbox.workers
        self.send_rejected = send_rejected

    def consume(self, messages: Sequence[Message]) -> BatchResult:
        """Consume messages in any order. Those that are not in ``failed`` may be deleted then."""
        batch = _Batch(messages, self.writer.oldest(), self.writer.mask)
        result = BatchResult(failed=batch.failed, stats=self.writer.stats)
        result.outcomes["rejected"] += sum(entry.request_count for entry in batch.rejected)
        tags = sorted(batch.requests, key=batch.rank)
        known: dict[str, _Slice] = {}
        for at in range(0, len(tags), _SLICE):
            some = tags[at : at + _SLICE]
            known |= dict.fromkeys(some, _Slice(partial(self._read, batch, some)))

        def begin(tag: str) -> Application:
            requests = [request for request, _ in batch.requests[tag]]
            sent_at = [message.sent_at for message in batch.sources(tag)]
            return Application(tag, requests, known[tag].take(tag), sent_at=sent_at)

        later = {work.tag: work for work in self._write_chains(batch, tags, result, begin)}
        self._write_chains(batch, [*later], result, later.__getitem__, last=True)
        batch.log_failures()
        self._send_rejected(batch)
        return result

    def _write_chains(
        self,
        batch: _Batch,
        tags: Sequence[str],
        result: BatchResult,
        work_of: Callable[[str], Application],
        *,
        last: bool = False,
    ) -> list[Application]:
        """Write chains and publish their events; return what is to be tried again."""
        pending, later = [], []

        def write(tag: str) -> tuple[Application, Applied, str | None]:
            work = work_of(tag)
            return work, *self._write(batch, work, last=last)

        for work, applied, reason in self.workers.results(write, tags):
            if reason is not None:
                batch.fail(work.tag, reason, work.left)
            elif work.left:
                later.append(work)
                continue
            if applied.outcomes:
                self._account(batch, work.tag, applied, result)
                if applied.chain is not None and applied.chain.due_channels(self.writer.now()):
                    pending.append(applied.chain)
        self._publish(batch, pending, result)
        return later

    def _publish(self, batch: _Batch, pending: Sequence[Chain], result: BatchResult) -> None:
        reports = self.outbox.publish(pending)
        result.events_pending += len(reports.pending)
        result.refused += reports.alerts
        events = len(pending) - len(reports.pending.keys() | reports.refused.keys())
        assert events >= 0, "what is pending or refused was to be published"
        result.events += events

    def _read(self, batch: _Batch, tags: Sequence[str]) -> dict[str, CachedChain]:
        """Read the chains that are not new in one go; none of them if that fails."""
        known = {tag: CachedChain(None, verified=False) for tag in tags if batch.is_new(tag)}
        stored = [tag for tag in tags if tag not in known]
        if not stored or not self.writer.has_time():
            return known
        try:
            chains = self.writer.read(stored, attempts=_READ_ATTEMPTS)
        except Exception as error:  # noqa: BLE001 - each chain is read, and fails, by itself
            batch.not_read.update(dict.fromkeys(stored, _reason_of(error)))
            return known
        return known | {tag: CachedChain(chains.get(tag), verified=True) for tag in stored}

    def _write(self, batch: _Batch, work: Application, *, last: bool) -> tuple[Applied, str | None]:
        """Apply one chain's requests: in one write, unless it is the last time.

        Returns the outcomes so far, and why the others wait for another delivery. The first time
        what is throttled, or written by others, has no reason.
        """
        reason: str | None = None
        attempts = None if last else _FIRST_ATTEMPTS
        try:
            while work.left and reason is None:
                if not self.writer.has_time():
                    reason = NO_TIME
                    break
                problem = self.writer.advance(work, attempts=attempts, outages=_LAST_OUTAGES)
                if not last:
                    break
                reason = _reason_of(problem) if problem else None
        except Exception as error:  # noqa: BLE001 - a failure affects only this chain
            reason = _reason_of(error)
        applied = work.applied()
        return (applied, reason) if work.left else self._count_late(batch, work, applied)

    def _count_late(
        self, batch: _Batch, work: Application, applied: Applied
    ) -> tuple[Applied, str | None]:
        """Count what came after a chain's end, in one write at most; it prolongs the tombstone."""
        chain, tag = applied.chain, work.tag
        if chain is None or not chain.final:
            return applied, None
        repeated, late = _after_the_end(batch, tag, applied)
        kept_from = max(chain.ended_at or 0, chain.tombstone.last_late_at or 0)
        sent_at = max(one.sent_at or 0 for one in batch.sources(tag))
        if not (late or repeated or sent_at > kept_from):
            return applied, None
        try:
            return applied._replace(chain=self.writer.count_late(chain, repeated, late)), None
        except Exception as error:  # noqa: BLE001 - a count is not worth another delivery
            if sent_at - kept_from > self.writer.now() - self.writer.oldest():
                # The tombstone may be gone before the message.
                work.left = [*range(len(work.requests))]
                return applied._replace(outcomes=[]), _reason_of(error)
            batch.not_counted[tag] = _reason_of(error)
            return applied, None

    def _account(self, batch: _Batch, tag: str, applied: Applied, result: BatchResult) -> None:
        """Count the outcomes of a chain's requests; collect the rejected ones."""
        kinds = Counter([kind for _, kind, _ in applied.outcomes])
        result.outcomes.update(kinds)
        ops = [request.op for request, kind, _ in applied.outcomes if kind == "applied"]
        result.created += ops.count("create")
        result.outcomes["repeated"] += _after_the_end(batch, tag, applied)[0]
        if kinds["rejected"]:
            sources = batch.sources(tag)
            for (request, _, error), message in zip(applied.outcomes, sources, strict=True):
                if error is not None:
                    result.outcomes["reused"] += isinstance(error, RequestIdReused)
                    few = result.outcomes["reused"] <= _IN_WORDS
                    reason = in_words(error, request, applied.chain) if few else str(error)
                    batch.rejected_requests[message].append((request, reason))
        if (chain := applied.chain) is None:
            return
        level, what = logging.DEBUG, "chain written"
        if self.writer.ended(chain):
            level, what = logging.INFO, "chain ended"
            result.ended[chain.status] += 1
            created_at, ended_at = chain.created_at, chain.ended_at
            if chain.status == "acked" and created_at is not None and ended_at is not None:
                result.latencies_ms.append(max(0, ended_at - created_at))
        if LOG.isEnabledFor(level):
            fields: dict[str, object] = {"status": chain.status}
            fields.update((str(kind), count) for kind, count in kinds.items())
            fields.update({"event_id": event_id(chain)} if chain.final else {})
            log_chain(level, what, tag, **fields, **batch.message_ids([tag]))

    def _send_rejected(self, batch: _Batch) -> None:
        """Send rejected requests, also those of messages that are delivered again."""
        for message, requests in batch.rejected_requests.items():
            batch.reject(message, reject(requests))
        if not batch.rejected:
            return
        # A reason holds part of the invalid value; its dead-lettered message has all of it.
        extra = {
            "failures": sum(entry.request_count for entry in batch.rejected),
            "why": batch.rejected[0].reason.partition(":")[0],
            "message_ids": " ".join(dict.fromkeys(str(one.message_id) for one in batch.rejected)),
        }
        LOG.warning("requests rejected", extra=extra)
        for position in self.send_rejected(batch.rejected):
            reason = "its rejected requests could not be sent to the dead-letter queue"
            batch.failed.setdefault(str(batch.rejected[position].message_id), reason)


def _reason_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _after_the_end(batch: _Batch, tag: str, applied: Applied) -> tuple[int, int]:
    """Return how many copies of the create, and late requests, came after a chain's end."""
    chain, outcomes = applied
    if chain is None or not chain.final:
        return 0, 0
    # What SQS delivers again may have ended the chain, and so may the batch of the create's copy.
    sources = zip(outcomes, batch.sources(tag), strict=True)
    new = [one for one, message in sources if message.receives == 1]
    copies = [one for one in new if one.kind == "duplicate" and one.request.op == "create"]
    ends = any(one.kind == "applied" for one in outcomes)
    return 0 if ends else len(copies), sum(one.kind == "late" for one in new)
