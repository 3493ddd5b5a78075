"""The sweeper: ends chains whose deadline has passed and publishes pending events.

DynamoDB's TTL is not a timer: it may be days late. A sparse index holds the time at which to look
at each chain: deadlines in one half of its shards, pending events in the other, so that neither
waits behind the other. The conditional write decides whether the deadline has really passed.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import TypeAlias

from xorack.acker.chain_writer import ChainWriter, WriteStats
from xorack.acker.outbox import Deliveries, Outbox
from xorack.acker.parallel import Workers
from xorack.aws import schema
from xorack.aws.log import log_chain, log_failures
from xorack.core.chain import EVENT, Chain
from xorack.core.errors import NotAChainError, UnavailableError
from xorack.core.event import event_id
from xorack.core.ports import NO_TIME

_READ_ATTEMPTS = 5
"""Attempts of a read in a row; after them the table counts as unavailable."""
_CALLS = 10
"""Calls of a channel after which what was delivered is marked."""
_MAX_PENDING = 10_000
"""Most pending deliveries of a channel that stay in memory, as tags. The next sweep takes the rest.
Events of acked chains do not: they are published page by page."""
_SHARDS_A_WORKER = 3
"""Shards that are swept at a time for each of the outbox's workers: more of its time is waiting."""


@dataclass
class SweepResult:
    """The result of a sweep."""

    chains: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    """Chains by reason; ``acked`` for those whose outstanding units are tolerated."""
    tolerated: int = 0  # chains acked with units outstanding
    events: int = 0  # published, and callbacks made
    events_pending: int = 0  # for the next sweep
    pending_since: int | None = None  # end of the earliest of these chains; ms since the epoch
    refused: int = 0  # those that a service refused for the first time, and callbacks given up
    problems: int = 0  # chains that could not be read or written; the next sweep tries again
    complete: bool = True  # False if time ran out before all due chains were judged
    stats: WriteStats = field(default_factory=WriteStats)

    def add(self, reports: Deliveries, chains: Sequence[Chain]) -> None:
        """Count what became of the reports of some chains on one channel."""
        self.events += len(chains) - len(reports.pending) - len(reports.refused)
        self.refused += reports.alerts

    def add_pending(self, *ended_at: int) -> None:
        """Count events that were not published, by the ends of their chains."""
        self.events_pending += len(ended_at)
        known = ended_at if self.pending_since is None else (*ended_at, self.pending_since)
        self.pending_since = min(known, default=None)


Ranks: TypeAlias = dict[str, tuple[bool, bool, int]]
"""Chains with a pending delivery on one channel. Tag to whether the delivery was refused before,
whether the chain failed, and its end: the lowest go first."""


