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

from xorack.acker.chain_writer import (
    Application,
    CachedChain,
    ChainWriter,
    WriteStats,
    Written,
)
from xorack.acker.outbox import Outbox
from xorack.acker.reused import explain_reused_id
from xorack.aws.log import LOG, log_chain, log_failures
from xorack.core.chain import Chain
from xorack.core.errors import ArgumentError, RequestIdReused
from xorack.core.event import event_id
from xorack.core.masking import masked_dead_letter
from xorack.core.message import Rejected, parse, reject
from xorack.core.ports import NO_TIME
from xorack.core.request import Request
from xorack.core.transitions import in_order

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


class _Entry(NamedTuple):
    """A request and the message that holds it."""

    request: Request
    message: Message


class _RequestBatch:
    """The requests of a batch by chain, in the order of their effect, each with its message."""

    def __init__(self, entries: Iterable[_Entry]) -> None:
        by_tag: dict[str, list[_Entry]] = defaultdict(list)
        for entry in entries:
            by_tag[entry.request.tag].append(entry)
        self._by_tag = {
            tag: in_order(own, lambda entry: entry.request) for tag, own in by_tag.items()
        }

    def __getitem__(self, tag: str) -> list[_Entry]:
        return self._by_tag[tag]

    def is_new(self, tag: str) -> bool:
        """Guess whether a chain does not exist: its create comes, in a message that is new."""
        # A create is the first request of its chain.
        creates = self[tag][0].request.op == "create"
        return creates and max(message.receives for _, message in self[tag]) == 1

    def tags(self) -> list[str]:
        """Return the chains in the order of their writes."""
        # A message of few chains would wait for the writes of thousands. One that was delivered
        # more often has fewer attempts left: each counts as an eighth of the chains.
        chains = Counter(
            id for own in self._by_tag.values() for id in {message.id for _, message in own}
        )

        def rank(tag: str) -> float:
            return min(ldexp(chains[one.id], -3 * one.receives) for _, one in self[tag])

        return sorted(self._by_tag, key=rank)


class _DeadLetters:
    """The rejected requests of a batch, with the reasons."""

    def __init__(self, mask: Collection[str]) -> None:
        self._mask = mask
        self._of_chains: dict[Message, list[tuple[Request, str]]] = defaultdict(list)
        self.letters: list[Rejected] = []

    @property
    def requests(self) -> int:
        return sum(letter.request_count for letter in self.letters)

    def add(self, message: Message, letters: Iterable[Rejected]) -> None:
        for letter in letters:
            self.letters.append(
                letter._replace(
                    body=masked_dead_letter(letter.body, self._mask),
                    sent_at=message.sent_at,
                    message_id=message.id,
                    sender=message.sender,
                )
            )

    def add_request(self, entry: _Entry, reason: str) -> None:
        """Add a request that its chain rejects; those of one message may share a letter."""
        self._of_chains[entry.message].append((entry.request, reason))

    def close(self) -> list[Rejected]:
        """Return all dead letters, once each chain has judged its requests."""
        for message, requests in self._of_chains.items():
            self.add(message, reject(requests))
        self._of_chains.clear()
        return self.letters


@dataclass
class _Run:
    """What becomes of one batch; the reasons of problems by chain, for the log."""

    batch: _RequestBatch
    letters: _DeadLetters
    result: BatchResult
    not_read: dict[str, str] = field(default_factory=dict)
    not_written: dict[str, str] = field(default_factory=dict)
    not_counted: dict[str, str] = field(default_factory=dict)
    left: dict[str, list[_Entry]] = field(default_factory=dict)

    def fail(self, work: Application, reason: str) -> None:
        """Let the queue deliver the requests again that have no outcome yet."""
        self.not_written[work.tag] = reason
        self.left[work.tag] = self.batch[work.tag][len(work.outcomes) :]
        for _, message in self.left[work.tag]:
            self.result.failed.setdefault(message.id, reason)

    def message_ids(self, tags: Iterable[str]) -> dict[str, str]:
        """Return the ids of the messages of chains as a field of a log line."""
        entries = (self.left.get(tag) or self.batch[tag] for tag in tags)
        ids = dict.fromkeys(message.id for some in entries for _, message in some)
        return {"message_ids": " ".join(ids)}

    def log_failures(self) -> None:
        log_failures(logging.WARNING, "chains not read together", self.not_read)
        log_failures(logging.WARNING, "chains not written", self.not_written, self.message_ids)
        log_failures(logging.WARNING, "late requests not counted", self.not_counted)


