"""The sweeper: ends chains whose deadline has passed and publishes pending events.

DynamoDB's TTL is not a timer: it may be days late. A sparse index holds the time at which to look
at each chain. The conditional write decides whether the deadline has really passed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from xorack.acker.chain_writer import ChainWriter, WriteStats
from xorack.acker.outbox import Outbox
from xorack.acker.parallel import Workers
from xorack.acker.reading import read_valid
from xorack.aws.log import log_chain, log_failures
from xorack.aws.retry import Retry
from xorack.core.chain import EVENT, Chain
from xorack.core.errors import NotAChainError, UnavailableError
from xorack.core.event import event_id
from xorack.core.transitions import expire

__all__ = ["SweepResult", "Sweeper"]

_READ_ATTEMPTS = 5
"""Attempts of a read in a row; after them the table counts as unavailable."""
_MAX_PENDING = 10_000
"""Most pending deliveries of a channel in a sweep: their tags stay in memory. The next sweep takes
the rest."""


@dataclass
class SweepResult:
    """The result of a sweep.

    Attributes:
        chains: Chains that were read.
        ended: Chains ended, by reason; ``acked`` for those that were complete.
        events: Events published, and callbacks made.
        events_pending: Those that were not; the next sweep tries again.
        pending_since: End of the earliest chain among those; milliseconds since the epoch.
        refused: Those that a service refused for the first time, and callbacks given up.
        problems: Chains that could not be read or written; the next sweep tries again.
        complete: False if time ran out before all due chains were judged.
        stats: Write statistics.
    """

    chains: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    events: int = 0
    events_pending: int = 0
    pending_since: int | None = None
    refused: int = 0
    problems: int = 0
    complete: bool = True
    stats: WriteStats = field(default_factory=WriteStats)

    def add_pending(self, *ended_at: int) -> None:
        """Count events that were not published, by the ends of their chains."""
        self.events_pending += len(ended_at)
        known = ended_at if self.pending_since is None else (*ended_at, self.pending_since)
        self.pending_since = min(known, default=None)


@dataclass
class _Waiting:
    """Chains with a pending delivery on one channel: no channel waits for another.

    Attributes:
        channel: `EVENT`, or a kind of callbacks.
        slice: Chains that are read, reported and marked together. If time runs out before the
            marks, they are reported again: a small slice bounds how many a slow service gets twice.
        ranks: Tag to whether the delivery was refused before, whether the chain failed, and its
            end: the lowest go first.
    """

    channel: str
    slice: int
    ranks: dict[str, tuple[bool, bool, int]] = field(default_factory=dict)

    def holds(self, chain: Chain) -> bool:
        """Return True if the chain's delivery on this channel is pending."""
        return self.channel in chain.undelivered


