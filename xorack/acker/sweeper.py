"""The sweeper: ends chains whose deadline has passed and publishes pending events.

DynamoDB's TTL is not a timer: it may be days late. A sparse index holds the time at which to look
at each chain. The conditional write decides whether the deadline has really passed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest

from xorack.acker.chain_writer import ChainWriter, WriteStats
from xorack.acker.outbox import Outbox
from xorack.acker.reading import read_valid
from xorack.aws.log import log_chain, log_failures
from xorack.core.chain import EVENT, Chain
from xorack.core.errors import NotAChainError, UnavailableError
from xorack.core.event import event_id
from xorack.core.ports import NO_TIME

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

    def add(self, chain: Chain) -> bool:
        """Add a chain; return False if there are too many."""
        if chain.tag not in self.ranks and len(self.ranks) >= _MAX_PENDING:
            return False
        refused, failed = chain.refused_at is not None, chain.status == "failed"
        self.ranks[chain.tag] = (refused, failed, chain.ended_at or 0)
        return True


class Sweeper:
    """Sweeps the table."""

    def __init__(self, writer: ChainWriter, outbox: Outbox) -> None:
        """Judge within the budget of the writer, and publish within that of the outbox."""
        self.writer = writer
        self.outbox = outbox

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
            for tags in self.writer.store.due_pages(self.writer.now()):
                self._judge(tags, lists, result)
        except UnavailableError as error:
            _stop(self.writer, error)
            result.complete = False
        # In turns, a slice each; each minute another end first, as a slice may take all the time.
        turns = lists[:: 1 if self.writer.now() // 60_000 % 2 else -1]
        for _ in zip_longest(*(self._report(waiting, result) for waiting in turns)):
            pass
        for waiting in lists:
            result.add_pending(*(ended_at for *_, ended_at in waiting.ranks.values()))
        return result

    def _judge(self, tags: list[str], lists: Sequence[_Waiting], result: SweepResult) -> None:
        """End the chains of a page that are complete or late; collect pending events."""
        if not self.writer.has_time():
            raise UnavailableError(TimeoutError(NO_TIME))
        chains = self._read(self.writer, tags, result)
        result.chains += len(chains)
        problems: dict[str, str] = {}

        def end(chain: Chain) -> Chain | None:
            if not self.writer.has_time():
                result.complete = False
                return None
            try:
                return self.writer.expire(chain)
            except Exception as error:  # noqa: BLE001 - the others are swept all the same
                problems[chain.tag] = f"{type(error).__name__}: {error}"
                return None

        for before, after in zip(chains, self.outbox.workers.map(end, chains), strict=True):
            if after is None:
                continue
            if after.final and not before.final:
                reason, _, _ = (after.reason or after.status).partition(":")
                result.ended[reason] += 1
                ended = {"status": after.status, "why": reason, "event_id": event_id(after)}
                log_chain(logging.INFO, "chain ended", after.tag, **ended)
            for waiting in lists:
                if waiting.holds(after) and not waiting.add(after):
                    result.add_pending(after.ended_at or 0)
        result.problems += len(problems)
        log_failures(logging.ERROR, "chains not ended", problems)

    def _report(self, waiting: _Waiting, result: SweepResult) -> Iterator[None]:
        """Report ends slice by slice as long as the service answers; forget what is done."""
        tags = sorted(waiting.ranks, key=waiting.ranks.__getitem__)
        for at in range(0, len(tags), waiting.slice):
            part = tags[at : at + waiting.slice]
            try:
                read = self._read(self.outbox.writer, part, result)
            except UnavailableError as error:
                _stop(self.outbox.writer, error)
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

    def _read(self, step: ChainWriter, tags: Sequence[str], result: SweepResult) -> list[Chain]:
        """Read the valid chains, with retries, within the time of a step."""
        problems: dict[str, str] = {}

        def on_invalid(error: NotAChainError) -> None:
            problems[str(error.tag)] = f"{type(error).__name__}: {error}"

        chains = read_valid(partial(step.read, attempts=_READ_ATTEMPTS), tags, on_invalid)
        result.problems += len(problems)
        log_failures(logging.ERROR, "chains not read", problems)
        return chains


def _stop(step: ChainWriter, error: UnavailableError) -> None:
    """Raise the cause of an error unless it is that the step has no time left."""
    if step.has_time():
        raise error.cause from error
