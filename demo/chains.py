"""Watch the run's chain while the jobs run, and end the chains of files with lost words."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from demo.database import DemoFailed
from demo.loss import RUN, LostWord
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.sqs import send
from xorack.core.chain import Chain
from xorack.core.request import Request
from xorack.core.text import plural
from xorack.local.deploy import Stack

_PAUSE_SECONDS = 0.2
_SWEEPS = 30
_NONE = Chain(RUN)


@dataclass
class RunMonitor:
    """Read the run's chain in a thread, one item a poll; `show` is called when it changes."""

    store: DynamoDBStore
    files: int
    show: Callable[[int, int, int], object]  # arguments: acked, failed and all files
    chain: Chain = field(default=_NONE, init=False)

    def __enter__(self) -> RunMonitor:
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._thread = self._pool.submit(self._run)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._pool.shutdown()

    @property
    def acked(self) -> int:
        """The number of acked files."""
        return int(self.chain.ended_children["acked"])

    @property
    def failed(self) -> int:
        """The number of failed files."""
        return int(self.chain.ended_children["failed"])

    def wait(self, patience_seconds: float, files: int) -> bool:
        """Wait until the chains of `files` files have ended; return whether they have.

        Return False after `patience_seconds` without a change.
        """
        return self._wait_for(lambda: self.acked + self.failed >= files, patience_seconds)

    def wait_for_end(self, patience_seconds: float) -> bool:
        """Wait until the run's chain has ended with its event published; return whether it has."""
        return self._wait_for(
            lambda: self.chain.final and not self.chain.reports.event_pending, patience_seconds
        )

    def wait_for_notes(self, tags: Sequence[str], patience_seconds: float) -> bool:
        """Wait until each of these chains has a note, which names its missing units.

        The queue has no order, so the notes may be applied after other requests of their job.
        """
        return self._wait_for(
            lambda: all(chain.note for chain in self.store.read(tags).values()), patience_seconds
        )

    def _wait_for(self, has_come: Callable[[], bool], patience_seconds: float) -> bool:
        before, deadline = self.chain, time.monotonic() + patience_seconds
        while not has_come():
            if self._thread.done():
                self._thread.result()  # raises the thread's error
            if self.chain != before:
                before, deadline = self.chain, time.monotonic() + patience_seconds
            elif time.monotonic() >= deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
        return True

    def _run(self) -> None:
        while not self._stop.wait(_PAUSE_SECONDS):
            chain = self.store.read([RUN]).get(RUN, _NONE)
            if chain != self.chain:
                self.chain = chain
                self.show(self.acked, self.failed, self.files)


def end_chains(stack: Stack, tags: Iterable[str], has_ended: Callable[[float], bool]) -> None:
    """Set the deadlines of chains to now, and invoke the sweeper until they have ended."""
    requests = [Request.extend(tag, "end of the demo", 0.001) for tag in tags]
    send(stack.queue_url, requests, client=stack.client("sqs"))
    for _ in range(_SWEEPS):
        response = stack.client("lambda").invoke(FunctionName=stack.outputs["SweeperName"])
        if "FunctionError" in response:
            raise DemoFailed(f"the sweeper failed: {response['Payload'].read().decode()}")
        if has_ended(1):
            return
    chains = plural(len(requests), "chain")
    raise DemoFailed(f"not all of {chains} have failed at their deadline: this is a defect")


def named_words(events: Iterable[Mapping[str, Any]], lost: Iterable[LostWord]) -> list[LostWord]:
    """Return the lost words that failed events name; raise DemoFailed if they name other units."""
    words = {word.id: word for word in lost}
    named = [id for event in events for id in event["detail"].get("outstanding", ())]
    if unknown := [id for id in named if id not in words]:
        raise DemoFailed(f"events name {plural(len(unknown), 'unit')} that were not lost")
    return sorted(words[id] for id in named)