class Sweeper:
    """One sweep of the table.

    Attributes:
        waiting: What is to be reported, by channel: no channel waits for another.
    """

    def __init__(self, writer: ChainWriter, outbox: Outbox) -> None:
        """Judge within the budget of the writer, and publish within that of the outbox."""
        self.writer, self.reporter, self.channels = writer, outbox.writer, outbox.channels
        count = outbox.workers.count
        self.workers = Workers(count * _SHARDS_A_WORKER if count > 1 else 1)
        # From the main thread all workers make calls; from a worker, it alone.
        self.outbox, self._own_outbox = (
            Outbox(outbox.writer, outbox.channels, workers=workers, breakers=outbox.breakers)
            for workers in (self.workers, None)
        )
        self.waiting: dict[str, Ranks] = {channel: {} for channel in self.channels}
        self.result = SweepResult(stats=writer.stats)
        self._lock = threading.Lock()

    def sweep(self) -> SweepResult:
        """Sweep all chains that are due: judge deadlines, then publish pending events.

        Deadlines take half of the time before events begin, and then turns with them.
        """
        half, began = self.writer.seconds_left() / 2, self.writer.now()
        judging = self._pages(self.writer, 0, self._judge)
        for _ in judging:
            if self.writer.seconds_left() < half:
                break
        if self.writer.resumes():
            # What waits for a callback is known before the first call of a bus that may be slow.
            for _ in self._pages(self.reporter, schema.DUE_SHARDS, self._look):
                pass
        turns = [self._report(channel) for channel in self.waiting]
        turns.append(self._pages(self.reporter, schema.DUE_SHARDS, self._announce))
        # Each minute another one first, as a turn may take all the time.
        turns = turns[:: -1 if self.writer.now() // 60_000 % 2 else 1]
        self._share_time({judging: self.writer.now() - began, **dict.fromkeys(turns, 0)})
        for ranks in self.waiting.values():
            self.result.add_pending(*(ended_at for *_, ended_at in ranks.values()))
        return self.result

    def _share_time(self, spent: dict[Iterator[bool], int]) -> None:
        """Let each go on that has taken the least time, until none has work, nor gets any."""
        idle: set[Iterator[bool]] = set()
        while waiting := [turn for turn in spent if turn not in idle]:
            turn = min(waiting, key=spent.__getitem__)
            began = self.writer.now()
            if next(turn, False):
                idle.clear()
            else:
                idle.add(turn)
            spent[turn] += self.writer.now() - began

    def _pages(
        self, step: ChainWriter, first: int, handle: Callable[[list[str]], bool]
    ) -> Iterator[bool]:
        """Handle a page of each shard, side by side, then the next, as long as there is time.

        ``handle`` returns False if the rest of its shard can wait for the next sweep.
        """
        now = step.now()

        def turn(pages: Iterator[list[str]]) -> bool:
            _check_time(step)
            tags = next(pages, None)
            return tags is not None and handle(tags)

        def pages_of(number: int) -> Iterator[list[str]]:
            # Each minute another shard is first, so none always waits for the others.
            shard = first + (now // 60_000 + number) % schema.DUE_SHARDS
            yield from step.store.due_pages(now, shard)

        shards = [*map(pages_of, range(schema.DUE_SHARDS))]
        while shards:
            try:
                more = self.workers.map(turn, shards)
            except UnavailableError as error:
                _raise_if_time_is_left(step, error)
                self.result.complete = self.result.complete and step is not self.writer
                return
            shards = [pages for pages, go_on in zip(shards, more, strict=True) if go_on]
            yield True

    def _judge(self, tags: list[str]) -> bool:
        """End the chains of a page whose deadline has passed."""
        chains, result = self._read(self.writer, tags), self.result
        with self._lock:
            result.chains += len(chains)
        problems: dict[str, str] = {}
        for before in chains:
            _check_time(self.writer)
            try:
                after = self.writer.expire(before)
            except Exception as error:  # noqa: BLE001 - the others are swept all the same
                problems[before.tag] = f"{type(error).__name__}: {error}"
                continue
            if after is None:
                continue
            with self._lock:
                if after.final and not before.final:
                    reason, _, _ = (after.reason or after.status).partition(":")
                    result.ended[reason] += 1
                    result.tolerated += after.tolerated
                    ended = {"status": after.status, "why": reason, "event_id": event_id(after)}
                    log_chain(logging.INFO, "chain ended", after.tag, **ended)
                self._add(after, after.due_channels(self.writer.now()))
        with self._lock:
            result.problems += len(problems)
        log_failures(logging.ERROR, "chains not ended", problems)
        return True

    def _look(self, tags: list[str]) -> bool:
        """Let the callbacks of a shard's first page wait for their turn."""
        chains = self._read(self.reporter, tags)
        with self._lock:
            for chain in chains:
                due = chain.due_channels(self.reporter.now())
                self._add(chain, [one for one in due if one != EVENT])
        return False

    def _announce(self, tags: list[str]) -> bool:
        """Publish the events of a page's acked chains; let all other reports wait.

        Those of failed chains name units, which takes long, and what is refused takes a call each.
        """
        chains = self._read(self.reporter, tags)
        due = {chain.tag: chain.due_channels(self.reporter.now()) for chain in chains}
        acked = [
            c
            for c in chains
            if c.status == "acked" and EVENT in due[c.tag] and not c.delivery.refused
        ]
        reports = self._own_outbox.publish(acked, EVENT)
        done = {chain.tag for chain in acked} - reports.pending.keys()
        with self._lock:
            self.result.chains += len(chains)
            self.result.add(reports, acked)
            for chain in chains:
                left = [one for one in due[chain.tag] if one != EVENT or chain.tag not in done]
                self._add(chain, left)
            return bool(done) or len(self.waiting.get(EVENT, ())) < _MAX_PENDING

    def _report(self, channel: str) -> Iterator[bool]:
        """Report ends slice by slice as long as the service answers; forget what is done.

        Yields False if no end waits now: a page may bring more.
        """
        # If time runs out before the marks, what is read together is reported again: not much.
        size = _CALLS * self.channels[channel].batch_size
        ranks = self.waiting[channel]
        tried: set[str] = set()
        while True:
            part = nsmallest(size, ranks.keys() - tried, key=ranks.__getitem__)
            tried.update(part)
            try:
                read = self._read(self.reporter, part) if part else []
            except UnavailableError as error:
                _raise_if_time_is_left(self.reporter, error)
                return
            now = self.reporter.now()
            chains = [chain for chain in read if channel in chain.due_channels(now)]
            reports = self.outbox.publish(chains, channel)
            self.result.add(reports, chains)
            for tag in part:
                if tag not in reports.pending:
                    del ranks[tag]
            if chains and len(reports.pending) == len(chains):
                return
            yield bool(part)

    def _read(self, step: ChainWriter, tags: Sequence[str]) -> list[Chain]:
        """Read the valid chains, with retries, within the time of a step."""
        problems: dict[str, str] = {}

        def on_invalid(error: NotAChainError) -> None:
            problems[str(error.tag)] = f"{type(error).__name__}: {error}"

        chains = step.read(tags, on_invalid, attempts=_READ_ATTEMPTS)
        with self._lock:
            self.result.problems += len(problems)
        log_failures(logging.ERROR, "chains not read", problems)
        return list(chains.values())

    def _add(self, chain: Chain, channels: Sequence[str]) -> None:
        """Let a chain wait on the channels on which its end is to be reported."""
        ended_at = chain.ended_at or 0
        for channel in self.waiting.keys() & channels:
            ranks = self.waiting[channel]
            if len(ranks) < _MAX_PENDING or chain.tag in ranks:
                ranks[chain.tag] = (
                    channel in chain.delivery.refusals,
                    chain.status == "failed",
                    ended_at,
                )
            else:
                self.result.add_pending(ended_at)


def _check_time(step: ChainWriter) -> None:
    if not step.has_time():
        raise UnavailableError(TimeoutError(NO_TIME))


def _raise_if_time_is_left(step: ChainWriter, error: UnavailableError) -> None:
    if step.has_time():
        raise error.cause from error
