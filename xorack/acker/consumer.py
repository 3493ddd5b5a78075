"""The consumer: applies a batch of messages to chains and publishes the events of ended chains.

The consumer parses each message (`xorack.core.message`), groups the requests by chain, writes each
chain once (`xorack.acker.chain_writer`), and publishes the pending events (`xorack.acker.outbox`).
If something fails:

- Rejected requests go to the dead-letter queue. The other requests of the message still apply.
- A message that is older than the retention of tombstones is rejected entirely.
- A chain that is throttled, or in conflict with other writers, is retried after all other chains.
- A chain that cannot be written in time fails only the messages with requests for it. When they are
  delivered again, their other requests are duplicates.
- An event that cannot be published stays pending and fails no message. The sweeper publishes it.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isinf, ldexp
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
"""The number of chains that are read together, which is the most that one call reads."""
_FIRST_ATTEMPTS = 4
"""The attempts of a chain's first write, within a tenth of a second, because others wait for it."""
_LAST_OUTAGES = 8
"""The attempts in a row without an answer of the table, within about a second, for one chain."""
_IN_WORDS = 100
"""The most reused ids of a batch that are explained, because each takes some milliseconds."""


class Message(NamedTuple):
    """A message of the queue.

    Attributes:
        receives: How often the queue has delivered the message, including this time.
        sent_at: Time when it was first sent, in milliseconds since the epoch, if known.
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
    """The messages that must be delivered again: message id to reason."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """The numbers of requests by outcome. ``reused`` counts the rejected requests whose id another
    request has used. ``repeated`` counts the duplicates that are creates of ended chains."""
    created: int = 0
    ended: Counter[str] = field(default_factory=Counter)  # chains by status
    # The time from create to ack of each acked chain.
    latencies_ms: list[int] = field(default_factory=list)
    events: int = 0  # published events
    events_pending: int = 0  # events that the sweeper has to publish
    dropped: int = 0  # ends that are older than the retention and have no parent any more
    refused: int = 0  # events and callbacks that a service refused for the first time
    stats: WriteStats = field(default_factory=WriteStats)


class _Entry(NamedTuple):
    """A request and the message that holds it."""

    request: Request
    message: Message


class _RequestBatch:
    """The requests of a batch with their messages, by chain, in the order of their effect."""

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
        """Guess whether a chain does not exist yet: its create is in a new message."""
        # `in_order` puts creates first, so the first request shows whether there is a create.
        creates = self[tag][0].request.op == "create"
        return creates and max(message.receives for _, message in self[tag]) == 1

    def tags(self) -> list[str]:
        """Return the chains in the order of their writes."""
        # Without an order, a message of few chains would wait for the chains of large messages. A
        # message that was delivered more often has fewer attempts left, so it moves to the front.
        # Each delivery divides the weight of its chains by eight.
        chains = Counter(
            id for own in self._by_tag.values() for id in {message.id for _, message in own}
        )

        def rank(tag: str) -> float:
            return min(ldexp(chains[each.id], -3 * each.receives) for _, each in self[tag])

        return sorted(self._by_tag, key=rank)


class _DeadLetters:
    """The rejected requests of a batch with the reasons."""

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
        """Add a request that its chain rejected. Requests of a message may share a dead letter."""
        self._of_chains[entry.message].append((entry.request, reason))

    def close(self) -> list[Rejected]:
        """Return all dead letters. Call this after every chain has processed its requests."""
        for message, requests in self._of_chains.items():
            self.add(message, reject(requests))
        self._of_chains.clear()
        return self.letters


@dataclass
class _Run:
    """The state of one batch, with the reasons of problems by chain for the log."""

    batch: _RequestBatch
    letters: _DeadLetters
    result: BatchResult
    not_read: dict[str, str] = field(default_factory=dict)
    not_written: dict[str, str] = field(default_factory=dict)
    not_counted: dict[str, str] = field(default_factory=dict)
    left: dict[str, list[_Entry]] = field(default_factory=dict)

    def fail(self, work: Application, reason: str) -> None:
        """Mark the messages of the requests without an outcome as failed: SQS retries them."""
        self.not_written[work.tag] = reason
        self.left[work.tag] = self.batch[work.tag][len(work.outcomes) :]
        for _, message in self.left[work.tag]:
            self.result.failed.setdefault(message.id, reason)

    def message_ids(self, tags: Iterable[str]) -> dict[str, str]:
        """Return a log field with the ids of the messages that have requests for these chains."""
        entries = (self.left.get(tag) or self.batch[tag] for tag in tags)
        ids = dict.fromkeys(message.id for chain in entries for _, message in chain)
        return {"message_ids": " ".join(ids)}

    def log_failures(self) -> None:
        log_failures(logging.WARNING, "chains not read together", self.not_read)
        log_failures(logging.WARNING, "chains not written", self.not_written, self.message_ids)
        log_failures(logging.WARNING, "late requests not counted", self.not_counted)


class _Done(NamedTuple):
    """Each request for the chain has its outcome."""


class _TryLater(NamedTuple):
    """The chain is throttled or other writers change it. It is retried after all other chains."""


class _Failed(NamedTuple):
    """The requests without an outcome have to be delivered again."""

    reason: str


class _Slice:
    """Chains that are read together when the first of them is written. Threads share a slice."""

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
        """Use the writer's time budget for writes, and the outbox's time budget for reports.

        ``send_rejected`` sends dead letters and returns the positions of those that were not sent.
        """
        self.writer = writer
        self.outbox, self.workers = outbox, outbox.workers
        self.send_rejected = send_rejected

    def consume(self, messages: Sequence[Message]) -> BatchResult:
        """Consume messages in any order.

        The caller may delete all messages that are not in ``failed``.
        """
        letters = _DeadLetters(self.writer.mask)
        batch = _RequestBatch([entry for each in messages for entry in self._parse(each, letters)])
        run = _Run(batch, letters, BatchResult(stats=self.writer.stats))
        run.result.outcomes["rejected"] += letters.requests
        tags = batch.tags()
        known: dict[str, _Slice] = {}
        for at in range(0, len(tags), _SLICE):
            part = tags[at : at + _SLICE]
            known |= dict.fromkeys(part, _Slice(partial(self._read, run, part)))

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
        """Return the valid requests of a message, and add invalid requests to the dead letters."""
        if message.sent_at is not None and message.sent_at < self.writer.oldest():
            # The chain's tombstone may have expired, so a repetition would not be detected.
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
        """Write chains and report their ends. Return the chains that have to be retried."""
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
        self._publish(run, pending, self._reserve() if later else 0.0)
        return later

    def _reserve(self) -> float:
        """Return the seconds that reports must leave for the chains that are written after them.

        These chains get half of the time that is left for writes. Otherwise a slow service would
        use up the time of their messages in each delivery.
        """
        left = self.writer.seconds_left()
        if isinf(left) or left <= 0:
            return 0.0
        return self.outbox.seconds_left() - left / 2

    def _publish(self, run: _Run, pending: Sequence[Chain], reserve: float) -> None:
        reports, result = self.outbox.publish(pending, reserve=reserve), run.result
        result.events_pending += len(reports.pending)
        result.refused += reports.alerts
        result.dropped += reports.dropped
        for parent in reports.parents:
            self._count_end(run.result, parent)
        reported = len(pending) + len(reports.parents)
        events = reported - len(reports.pending.keys() | reports.refused.keys())
        assert events >= 0, "pending and refused reports are among those of these chains"
        result.events += events

    def _read(self, run: _Run, tags: Sequence[str]) -> dict[str, CachedChain]:
        """Read the chains that are not new in one call. If it fails, return none of them."""
        known = {tag: CachedChain(None, verified=False) for tag in tags if run.batch.is_new(tag)}
        stored = [tag for tag in tags if tag not in known]
        if not stored or not self.writer.has_time():
            return known
        try:
            chains = self.writer.read(stored, attempts=_READ_ATTEMPTS)
        except Exception as error:  # noqa: BLE001 - each chain is then read separately
            run.not_read.update(dict.fromkeys(stored, _reason_of(error)))
            return known
        return known | {tag: CachedChain(chains.get(tag), verified=True) for tag in stored}

    def _write(self, run: _Run, work: Application, *, last: bool) -> _Done | _TryLater | _Failed:
        """Apply one chain's requests. The first call makes one write.

        The last call makes all writes.
        """
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
        """Count late requests in at most one write. The write also prolongs the tombstone."""
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
        except Exception as error:  # noqa: BLE001 - a failed count need not fail the message
            if sent_at - kept_from > self.writer.now() - self.writer.oldest():
                # The tombstone may expire before the message does, so the message is retried.
                work.outcomes.clear()
                return _Failed(_reason_of(error))
            run.not_counted[work.tag] = _reason_of(error)
        return _Done()

    def _account(self, run: _Run, work: Application) -> None:
        """Count the outcomes of a chain's requests, and collect the rejected requests."""
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
        level, text = logging.DEBUG, "chain written"
        if work.has_ended_chain:
            level, text = logging.INFO, "chain ended"
            self._count_end(result, chain)
        if LOG.isEnabledFor(level):
            fields: dict[str, object] = {"status": chain.status}
            fields.update((str(kind), count) for kind, count in kinds.items())
            fields.update({"event_id": event_id(chain)} if chain.final else {})
            log_chain(level, text, work.tag, **fields, **run.message_ids([work.tag]))

    @staticmethod
    def _count_end(result: BatchResult, chain: Chain) -> None:
        result.ended[chain.status] += 1
        created_at, ended_at = chain.created_at, chain.ended_at
        if chain.status == "acked" and created_at is not None and ended_at is not None:
            result.latencies_ms.append(max(0, ended_at - created_at))

    def _send_rejected(self, run: _Run) -> None:
        """Send rejected requests to the dead-letter queue, even requests of failed messages."""
        letters = run.letters.close()
        if not letters:
            return
        # The log names only the field, because a reason quotes the value. The dead letter has the
        # value.
        extra = {
            "failures": run.letters.requests,
            "why": letters[0].reason.partition(":")[0],
            "message_ids": " ".join(dict.fromkeys(str(letter.message_id) for letter in letters)),
        }
        LOG.warning("requests rejected", extra=extra)
        for position in self.send_rejected(letters):
            reason = "its rejected requests could not be sent to the dead-letter queue"
            run.result.failed.setdefault(str(letters[position].message_id), reason)


def _reason_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _after_the_end(entries: Sequence[_Entry], work: Application) -> tuple[int, int]:
    """Return how many copies of the create, and how many late requests, came after the end."""
    if work.chain is None or not work.chain.final:
        return 0, 0
    # A message that SQS delivers again may have ended the chain itself. So its requests are not
    # counted. A copy of the create may also be in the same batch as the end.
    known = zip(entries, work.outcomes, strict=False)
    new = [outcome for (_, message), outcome in known if message.receives == 1]
    copies = [each for each in new if each.kind == "duplicate" and each.request.op == "create"]
    ends = any(each.kind == "applied" for each in work.outcomes)
    return 0 if ends else len(copies), sum(each.kind == "late" for each in new)
