"""The sweeper: fails chains whose deadline has passed and publishes pending events.

DynamoDB's TTL is not a timer: it may be days late. A sparse index holds the time at which to look
at each chain. The conditional write decides whether the deadline has really passed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from xorack.acker.chain_writer import ChainWriter, WriteStats
from xorack.acker.outbox import Outbox
from xorack.acker.parallel import map_parallel
from xorack.acker.reading import read_valid
from xorack.core.chain import Chain
from xorack.core.errors import NotAChain, shown
from xorack.core.ports import Unavailable
from xorack.core.transitions import expire

__all__ = ["SweepResult", "Sweeper"]

_LOG = logging.getLogger("xorack")
_READ_ATTEMPTS = 5
"""After some 30 s the table counts as unavailable: the next sweep tries again."""


@dataclass
class SweepResult:
    """The result of a sweep.

    Attributes:
        chains: Chains that were read.
        ended: Chains ended, by reason.
        events: Events published.
        events_pending: Events that could not be published.
        problems: Chains that could not be read or written; the next sweep tries again.
        complete: False if time ran out before all due chains were read.
        stats: Write statistics.
    """

    chains: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    events: int = 0
    events_pending: int = 0
    problems: int = 0
    complete: bool = True
    stats: WriteStats = field(default_factory=WriteStats)


class Sweeper:
    """Sweeps the table."""

    def __init__(self, writer: ChainWriter, outbox: Outbox, *, workers: int = 8) -> None:
        """Use these services.

        Args:
            writer: Writes chains. The ``time_left`` of its retry policy bounds a sweep.
            outbox: Publishes events.
            workers: Chains that are written at a time.
        """
        self.writer = writer
        self.outbox = outbox
        self.workers = workers

    def sweep(self) -> SweepResult:
        """Sweep all chains that are due.

        Raises:
            Exception: The index or the table cannot be read.
        """
        result = SweepResult(stats=self.writer.stats)
        for tags in self.writer.store.due_pages(self.writer.clock()):
            if self.writer.retry_policy.time_left() <= 0:
                result.complete = False
                break
            self._sweep_page(tags, result)
        return result

    def _sweep_page(self, tags: list[str], result: SweepResult) -> None:
        chains = self._read(tags, result)
        result.chains += len(chains)
        pending = []
        after_each = map_parallel(self._expire, chains, self.workers)
        for before, after in zip(chains, after_each, strict=True):
            if isinstance(after, Exception):
                result.problems += 1
                continue
            if after is None:
                continue
            if after.final and not before.final:
                result.ended[after.reason or after.status] += 1
            if after.event_pending:
                pending.append(after)
        failures = self.outbox.publish(pending)
        result.events += len(pending) - len(failures)
        result.events_pending += len(failures)

    def _read(self, tags: list[str], result: SweepResult) -> list[Chain]:
        def on_invalid(error: NotAChain) -> None:
            _log_problem("chain not read", str(error.tag), error)
            result.problems += 1

        try:
            return read_valid(self._read_with_retries, tags, on_invalid)
        except Unavailable as error:
            raise error.cause from error

    def _read_with_retries(self, tags: Sequence[str]) -> dict[str, Chain]:
        retry = self.writer.retry_policy.start()
        while True:
            try:
                return self.writer.store.read(tags)
            except Unavailable:
                if retry.attempt >= _READ_ATTEMPTS or not retry.again():
                    raise

    def _expire(self, chain: Chain) -> Chain | Exception | None:
        """Fail a chain if its deadline has passed; return the error if that fails."""
        try:
            return self.writer.change(chain, lambda stored: expire(stored, self.writer.clock()))
        except Exception as error:  # noqa: BLE001 - the other chains are swept all the same
            _log_problem("chain not ended", chain.tag, error)
            return error


def _log_problem(message: str, tag: str, error: Exception) -> None:
    _LOG.error(message, extra={"tag": shown(tag), "why": f"{type(error).__name__}: {error}"})