class _Done(NamedTuple):
    """Each request of the chain has its outcome."""


class _TryLater(NamedTuple):
    """The chain is throttled, or others write it: it is tried again after all others."""


class _Failed(NamedTuple):
    """The requests without an outcome wait for another delivery."""

    reason: str


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
        self.outbox, self.workers = outbox, outbox.workers
        self.send_rejected = send_rejected

    def consume(self, messages: Sequence[Message]) -> BatchResult:
        """Consume messages in any order. Those that are not in ``failed`` may be deleted then."""
        letters = _DeadLetters(self.writer.mask)
        batch = _RequestBatch([entry for one in messages for entry in self._parse(one, letters)])
        run = _Run(batch, letters, BatchResult(stats=self.writer.stats))
        run.result.outcomes["rejected"] += letters.requests
        tags = batch.tags()
        known: dict[str, _Slice] = {}
        for at in range(0, len(tags), _SLICE):
            some = tags[at : at + _SLICE]
            known |= dict.fromkeys(some, _Slice(partial(self._read, run, some)))

        def begin(tag: str) -> Application:
            requests = [request for request, _ in batch[tag]]
            sent_at = [message.sent_at for _, message in batch[tag]]
            return Application(tag, requests, known[tag].take(tag), sent_at=sent_at)

        later = {work.tag: work for work in self._write_chains(run, tags, begin)}
        self._write_chains(run, [*later], later.__getitem__, last=True)
        run.log_failures()
        self._send_rejected(run)
        return run.result

    def _parse(self, message: Message, letters: _DeadLetters) -> list[_Entry]:
        """Return the valid requests of a message; add the others to the dead letters."""
        if message.sent_at is not None and message.sent_at < self.writer.oldest():
            # The tombstone of its chain may be gone: nothing tells whether it was applied.
            expected = "a time within the retention of finished chains"
            reason = str(ArgumentError("sent_at", message.sent_at, expected))
            letters.add(message, [Rejected(message.body, reason)])
            return []
        requests, rejected = parse(message.body, hide_values=bool(self.writer.mask))
        letters.add(message, rejected)
        return [_Entry(request, message) for request in requests]

    def _write_chains(
        self,
        run: _Run,
        tags: Sequence[str],
        work_of: Callable[[str], Application],
        *,
        last: bool = False,
    ) -> list[Application]:
        """Write chains and publish their events; return what is to be tried again."""
        pending, later = [], []

        def write(tag: str) -> tuple[Application, _Done | _TryLater | _Failed]:
            work = work_of(tag)
            return work, self._write(run, work, last=last)

        for work, result in self.workers.results(write, tags):
            if isinstance(result, _TryLater):
                later.append(work)
                continue
            if isinstance(result, _Failed):
                run.fail(work, result.reason)
            if work.outcomes:
                self._account(run, work)
                if work.chain is not None and work.chain.due_reports(self.writer.now()):
                    pending.append(work.chain)
        self._publish(run, pending)
        return later

    def _publish(self, run: _Run, pending: Sequence[Chain]) -> None:
        reports, result = self.outbox.publish(pending), run.result
        result.events_pending += len(reports.pending)
        result.refused += reports.alerts
        for parent in reports.parents:
            self._count_end(run.result, parent)
        reported = len(pending) + len(reports.parents)
        events = reported - len(reports.pending.keys() | reports.refused.keys())
        assert events >= 0, "what is pending or refused was to be published"
        result.events += events

    def _read(self, run: _Run, tags: Sequence[str]) -> dict[str, CachedChain]:
        """Read the chains that are not new in one go; none of them if that fails."""
        known = {tag: CachedChain(None, verified=False) for tag in tags if run.batch.is_new(tag)}
        stored = [tag for tag in tags if tag not in known]
        if not stored or not self.writer.has_time():
            return known
        try:
            chains = self.writer.read(stored, attempts=_READ_ATTEMPTS)
        except Exception as error:  # noqa: BLE001 - each chain is read, and fails, by itself
            run.not_read.update(dict.fromkeys(stored, _reason_of(error)))
            return known
        return known | {tag: CachedChain(chains.get(tag), verified=True) for tag in stored}

    def _write(self, run: _Run, work: Application, *, last: bool) -> _Done | _TryLater | _Failed:
        """Apply one chain's requests: in one write, unless it is the last time."""
        attempts = None if last else _FIRST_ATTEMPTS
        try:
            while not work.is_done:
                if not self.writer.has_time():
                    return _Failed(NO_TIME.reason)
                result = self.writer.apply_next(work, attempts=attempts, outages=_LAST_OUTAGES)
                if last and not isinstance(result, Written):
                    return _Failed(_reason_of(result.error))
                if not last and not work.is_done:
                    return _TryLater()
        except Exception as error:  # noqa: BLE001 - a failure affects only this chain
            return _Failed(_reason_of(error))
        return self._count_late(run, work)

    def _count_late(self, run: _Run, work: Application) -> _Done | _Failed:
        """Count what came after a chain's end, in one write at most; it prolongs the tombstone."""
        chain = work.chain
        if chain is None or not chain.final:
            return _Done()
        repeated, late = _after_the_end(run.batch[work.tag], work)
        kept_from = max(chain.ended_at or 0, chain.tombstone.last_late_at or 0)
        sent_at = max(message.sent_at or 0 for _, message in run.batch[work.tag])
        if not (late or repeated or sent_at > kept_from):
            return _Done()
        try:
            after = self.writer.count_late(chain, repeated, late)
            work.cached = CachedChain(after, verified=True)
        except Exception as error:  # noqa: BLE001 - a count is not worth another delivery
            if sent_at - kept_from > self.writer.now() - self.writer.oldest():
                # The tombstone may be gone before the message.
                work.outcomes.clear()
                return _Failed(_reason_of(error))
            run.not_counted[work.tag] = _reason_of(error)
        return _Done()

    def _account(self, run: _Run, work: Application) -> None:
        """Count the outcomes of a chain's requests; collect the rejected ones."""
        entries, result = run.batch[work.tag], run.result
        kinds = Counter([kind for _, kind, _ in work.outcomes])
        result.outcomes.update(kinds)
        ops = [request.op for request, kind, _ in work.outcomes if kind == "applied"]
        result.created += ops.count("create")
        result.outcomes["repeated"] += _after_the_end(entries, work)[0]
        for entry, (request, _, error) in zip(entries, work.outcomes, strict=False):
            if error is not None:
                result.outcomes["reused"] += isinstance(error, RequestIdReused)
                few = result.outcomes["reused"] <= _IN_WORDS
                reason = explain_reused_id(error, request, work.chain) if few else str(error)
                run.letters.add_request(entry, reason)
        if (chain := work.chain) is None:
            return
        level, what = logging.DEBUG, "chain written"
        if work.has_ended_chain:
            level, what = logging.INFO, "chain ended"
            self._count_end(result, chain)
        if LOG.isEnabledFor(level):
            fields: dict[str, object] = {"status": chain.status}
            fields.update((str(kind), count) for kind, count in kinds.items())
            fields.update({"event_id": event_id(chain)} if chain.final else {})
            log_chain(level, what, work.tag, **fields, **run.message_ids([work.tag]))

    @staticmethod
    def _count_end(result: BatchResult, chain: Chain) -> None:
        result.ended[chain.status] += 1
        created_at, ended_at = chain.created_at, chain.ended_at
        if chain.status == "acked" and created_at is not None and ended_at is not None:
            result.latencies_ms.append(max(0, ended_at - created_at))

    def _send_rejected(self, run: _Run) -> None:
        """Send rejected requests, also those of messages that are delivered again."""
        letters = run.letters.close()
        if not letters:
            return
        # A reason holds part of the invalid value; its dead-lettered message has all of it.
        extra = {
            "failures": run.letters.requests,
            "why": letters[0].reason.partition(":")[0],
            "message_ids": " ".join(dict.fromkeys(str(one.message_id) for one in letters)),
        }
        LOG.warning("requests rejected", extra=extra)
        for position in self.send_rejected(letters):
            reason = "its rejected requests could not be sent to the dead-letter queue"
            run.result.failed.setdefault(str(letters[position].message_id), reason)


def _reason_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _after_the_end(entries: Sequence[_Entry], work: Application) -> tuple[int, int]:
    """Return how many copies of the create, and late requests, came after a chain's end."""
    if work.chain is None or not work.chain.final:
        return 0, 0
    # What SQS delivers again may have ended the chain, and so may the batch of the create's copy.
    known = zip(entries, work.outcomes, strict=False)
    new = [outcome for (_, message), outcome in known if message.receives == 1]
    copies = [one for one in new if one.kind == "duplicate" and one.request.op == "create"]
    ends = any(one.kind == "applied" for one in work.outcomes)
    return 0 if ends else len(copies), sum(one.kind == "late" for one in new)
