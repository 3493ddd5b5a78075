"""Numbers of chains while the jobs run: opened ones from the table, ended ones from events."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.local.deploy import drain

__all__ = ["ChainMonitor", "Progress"]

_PAUSE_SECONDS = 0.2


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
    """A context manager that counts chains in two threads.

    Args:
        store: The chains' table, read for the opened chains: they have no events.
        events_queue_url: A queue that is subscribed to the events.
        sqs: An SQS client.
        show: Called when the numbers change, by one thread at a time.

    Attributes:
        progress: The numbers so far.
        events: The events so far as EventBridge delivered them, by tag.
        expected: The number of chains that there will be. The table is not read any more once
            they are all open.
    """

    def __init__(
        self,
        store: DynamoDBStore,
        events_queue_url: str,
        sqs: Any,
        show: Callable[[Progress], object] = lambda _: None,
    ) -> None:
        self._store = store
        self._stop = threading.Event()
        self._events = drain(events_queue_url, sqs, wait_seconds=math.inf, until=self._stop.is_set)
        self._show = show
        self._lock = threading.Lock()
        self._problem: Exception | None = None
        self.progress = Progress()
        self.events: dict[str, dict[str, Any]] = {}
        self.expected: int | None = None
        self._threads = [
            threading.Thread(target=self._run, args=(work,), daemon=True)
            for work in (self._receive_events, self._scan_table)
        ]

    def __enter__(self) -> ChainMonitor:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=5)

    def wait(self, patience_seconds: float, ended: int | None = None) -> bool:
        """Wait until chains have ended and no event is pending.

        Args:
            patience_seconds: Gives up after so long without a change.
            ended: The number of chains to wait for; default: the expected ones.

        Returns:
            Whether they have ended.

        Raises:
            Exception: The error that stopped one of the threads.
        """
        awaited = (self.expected or 0) if ended is None else ended
        before, deadline = self.progress, time.monotonic() + patience_seconds
        # The consumer publishes an event before it marks it as published.
        while self.progress.ended < awaited or self._has_pending_events():
            if self._problem is not None:
                raise self._problem
            if self.progress != before:
                before, deadline = self.progress, time.monotonic() + patience_seconds
            elif time.monotonic() >= deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
        return True

    def _has_pending_events(self) -> bool:
        return any(chain.event_pending for chain in self._store.scan())

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as problem:  # noqa: BLE001 - raised again in the thread that waits
            self._problem = problem

    def _update(self, *, opened: int = 0, acked: int = 0, failed: int = 0) -> None:
        with self._lock:
            now = self.progress
            acked, failed = now.acked + acked, now.failed + failed
            # A chain with an event was opened, whatever the latest scan found.
            changed = Progress(max(opened, now.opened, acked + failed), acked, failed)
            if changed != now:
                self.progress = changed
                self._show(changed)

    def _receive_events(self) -> None:
        for event in self._events:
            detail = event["detail"]
            if detail["tag"] not in self.events:  # delivery is at least once
                self.events[detail["tag"]] = event
                self._update(**{detail["status"]: 1})

    def _scan_table(self) -> None:
        while not self._stop.is_set():
            if self.expected is not None and self.progress.opened >= self.expected:
                return
            begun = time.monotonic()
            self._update(opened=sum(chain.created for chain in self._store.scan()))
            # A large table is scanned less often, or the scan would become the load.
            self._stop.wait(max(_PAUSE_SECONDS, 4 * (time.monotonic() - begun)))