class Sweeper:
    """Sweeps the table."""

    def __init__(
        self, writer: ChainWriter, outbox: Outbox, *, workers: Workers | None = None
    ) -> None:
        """Use these services.

        Args:
            writer: Writes chains. The ``time_left`` of its retry policy bounds the judging.
            outbox: Publishes events. The ``time_left`` of its writer bounds the publishing.
            workers: The threads of writes; by default one write after the other.
        """
        self.writer = writer
        self.outbox = outbox
        self.workers = workers or Workers()

    def sweep(self) -> SweepResult:
        """Sweep all chains that are due: judge all deadlines, then publish pending events.

        Raises:
            Exception: The index or the table cannot be read.
        """
        result = SweepResult(stats=self.writer.stats)
        # Ten calls each: an event shares its call with nine others.
        sizes = {EVENT: 100}
        lists = [_Waiting(channel, sizes.get(channel, 10)) for channel in self.outbox.channels]
        try:
            for tags in self._due_pages():
                self._judge(tags, lists, result)
        except _TimeOver:
            result.complete = False
        # In turns, a slice each; each minute another end first, as a slice may take all the time.
        turns = lists[:: 1 if self.writer.clock() // 60_000 % 2 else -1]
        for _ in zip_longest(*(self._report(waiting, result) for waiting in turns)):
            pass
        for waiting in lists:
            result.add_pending(*(ended_at for *_, ended_at in waiting.ranks.values()))
        return result

    def _due_pages(self) -> Iterator[list[str]]:
        """Yield the pages of due chains, again from the first one if a page cannot be read.

        Most chains of earlier pages are not due any more then.
        """
        retry = self.writer.retry_policy.start()
        while True:
            try:
                for page in self.writer.store.due_pages(self.writer.clock()):
                    retry = self.writer.retry_policy.start()
                    yield page
            except UnavailableError as error:
                _wait(retry, error)
            else:
                return

    def _judge(self, tags: list[str], lists: Sequence[_Waiting], result: SweepResult) -> None:
        """End the chains of a page that are complete or late; collect pending events."""
        if self.writer.retry_policy.time_left() <= 0:
            raise _TimeOver
        chains = self._read(self.writer, tags, result)
        result.chains += len(chains)
        problems: dict[str, str] = {}
        for before, after in zip(chains, self.workers.map(self._expire, chains), strict=True):
            if isinstance(after, _TimeOver):
                result.complete = False
            elif isinstance(after, Exception):
                problems[before.tag] = f"{type(after).__name__}: {after}"
            if after is None or isinstance(after, Exception):
                continue
            if after.final and not before.final:
                reason, _, _ = (after.reason or after.status).partition(":")
                result.ended[reason] += 1
                ended = {"status": after.status, "why": reason, "event_id": event_id(after)}
                log_chain(logging.INFO, "chain ended", after.tag, **ended)
            for waiting in lists:
                if not waiting.holds(after):
                    continue
                ended_at = after.ended_at or self.writer.clock()
                if after.tag in waiting.ranks or len(waiting.ranks) < _MAX_PENDING:
                    refused = after.refused_at is not None
                    waiting.ranks[after.tag] = (refused, after.status == "failed", ended_at)
                else:
                    result.add_pending(ended_at)
        result.problems += len(problems)
        log_failures(logging.ERROR, "chains not ended", problems)

    def _report(self, waiting: _Waiting, result: SweepResult) -> Iterator[None]:
        """Report ends slice by slice as long as the service answers; forget what is done."""
        tags = sorted(waiting.ranks, key=waiting.ranks.__getitem__)
        for at in range(0, len(tags), waiting.slice):
            part = tags[at : at + waiting.slice]
            try:
                read = self._read(self.outbox.writer, part, result)
            except _TimeOver:
                return
            chains = [chain for chain in read if waiting.holds(chain)]
            reports = self.outbox.publish(chains, waiting.channel)
            result.events += len(chains) - len(reports.pending) - len(reports.refused)
            result.refused += reports.alerts
            for tag in part:
                if tag not in reports.pending:
                    del waiting.ranks[tag]
            if chains and len(reports.pending) == len(chains):
                return
            yield

    def _read(self, writer: ChainWriter, tags: Sequence[str], result: SweepResult) -> list[Chain]:
        """Read the valid chains, with retries, within the time of a writer."""
        problems: dict[str, str] = {}

        def on_invalid(error: NotAChainError) -> None:
            problems[str(error.tag)] = f"{type(error).__name__}: {error}"

        def read(tags: Sequence[str]) -> dict[str, Chain]:
            retry = writer.retry_policy.start()
            while True:
                try:
                    return writer.store.read(tags)
                except UnavailableError as error:
                    _wait(retry, error)

        chains = read_valid(read, tags, on_invalid)
        result.problems += len(problems)
        log_failures(logging.ERROR, "chains not read", problems)
        return chains

    def _expire(self, chain: Chain) -> Chain | Exception | None:
        """End a chain if it is complete or late; return the error if that fails."""
        if self.writer.retry_policy.time_left() <= 0:
            return _TimeOver()
        try:
            return self.writer.change(chain, lambda stored: expire(stored, self.writer.clock()))
        except Exception as error:  # noqa: BLE001 - the other chains are swept all the same
            return error


class _TimeOver(Exception):
    """No time is left for another attempt."""


def _wait(retry: Retry, error: UnavailableError) -> None:
    """Wait before the next attempt; raise the cause of the error if attempts are used up."""
    if retry.policy.time_left() > 0 and retry.attempt >= _READ_ATTEMPTS:
        raise error.cause from error
    if not retry.again():
        raise _TimeOver from error
