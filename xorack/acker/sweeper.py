"""The sweeper: ends chains whose deadline has passed, and makes pending reports.

DynamoDB's TTL is not a timer, because it may be days late. So a sparse index holds the time at
which the sweeper has to read each chain. Deadlines have shards of their own. Each set of pending
reports also has shards of its own (`xorack.aws.schema.places`), so that an outage of one service
delays only its own reports. The conditional write decides whether the deadline has really passed.

The sweeper reads page by page and keeps nothing in memory. A page has 20 chains without marks.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf, isinf
from typing import Any

from xorack.acker.chain_writer import ChainWriter, WriteStats
from xorack.acker.outbox import Outbox, ReportResults
from xorack.acker.parallel import Workers
from xorack.aws import schema
from xorack.aws.log import log_chain, log_failures
from xorack.core.chain import EVENT, PARENTS, Chain
from xorack.core.errors import NotAChainError, UnavailableError
from xorack.core.event import event_id
from xorack.core.ports import DueCount
from xorack.core.transitions import PUBLISH_GRACE_MS

_READ_ATTEMPTS = 5
"""The attempts of a read in a row, after which the table counts as unavailable."""
_SHARDS_A_WORKER = 3
"""The shards swept at a time for each worker of the outbox. Sweeping consists mostly of waiting."""
_REPORTS, _COUNTING = 1 / 2, 1 / 30
"""The share of a sweep's time for all reports, and the share for counting after the last kind."""


@dataclass
class SweepResult:
    """The result of a sweep."""

    chains: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    """The ended chains by reason; ``acked`` for chains whose outstanding units are tolerated."""
    tolerated: int = 0  # chains that were acked with units outstanding
    events: int = 0  # published events and callbacks that were made
    events_pending: int = 0  # reports left to the next sweep
    pending_since: int | None = None  # the earliest end of these chains, in ms since the epoch
    dropped: int = 0  # ends that are older than the retention and have no parent any more
    refused: int = 0  # reports refused for the first time, and callbacks that were given up
    problems: int = 0  # chains that could not be read or written; the next sweep retries
    complete: bool = True  # False if time ran out before all due chains were checked
    stats: WriteStats = field(default_factory=WriteStats)

    def add(self, reports: ReportResults, chains: Sequence[Chain]) -> None:
        """Add the results of one kind of report for some chains."""
        self.events += len(chains) - len(reports.pending) - len(reports.refused)
        self.refused += reports.alerts

    def add_pending(self, chains: int, since: int | None) -> None:
        """Add the number of reports that were not made, and the earliest end of their chains."""
        self.events_pending += chains
        times = [time for time in (self.pending_since, since) if time is not None]
        self.pending_since = min(times, default=None)


class _PartIsOver(Exception):
    """A part of the sweep has used up its time within a page. The page is read again later."""


@dataclass
class _Shard:
    """A partition of the index, and how far the sweep has read it.

    Attributes:
        after: The key after which the next page begins.
        is_read: Whether all due chains were handled.
        is_blocked: Whether the service failed. The next sweep continues then.
    """

    number: int
    after: Any = None
    is_read: bool = False
    is_blocked: bool = False


class _Walk:
    """Reads the due chains of some partitions of the index in pages, several shards at a time."""

    def __init__(self, step: ChainWriter, partitions: Iterable[range]) -> None:
        self.step, self.now = step, step.now()
        minute = self.now // 60_000
        # Each minute a different shard comes first, so that no shard always waits for the other
        # shards.
        self.shards = [
            _Shard(part.start + (minute + number) % len(part))
            for part in partitions
            for number in range(len(part))
        ]

    def left(self) -> list[_Shard]:
        return [shard for shard in self.shards if not shard.is_read and not shard.is_blocked]

    def run(
        self,
        workers: Workers,
        handle: Callable[[list[str]], bool],
        reserve: float,
        rounds: float = inf,
    ) -> None:
        """Handle pages until all are read or only `reserve` seconds are left.

        Args:
            workers: The threads. In each round, they handle a page of each shard.
            handle: Takes the tags of a page. Returns False if the rest of the shard has to wait for
                the next sweep.
            reserve: The seconds that must be left.
            rounds: The most rounds.

        Raises:
            Exception: The table does not answer, although time is left.
        """

        def turn(shard: _Shard) -> None:
            if self.step.seconds_left() <= reserve:
                return
            tags, after = self.step.store.due_page(self.now, shard.number, shard.after)
            if tags:
                shard.is_blocked = not handle(tags)
            shard.after, shard.is_read = after, after is None and not shard.is_blocked

        try:
            while (left := self.left()) and self.step.seconds_left() > reserve and rounds:
                workers.map(turn, left)
                rounds -= 1
        except _PartIsOver:
            return
        except UnavailableError as error:
            if self.step.has_time():
                raise error.cause from error

    def count_left(self, workers: Workers) -> DueCount:
        """Count the due chains that were on no page."""
        unread = [shard for shard in self.shards if not shard.is_read]

        def count(shard: _Shard) -> DueCount:
            if shard.is_blocked and shard.after is None:
                return DueCount(0, None)
            return self.step.store.count_due(self.now, shard.number, shard.after)

        counts = workers.map(count, unread)
        times = [count.first_due_at for count in counts if count.first_due_at is not None]
        return DueCount(sum(count.chains for count in counts), min(times, default=None))


