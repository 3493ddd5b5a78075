"""What becomes of the chains while the jobs run: seen in the table, told by events."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from xorack.aws.dynamodb_store import DynamoDBStore

__all__ = ["Ended", "Seen", "Watcher"]

_EVENTS = 10
_PAUSE_SECONDS = 0.4


@dataclass(frozen=True)
class Ended:
    """A chain's end, as its event told it.

    Attributes:
        tag: The chain.
        status: ``acked`` or ``failed``.
        reason: Why it failed.
        started: Units started.
        finished: Units finished.
        outstanding: Ids of the outstanding units, 16 hex digits each.
        event: The whole event, as EventBridge delivered it: JSON.
    """

    tag: str
    status: str
    reason: str | None = None
    started: int = 0
    finished: int = 0
    outstanding: tuple[str, ...] = ()
    event: str = ""


@dataclass(frozen=True)
class Seen:
    """How many chains there are.

    Attributes:
        opened: Created so far, the ended ones included.
        acked: Told as acked.
        failed: Told as failed.
    """

    opened: int = 0
    acked: int = 0
    failed: int = 0

    @property
    def ended(self) -> int:
        """Told as acked or failed."""
        return self.acked + self.failed


class Watcher:
    """Counts chains in two threads, until it is left: a context manager.

    Args:
        store: The chains' table, read for those that were opened: events tell of ends only.
        events_queue_url: A queue that is subscribed to the events.
        sqs: An SQS client.
        tell: Called, from either thread but never twice at once, when the numbers change.
    """

    def __init__(
        self,
        store: DynamoDBStore,
        events_queue_url: str,
        sqs: Any,
        tell: Callable[[Seen], object] = lambda _: None,
    ) -> None:
        self._store = store
        self._url = events_queue_url
        self._sqs = sqs
        self._tell = tell
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._problem: Exception | None = None
        self._expected: int | None = None
        self.seen = Seen()
        self.ended: dict[str, Ended] = {}
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), daemon=True)
            for work in (self._hear, self._look)
        ]

    def __enter__(self) -> Watcher:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=5)

    def expect(self, chains: int) -> None:
        """Say how many chains there will be: once they are all seen, the table is left alone.

        Args:
            chains: How many.
        """
        self._expected = chains

    def wait(self, patience_seconds: float, ended: int | None = None) -> bool:
        """Wait until the expected chains were told as ended, and no event is noted as owed.

        Args:
            patience_seconds: How long to wait for another one, while none comes.
            ended: How many must have ended; None for all that are expected.

        Returns:
            Whether they were.

        Raises:
            Exception: What stopped the watching.
        """
        with self._changed:
            awaited = (self._expected or 0) if ended is None else ended
            until, before = time.monotonic() + patience_seconds, self.seen
            while self.seen.ended < awaited:
                if self._problem is not None:
                    raise self._problem
                if self.seen != before:
                    until, before = time.monotonic() + patience_seconds, self.seen
                if time.monotonic() >= until:
                    return False
                self._changed.wait(timeout=0.5)
        # The consumer publishes first and crosses off then: it is still at it.
        until = time.monotonic() + patience_seconds
        while any(chain.event_pending for chain in self._store.scan()):
            if time.monotonic() >= until:
                return False
            time.sleep(_PAUSE_SECONDS)
        return True

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as problem:  # noqa: BLE001 - raised again in the thread that waits
            with self._changed:
                self._problem = self._problem or problem
                self._changed.notify_all()

    def _update(self, *, opened: int = 0) -> None:
        with self._changed:
            acked = sum(one.status == "acked" for one in self.ended.values())
            failed = len(self.ended) - acked
            # A chain whose end was told was opened, whatever the last look at the table saw.
            opened = max(opened, self.seen.opened, len(self.ended))
            seen = Seen(opened, acked, failed)
            if seen != self.seen:
                self.seen = seen
                self._tell(seen)
                self._changed.notify_all()

    def _hear(self) -> None:
        while not self._stop.is_set():
            answer = self._sqs.receive_message(
                QueueUrl=self._url, MaxNumberOfMessages=_EVENTS, WaitTimeSeconds=1
            )
            messages = answer.get("Messages", [])
            if not messages:
                continue
            for message in messages:
                event = json.loads(message["Body"])
                detail = event["detail"]
                # At least once: a second copy says the same.
                self.ended[detail["tag"]] = Ended(
                    detail["tag"],
                    detail["status"],
                    detail.get("reason"),
                    detail["started"],
                    detail["finished"],
                    tuple(detail.get("outstanding", ())),
                    json.dumps(event),
                )
            self._sqs.delete_message_batch(
                QueueUrl=self._url,
                Entries=[
                    {"Id": str(at), "ReceiptHandle": message["ReceiptHandle"]}
                    for at, message in enumerate(messages)
                ],
            )
            self._update()

    def _look(self) -> None:
        while not self._stop.is_set():
            if self._expected is not None and self.seen.opened >= self._expected:
                return
            begun = time.monotonic()
            self._update(opened=sum(chain.created for chain in self._store.scan()))
            # A large table is looked at less often: the look must not become the load.
            took = time.monotonic() - begun
            self._stop.wait(max(_PAUSE_SECONDS, 4 * took))
