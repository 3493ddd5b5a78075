"""Numbers of chains while the jobs run: opened ones from the table, ended ones from events."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.local.deploy import drain

__all__ = ["ChainMonitor", "Progress"]

_PAUSE_SECONDS = 0.2
_RECEIVE_SECONDS = 0.5


@dataclass(frozen=True)
class Progress:
    """Numbers of chains.

    Attributes:
        opened: Created chains, the ended ones included.
        acked: Chains with an event ``acked``.
        failed: Chains with an event ``failed``.
    """

    opened: int = 0
    acked: int = 0
    failed: int = 0

    @property
    def ended(self) -> int:
        """Chains with an event."""
        return self.acked + self.failed


class ChainMonitor:
    """A context manager that counts chains in a thread.

    Args:
        store: The chains' table, read for the opened chains: they have no events.
        events_queue_url: A queue that is subscribed to the events.
        sqs: An SQS client.
        show: Called in the thread when the numbers change.

    Attributes:
        progress: The numbers so far.
        events: The events so far as EventBridge delivered them, by tag.
        expected: The number of chains that there will be; once all are open, the monitor does not
            read the table any more.
    """

    def __init__(
        self,
        store: DynamoDBStore,
        events_queue_url: str,
        sqs: Any,
        show: Callable[[Progress], object] = lambda _: None,
    ) -> None:
        self.progress = Progress()
        self.events: dict[str, dict[str, Any]] = {}
        self.expected: int | None = None
        self._store = store
        self._events_queue_url = events_queue_url
        self._sqs = sqs
        self._show = show
        self._stop = threading.Event()
        self._problem: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ChainMonitor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=5)

    def wait(self, patience_seconds: float, ended: int | None = None) -> bool:
        """Wait until chains have ended and no event is pending.

        Args:
            patience_seconds: Gives up after so long without a change.
            ended: The number of chains to wait for; default: the expected ones.

        Returns:
            Whether they have ended.

        Raises:
            Exception: The error that stopped the thread.
        """
        awaited = (self.expected or 0) if ended is None else ended
        before, deadline = self.progress, time.monotonic() + patience_seconds
        # The consumer publishes an event before it marks it as published.
        while self.progress.ended < awaited or any(c.event_pending for c in self._store.scan()):
            if self._problem is not None:
                raise self._problem
            if self.progress != before:
                before, deadline = self.progress, time.monotonic() + patience_seconds
            elif time.monotonic() >= deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
        return True

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._receive_events()
                begun = time.monotonic()
                self._update()
                # A large table is scanned less often, or the scan would become the load.
                self._stop.wait(max(_PAUSE_SECONDS, 4 * (time.monotonic() - begun)))
        except Exception as problem:  # noqa: BLE001 - raised again in the thread that waits
            self._problem = problem

    def _receive_events(self) -> None:
        end = time.monotonic() + _RECEIVE_SECONDS
        events = drain(self._events_queue_url, self._sqs, until=lambda: time.monotonic() > end)
        for event in events:
            self.events[event["detail"]["tag"]] = event

    def _update(self) -> None:
        opened = self.progress.opened
        if self.expected is None or opened < self.expected:
            opened = max(opened, sum(chain.created for chain in self._store.scan()))
        statuses = Counter(event["detail"]["status"] for event in self.events.values())
        # A chain with an event was opened, whatever the latest scan found.
        opened = max(opened, len(self.events))
        progress = Progress(opened, statuses["acked"], statuses["failed"])
        if progress != self.progress:
            self.progress = progress
            self._show(progress)
