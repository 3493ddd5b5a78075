"""The outbox: reports the ends of chains, and marks what was delivered.

An end is an event on a bus, and a result for whoever waits for the chain. The state is written
first, with the deliveries still pending. Every reader of a pending delivery makes it, so a crash in
between loses none: docs/adr/0003-pending-events.md. So nothing here has to succeed: what is not
delivered stays pending, and the sweeper delivers it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from xorack.acker.breaker import CircuitBreaker
from xorack.acker.chain_writer import ChainWriter
from xorack.acker.parallel import Workers
from xorack.aws.log import log_failures
from xorack.core.chain import EVENT, Chain
from xorack.core.errors import ConflictError
from xorack.core.ports import NO_TIME, Publisher
from xorack.core.transitions import mark_delivered

__all__ = ["Outbox"]


class Outbox:
    """Reports the ends of chains.

    Attributes:
        writer: The store of the marks. The ``time_left`` of its retry policy bounds everything.
    """

    def __init__(
        self,
        writer: ChainWriter,
        channels: Mapping[str, Publisher],
        *,
        workers: Workers | None = None,
        breakers: Mapping[str, CircuitBreaker] | None = None,
    ) -> None:
        """Report through channels.

        Args:
            writer: Its store, statistics and time.
            channels: The channels by name, as in `Chain.undelivered`.
            workers: The threads of calls; by default one call after the other.
            breakers: Hold calls of a channel back while it fails.
        """
        self.writer = writer
        self.channels = channels
        self.workers = workers or Workers()
        self.breakers = breakers or {name: CircuitBreaker() for name in channels}

    def publish(self, chains: Sequence[Chain]) -> dict[str, str]:
        """Report ends and mark what was delivered, as long as there is time.

        Args:
            chains: Finished chains with pending deliveries. Acked ones go first: it takes long to
                name the outstanding units of failed ones.

        Returns:
            The chains of which something is still pending: tag to reason.
        """
        waiting: dict[str, list[Chain]] = {}
        for chain in sorted(chains, key=lambda chain: chain.status == "failed"):
            for channel in chain.undelivered:
                waiting.setdefault(channel, []).append(chain)
        failures: dict[str, str] = {}
        delivered: dict[str, list[str]] = {}
        for channel in sorted(waiting):
            failed = self._deliver(channel, waiting[channel])
            failures.update(failed)
            for chain in waiting[channel]:
                if chain.tag not in failed:
                    delivered.setdefault(chain.tag, []).append(channel)
        changed = [(chain, delivered[chain.tag]) for chain in chains if chain.tag in delivered]
        reasons = self.workers.map(self._mark_delivered, changed)
        assert all(chain.final for chain in chains), "only ends are reported"
        assert failures.keys() <= {chain.tag for chain in chains}
        unmarked = {chain.tag: why for (chain, _), why in zip(changed, reasons, strict=True) if why}
        log_failures(logging.WARNING, "events still marked as pending", unmarked)
        return failures

    def _deliver(self, channel: str, chains: Sequence[Chain]) -> dict[str, str]:
        """Report ends on one channel; return the failures."""
        if channel not in self.channels:
            # The command line has no channel to resume; the sweeper has, if its settings allow it.
            failures = dict.fromkeys([chain.tag for chain in chains], "this acker has no channel")
            log_failures(logging.INFO, f"{channel}: not resumed", failures)
            return failures
        size = self.channels[channel].batch_size
        batches = [(channel, chains[at : at + size]) for at in range(0, len(chains), size)]
        failures = {}
        for failed in self.workers.map(self._publish_batch, batches):
            failures.update(failed)
        kind = "events not published" if channel == EVENT else f"{channel}: not resumed"
        log_failures(logging.ERROR, kind, failures)
        return failures

    def _publish_batch(self, batch: tuple[str, Sequence[Chain]]) -> dict[str, str]:
        """Make one call of a channel; return the failures."""
        channel, chains = batch
        if self.writer.retry_policy.time_left() <= 0:
            return dict.fromkeys([chain.tag for chain in chains], NO_TIME)
        breaker = self.breakers[channel]
        if not breaker.allows():
            return dict.fromkeys([chain.tag for chain in chains], "held back: earlier calls failed")
        failures = self.channels[channel].publish(chains)
        if len(failures) < len(chains) or {*failures.values()} != {NO_TIME}:
            breaker.record(success=len(failures) < len(chains))
        return failures

    def _mark_delivered(self, delivery: tuple[Chain, Sequence[str]]) -> str | None:
        """Mark deliveries of a chain, in one attempt; return the reason if that fails.

        After a failure, they are made once more: an event has the same id then.
        """
        chain, channels = delivery
        if self.writer.retry_policy.time_left() <= 0:
            return NO_TIME
        self.writer.stats.add(writes=1)
        try:
            self.writer.store.write(chain, mark_delivered(chain, channels))
        except ConflictError:
            # Mostly another publisher was quicker.
            self.writer.stats.add(conflicts=1)
        except Exception as error:  # noqa: BLE001 - see above
            return f"{type(error).__name__}: {error}"
        return None