class Sweeper:
    """One sweep of the table."""

    def __init__(self, writer: ChainWriter, outbox: Outbox) -> None:
        """Use the writer's time budget for deadlines, and the outbox's time budget for reports."""
        self.writer, self.reporter = writer, outbox.writer
        callbacks = sorted(outbox.publishers.keys() - {EVENT})
        self.reports = [PARENTS, *callbacks, *outbox.publishers.keys() & {EVENT}]
        count = outbox.workers.count
        self.workers = Workers(count * _SHARDS_A_WORKER if count > 1 else 1)
        # The sweeper's workers call this outbox, so the outbox makes its calls in their threads.
        self.outbox = Outbox(outbox.writer, outbox.publishers, breakers=outbox.breakers)
        self._parents = Outbox(
            outbox.writer, outbox.publishers, workers=self.workers, breakers=outbox.breakers
        )
        self.result = SweepResult(stats=writer.stats)
        self.began = writer.now()
        self._lock = threading.Lock()

    def sweep(self) -> SweepResult:
        """End the overdue chains. Then make the reports to parents, the callbacks and the events.

        Each part has a share of the time. At the end, deadlines get the time that is left.
        """
        deadlines = _Walk(self.writer, [range(schema.DUE_SHARDS)])
        self._judge_until(deadlines, _share(self.writer, _REPORTS))
        for number, report in enumerate(self.reports, 1):
            later = len(self.reports) - number
            self._report(report, _share(self.reporter, later / (later + 1) or _COUNTING))
        self._judge_until(deadlines, 0)
        self.result.complete = self.result.complete and not deadlines.left()
        return self.result

    def _report(self, report: str, reserve: float) -> None:
        """Make the pending reports of one kind, and count the reports that stay pending."""
        places = [place.partitions() for place in schema.places_of(report)]
        walk = _Walk(self.reporter, places)
        if report == PARENTS:
            self._report_to_parents(walk, reserve)
        else:
            walk.run(self.workers, partial(self._publish, report), reserve)
        self.result.complete = self.result.complete and not walk.left()
        try:
            chains, due_at = walk.count_left(self.workers)
        except UnavailableError as error:
            if self.reporter.has_time():
                raise error.cause from error
            chains, due_at = 1, None  # at least one report is left, and there was no time to count
        if chains:
            self.result.add_pending(chains, due_at and due_at - PUBLISH_GRACE_MS)

    def _report_to_parents(self, walk: _Walk, reserve: float) -> None:
        """Report ends to parents. Pages of all shards are reported together, to share writes."""
        ends: list[Chain] = []

        def collect(tags: list[str]) -> bool:
            ends.extend(self._read(self.reporter, tags))
            return True

        while walk.left() and self.reporter.seconds_left() > reserve:
            walk.run(self.workers, collect, reserve, rounds=1)
            self._publish_read(PARENTS, ends, self._parents)
            ends.clear()

    def _publish(self, report: str, tags: list[str]) -> bool:
        """Make the reports of a page; return False if the service fails."""
        return self._publish_read(report, self._read(self.reporter, tags), self.outbox)

    def _publish_read(self, report: str, read: Sequence[Chain], outbox: Outbox) -> bool:
        now = self.reporter.now()
        chains = [chain for chain in read if report in chain.due_reports(now)]
        reports = outbox.publish(chains, report)
        pending = [chain for chain in chains if chain.tag in reports.pending]
        with self._lock:
            self.result.chains += sum(self._counts(chain, report) for chain in read)
            self.result.dropped += reports.dropped
            if report != PARENTS:
                self.result.add(reports, chains)
            for parent in reports.parents:
                self.result.ended[parent.status if parent.status == "acked" else "child"] += 1
            since = min((chain.ended_at or 0 for chain in pending), default=None)
            self.result.add_pending(len(pending), since)
            if any(failure.kind == "no_time" for failure in reports.pending.values()):
                self.result.complete = False
        failed = any(failure.kind == "outage" for failure in reports.pending.values())
        return not failed or len(pending) < len(chains)

    def _counts(self, chain: Chain, report: str) -> bool:
        """Return whether to count a chain: it counts once, and not if this sweep ended it."""
        return chain.pending_reports[:1] == (report,) and (chain.ended_at or 0) < self.began

    def _judge_until(self, walk: _Walk, reserve: float) -> None:
        walk.run(self.workers, partial(self._judge, reserve), reserve)

    def _judge(self, reserve: float, tags: list[str]) -> bool:
        """End the chains of a page whose deadline has passed."""
        chains, result = self._read(self.writer, tags), self.result
        with self._lock:
            result.chains += len(chains)
        problems: dict[str, str] = {}
        for before in chains:
            if self.writer.seconds_left() <= reserve:
                raise _PartIsOver
            try:
                after = self.writer.expire(before)
            except Exception as error:  # noqa: BLE001 - the other chains are still swept
                problems[before.tag] = f"{type(error).__name__}: {error}"
                continue
            if after is None or not after.final or before.final:
                continue
            with self._lock:
                reason, _, _ = (after.reason or after.status).partition(":")
                result.ended[reason] += 1
                result.tolerated += after.tolerated
                ended = {"status": after.status, "why": reason, "event_id": event_id(after)}
                log_chain(logging.INFO, "chain ended", after.tag, **ended)
        with self._lock:
            result.problems += len(problems)
        log_failures(logging.ERROR, "chains not ended", problems)
        return True

    def _read(self, step: ChainWriter, tags: Sequence[str]) -> list[Chain]:
        """Read the valid chains with retries, within the time of a step."""
        problems: dict[str, str] = {}

        def on_invalid(error: NotAChainError) -> None:
            problems[str(error.tag)] = f"{type(error).__name__}: {error}"

        chains = step.read(tags, on_invalid, attempts=_READ_ATTEMPTS, marks=False)
        with self._lock:
            self.result.problems += len(problems)
        log_failures(logging.ERROR, "chains not read", problems)
        return list(chains.values())


def _share(step: ChainWriter, share: float) -> float:
    """Return a share of the seconds that a step has left. The next part must leave this time."""
    left = step.seconds_left()
    return 0 if isinf(left) else left * share
