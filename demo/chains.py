"""The chains while the jobs run: opened ones from the table, ended ones from events."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo.errors import DemoFailed
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.sqs import send
from xorack.core.chain import Chain
from xorack.core.request import Request
from xorack.local.deploy import Stack, drain
from xorack.local.embedded import Client

_PAUSE_SECONDS = 0.2
_RECEIVE_SECONDS = 0.5
_SWEEPS = 30


@dataclass(frozen=True)
class Progress:
    """Numbers of created chains, and of those with an event ``acked`` and ``failed``."""

    opened: int = 0
    acked: int = 0
    failed: int = 0

    @property
    def ended(self) -> int:
        """Chains with an event."""
        return self.acked + self.failed


@dataclass
class ChainMonitor:
    """A context manager that counts chains in a thread.

    Attributes:
        store: The chains' table, read for the opened chains: they have no events.
        events_queue_url: A queue that is subscribed to the events.
        sqs: An SQS client.
        expected: The number of chains that there will be, as far as it is known.
        show: Called in the thread with the numbers and the expected one when the numbers change.
        progress: The numbers so far.
        events: The events so far as EventBridge delivered them, by tag.
    """

    store: DynamoDBStore
    events_queue_url: str
    sqs: Client
    expected: int
    show: Callable[[Progress, int], object]
    progress: Progress = field(default=Progress(), init=False)
    events: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)

    def __enter__(self) -> ChainMonitor:
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._thread = self._pool.submit(self._run)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._pool.shutdown()

    def wait(self, patience_seconds: float, ended: int | None = None) -> bool:
        """Wait until chains have ended and no event is pending.

        Args:
            patience_seconds: Gives up after so long without a change.
            ended: The number of chains to wait for; by default the expected ones.

        Returns:
            True if they have ended.
        """
        awaited = self.expected if ended is None else ended
        before, deadline = self.progress, time.monotonic() + patience_seconds
        # The consumer publishes an event before it marks it as published.
        while self.progress.ended < awaited or any(c.event_pending for c in self.store.scan()):
            if self._thread.done():
                self._thread.result()  # raises its error
            if self.progress != before:
                before, deadline = self.progress, time.monotonic() + patience_seconds
            elif time.monotonic() >= deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
        return True

    def _run(self) -> None:
        while not self._stop.is_set():
            self._receive_events()
            begun = time.monotonic()
            self._update()
            # A large table is scanned less often, or the scan would become the load.
            self._stop.wait(max(_PAUSE_SECONDS, 4 * (time.monotonic() - begun)))

    def _receive_events(self) -> None:
        end = time.monotonic() + _RECEIVE_SECONDS
        events = drain(self.events_queue_url, self.sqs, until=lambda: time.monotonic() > end)
        self.events |= {event["detail"]["tag"]: event for event in events}

    def _update(self) -> None:
        statuses = Counter(event["detail"]["status"] for event in self.events.values())
        # A chain with an event was opened, whatever the latest scan found.
        opened = max(self.progress.opened, len(self.events))
        if opened < self.expected:
            opened = max(opened, sum(chain.created for chain in self.store.scan()))
        progress = Progress(opened, statuses["acked"], statuses["failed"])
        if progress != self.progress:
            self.progress = progress
            self.show(progress, max(self.expected, opened))


def why_unacked(chain: Chain, has_event: bool) -> str | None:
    """Return why a chain is not acked for its subscriber; None if it is."""
    if chain.status == "failed":
        return chain.reason or "failed"
    if chain.status != "acked":
        left = chain.started - chain.finished
        return f"{left:,} of {chain.started:,} units are outstanding"
    return None if has_event else "acked, but its event did not come"


def incomplete_chains(words: Path, counts: Path) -> list[str]:
    """Return the sorted tags of the files of which ``count`` counted fewer words than ``split``."""
    finished = {row["tag"]: row["finished"] for row in _rows(counts / "_tracking")}
    return sorted(
        row["tag"]
        for row in _rows(words / "files")
        if "error" not in row and finished.get(row["tag"], 0) < row["words"]
    )


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a folder of JSON lines, without nulls: see `pipeline.layout`."""
    for part in sorted(folder.glob("part-*.json")):
        with part.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def end_chains(stack: Stack, monitor: ChainMonitor, tags: Sequence[str]) -> None:
    """Move the deadlines of chains to now, and invoke the sweeper until all expected have ended.

    Raises:
        DemoFailed: The sweeper failed, or did not end all of them.
    """
    requests = [Request.extend(tag, "end of the demo", 0.001) for tag in tags]
    send(stack.queue_url, requests, client=stack.client("sqs"))
    for _ in range(_SWEEPS):
        response = stack.client("lambda").invoke(FunctionName=stack.outputs["SweeperName"])
        if "FunctionError" in response:
            raise DemoFailed(f"the sweeper failed: {response['Payload'].read().decode()}")
        if monitor.wait(1):
            return
    raise DemoFailed(f"some of the {len(tags):,} incomplete files have no event `failed`")


def check_repair(summary: Mapping[str, Any], events: Iterable[Mapping[str, Any]]) -> None:
    """Check that the repair found every unit that the failed events name.

    Raises:
        DemoFailed: The repair did not find a unit.
    """
    units = {unit for event in events for unit in event["detail"].get("outstanding", ())}
    unknown = sorted(units - {word["id"] for word in summary["named"]})
    # The summary lists only the first of very many words.
    if unknown and len(summary["named"]) == summary["missing"]:
        raise DemoFailed(f"the events name units that the repair did not find: {unknown}")
