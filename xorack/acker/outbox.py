"""The outbox: publishes pending events of finished chains and marks them as published.

The state is written first, with the event still pending. Every reader of a pending event publishes
it, so a crash in between loses none: docs/adr/0003-pending-events.md.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from xorack.acker.chain_writer import ChainWriter
from xorack.acker.parallel import map_parallel
from xorack.core.chain import Chain
from xorack.core.errors import shown
from xorack.core.ports import Publisher
from xorack.core.transitions import mark_published

__all__ = ["Outbox"]

_LOG = logging.getLogger("xorack")


class Outbox:
    """Publishes pending events."""

    def __init__(self, writer: ChainWriter, publisher: Publisher, *, workers: int = 1) -> None:
        """Publish through a publisher.

        Args:
            writer: Marks events as published.
            publisher: The channel for events.
            workers: Chains that are written at a time.
        """
        self.writer = writer
        self.publisher = publisher
        self.workers = workers

    def publish(self, chains: Sequence[Chain]) -> dict[str, str]:
        """Publish pending events and mark them as published.

        Args:
            chains: Finished chains whose events are pending.

        Returns:
            The events that are still pending: tag to reason.
        """
        if not chains:
            return {}
        failures = self.publisher.publish(chains)
        for tag, reason in failures.items():
            _LOG.error("event not published", extra={"tag": shown(tag), "why": reason})
        published = [chain for chain in chains if chain.tag not in failures]
        map_parallel(self._mark_published, published, self.workers)
        return failures

    def _mark_published(self, published: Chain) -> None:
        def change(chain: Chain) -> Chain:
            """Change the chain unless it is a later one of the same tag."""
            same_event = (chain.first_seen_at, chain.ended_at) == (
                published.first_seen_at,
                published.ended_at,
            )
            return mark_published(chain) if chain.event_pending and same_event else chain

        try:
            self.writer.change(published, change)
        except Exception as error:  # noqa: BLE001 - it is published once more, with the same id
            extra = {"tag": shown(published.tag), "why": f"{type(error).__name__}: {error}"}
            _LOG.warning("event still marked as pending", extra=extra)
