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
from typing import TypeAlias

from xorack.acker.chain_writer import ChainWriter, WriteStats
from xorack.acker.outbox import Outbox
from xorack.aws.log import log_chain, log_failures
from xorack.core.chain import Chain
from xorack.core.errors import NotAChainError, UnavailableError
from xorack.core.event import event_id
from xorack.core.ports import NO_TIME

_READ_ATTEMPTS = 5
"""Attempts of a read in a row; after them the table counts as unavailable."""
_CALLS = 10
"""Calls of a channel after which what was delivered is marked."""
_MAX_PENDING = 10_000
"""Most pending deliveries of a channel in a sweep: their tags stay in memory. The next sweep takes
the rest."""


@dataclass
class SweepResult:
    """The result of a sweep.

    Attributes:
        ended: Chains ended, by reason; ``acked`` for those that were complete or tolerated.
        tolerated: Chains acked with units outstanding.
        events: Events published, and callbacks made; for others the next sweep tries again.
        pending_since: End of the earliest chain among those; milliseconds since the epoch.
        refused: Those that a service refused for the first time, and callbacks given up.
        problems: Chains that could not be read or written; the next sweep tries again.
        complete: False if time ran out before all due chains were judged.
    """

    chains: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    tolerated: int = 0
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


Ranks: TypeAlias = dict[str, tuple[bool, bool, int]]
"""Chains with a pending delivery on one channel. Tag to whether the delivery was refused before,
whether the chain failed, and its end: the lowest go first."""


class Sweeper:
    """Sweeps the table."""

    def __init__(self, writer: ChainWriter, outbox: Outbox) -> None:
        """Judge within the budget of the writer, and publish within that of the outbox."""
        self.writer = writer
        self.outbox = outbox
        self.channels, self.workers = outbox.channels, outbox.workers
        self.reporter = outbox.writer

    def sweep(self) -> SweepResult:
        """Sweep all chains that are due: judge all deadlines, then publish pending events."""
        result = SweepResult(stats=self.writer.stats)
        # No channel waits for another.
        waiting: dict[str, Ranks] = {channel: {} for channel in self.channels}
        try:
            for tags in self.writer.due_pages():
                self._judge(tags, waiting, result)
        except UnavailableError as error:
            _raise_if_time_is_left(self.writer, error)
            result.complete = False
        # In turns, a slice each; each minute another end first, as a slice may take all the time.
        turns = list(waiting)[:: 1 if self.writer.now() // 60_000 % 2 else -1]
        for _ in zip_longest(*(self._report(one, waiting[one], result) for one in turns)):
            pass
        for ranks in waiting.values():
            result.add_pending(*(ended_at for *_, ended_at in ranks.values()))
        return result

    def _judge(self, tags: list[str], waiting: dict[str, Ranks], result: SweepResult) -> None:
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

        for before, after in zip(chains, self.workers.map(end, chains), strict=True):
            if after is None:
                continue
            if after.final and not before.final:
                reason, _, _ = (after.reason or after.status).partition(":")
                result.ended[reason] += 1
                result.tolerated += after.tolerated
                ended = {"status": after.status, "why": reason, "event_id": event_id(after)}
                log_chain(logging.INFO, "chain ended", after.tag, **ended)
            _add(after, self.writer.now(), waiting, result)
        result.problems += len(problems)
        log_failures(logging.ERROR, "chains not ended", problems)

    def _report(self, channel: str, ranks: Ranks, result: SweepResult) -> Iterator[None]:
        """Report ends slice by slice as long as the service answers; forget what is done."""
        tags = sorted(ranks, key=ranks.__getitem__)
        # If time runs out before the marks, what is read together is reported again: not much.
        size = _CALLS * self.channels[channel].batch_size
        for at in range(0, len(tags), size):
            part = tags[at : at + size]
            try:
                read = self._read(self.reporter, part, result)
            except UnavailableError as error:
                _raise_if_time_is_left(self.reporter, error)
                return
            now = self.reporter.now()
            chains = [chain for chain in read if channel in chain.due_channels(now)]
            reports = self.outbox.publish(chains, channel)
            result.events += len(chains) - len(reports.pending) - len(reports.refused)
            result.refused += reports.alerts
            for tag in part:
                if tag not in reports.pending:
                    del ranks[tag]
            if chains and len(reports.pending) == len(chains):
                return
            yield

    def _read(self, step: ChainWriter, tags: Sequence[str], result: SweepResult) -> list[Chain]:
        """Read the valid chains, with retries, within the time of a step."""
        problems: dict[str, str] = {}

        def on_invalid(error: NotAChainError) -> None:
            problems[str(error.tag)] = f"{type(error).__name__}: {error}"

        chains = step.read(tags, on_invalid, attempts=_READ_ATTEMPTS)
        result.problems += len(problems)
        log_failures(logging.ERROR, "chains not read", problems)
        return list(chains.values())


def _add(chain: Chain, now: int, waiting: dict[str, Ranks], result: SweepResult) -> None:
    """Let a chain wait on the channels on which its end is to be reported."""
    ended_at = chain.ended_at or 0
    for channel in waiting.keys() & chain.due_channels(now):
        ranks = waiting[channel]
        if len(ranks) < _MAX_PENDING or chain.tag in ranks:
            ranks[chain.tag] = (channel in chain.refusals, chain.status == "failed", ended_at)
        else:
            result.add_pending(ended_at)


def _raise_if_time_is_left(step: ChainWriter, error: UnavailableError) -> None:
    if step.has_time():
        raise error.cause from error
