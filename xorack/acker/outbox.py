"""The outbox: publishes pending events of finished chains and marks them as published.

The state is written first, with the event still pending. Every reader of a pending event publishes
it, so a crash in between loses none: docs/adr/0003-pending-events.md. So nothing here has to
succeed: what is not published stays pending, and the sweeper publishes it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from xorack.acker.breaker import CircuitBreaker
from xorack.acker.chain_writer import ChainWriter
from xorack.acker.log import log_failures
from xorack.acker.parallel import Workers
from xorack.core.chain import Chain
from xorack.core.ports import NO_TIME, Conflict, Publisher
from xorack.core.transitions import mark_published

__all__ = ["Outbox"]


class Outbox:
    """Publishes pending events.

    Attributes:
        writer: The store of the marks. The ``time_left`` of its retry policy bounds everything.
    """

    def __init__(
        self,
        writer: ChainWriter,
        publisher: Publisher,
        *,
        workers: Workers | None = None,
        breaker: CircuitBreaker | None = None,
    ) -> None:
        """Publish through a publisher.

        Args:
            writer: Its store, statistics and time.
            publisher: The channel for events.
            workers: The threads of calls; by default one call after the other.
            breaker: Holds calls back while the channel fails.
        """
        self.writer = writer
        self.publisher = publisher
        self.workers = workers or Workers()
        self.breaker = breaker or CircuitBreaker()

    def publish(self, chains: Sequence[Chain]) -> dict[str, str]:
        """Publish pending events and mark them as published, as long as there is time.

        Args:
            chains: Finished chains whose events are pending.

        Returns:
            The events that are still pending: tag to reason.
        """
        size = self.publisher.batch_size
        batches = [chains[at : at + size] for at in range(0, len(chains), size)]
        failures: dict[str, str] = {}
        for failed in self.workers.map(self._publish_batch, batches):
            failures.update(failed)
        log_failures(logging.ERROR, "events not published", failures)
        published = [chain for chain in chains if chain.tag not in failures]
        reasons = self.workers.map(self._mark_published, published)
        unmarked = {chain.tag: why for chain, why in zip(published, reasons, strict=True) if why}
        log_failures(logging.WARNING, "events still marked as pending", unmarked)
        return failures

    def _publish_batch(self, chains: Sequence[Chain]) -> dict[str, str]:
        """Publish the events of one call; return the failures."""
        if self.writer.retry_policy.time_left() <= 0:
            return dict.fromkeys([chain.tag for chain in chains], NO_TIME)
        if not self.breaker.allows():
            return dict.fromkeys([chain.tag for chain in chains], "held back: earlier calls failed")
        failures = self.publisher.publish(chains)
        if len(failures) < len(chains) or {*failures.values()} != {NO_TIME}:
            self.breaker.record(success=len(failures) < len(chains))
        return failures

    def _mark_published(self, chain: Chain) -> str | None:
        """Mark an event as published, in one attempt; return the reason if that fails.

        After a failure, the event is published once more, with the same id.
        """
        if self.writer.retry_policy.time_left() <= 0:
            return NO_TIME
        self.writer.stats.add(writes=1)
        try:
            self.writer.store.write(chain, mark_published(chain))
        except Conflict:
            # Mostly another publisher was quicker.
            self.writer.stats.add(conflicts=1)
        except Exception as error:  # noqa: BLE001 - see above
            return f"{type(error).__name__}: {error}"
        return None
