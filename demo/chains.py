"""Follows the chains while the jobs run, by their events."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from demo.database import DemoFailed
from demo.loss import LostWord
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.sqs import send
from xorack.core.chain import Chain
from xorack.core.request import Request
from xorack.core.text import plural
from xorack.local.deploy import Stack

_PAUSE_SECONDS = 0.2
_SWEEPS = 30


@dataclass
class ChainMonitor:
    """Counts ended chains in a thread, and calls `show` with `ended` and `expected`."""

    stack: Stack
    store: DynamoDBStore
    expected: int  # the number of chains, as far as it is known
    show: Callable[[Counter[str], int], object]  # called in the thread when the numbers change
    ended: Counter[str] = field(default_factory=Counter, init=False)
    """The number of chains that have an event, by status."""
    events: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)
    """The events so far by tag, in the form in which EventBridge delivers them."""

    def __enter__(self) -> ChainMonitor:
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._thread = self._pool.submit(self._run)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._pool.shutdown()

    def wait(self, patience_seconds: float, outstanding: int = 0) -> bool:
        """Wait until all chains have ended and no event is pending; return whether that happened.

        It returns False after `patience_seconds` without a change. Chains with at most
        `outstanding` units in all count as ended, because they cannot end without help.
        """
        before, deadline = self.ended, time.monotonic() + patience_seconds
        while not self._has_ended(outstanding):
            if self._thread.done():
                self._thread.result()  # raises its error
            if self.ended != before:
                before, deadline = self.ended, time.monotonic() + patience_seconds
            elif time.monotonic() >= deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
        return True

    def _has_ended(self, outstanding: int) -> bool:
        chains = list(self.store.scan())
        # The consumer publishes an event before it marks the event as published.
        if any(chain.reports.event_pending or chain.status == "pending" for chain in chains):
            return False
        left = [_left(chain) for chain in chains if chain.status == "open"]
        return self.ended.total() + len(left) >= self.expected and sum(left) <= outstanding

    def incomplete(self) -> list[str]:
        return sorted(chain.tag for chain in self.store.scan() if chain.status == "open")

    def _run(self) -> None:
        position = 0
        while not self._stop.is_set():
            begun = time.monotonic()
            events, position = self.stack.events(position)
            self.events |= {event["detail"]["tag"]: event for event in events}
            self._update()
            # A large table is scanned less often, so that the scan does not become the load.
            self._stop.wait(max(_PAUSE_SECONDS, 4 * (time.monotonic() - begun)))

    def _update(self) -> None:
        ended = Counter(event["detail"]["status"] for event in self.events.values())
        if ended != self.ended:
            self.ended = ended
            self.show(ended, max(self.expected, ended.total()))


def _left(chain: Chain) -> int:
    """Return how many units of a chain are missing by its note, or outstanding by its counts."""
    noted = json.loads(chain.note)["missing_count"] if chain.note else None
    return chain.counts.outstanding if noted is None else int(noted)


def why_unacked(chain: Chain, has_event: bool) -> str | None:
    if chain.status == "failed":
        return chain.reason or "failed"
    if chain.status != "acked":
        left = chain.counts.outstanding
        return f"{left:,} of {plural(chain.counts.started, 'unit')} outstanding"
    return None if has_event else "acked, but no event arrived"


def end_chains(stack: Stack, monitor: ChainMonitor, tags: Sequence[str]) -> None:
    """Set the deadlines of chains to now, and invoke the sweeper until all of them have ended."""
    requests = [Request.extend(tag, "end of the demo", 0.001) for tag in tags]
    send(stack.queue_url, requests, client=stack.client("sqs"))
    for _ in range(_SWEEPS):
        response = stack.client("lambda").invoke(FunctionName=stack.outputs["SweeperName"])
        if "FunctionError" in response:
            raise DemoFailed(f"the sweeper failed: {response['Payload'].read().decode()}")
        if monitor.wait(1):
            return
    files = plural(len(tags), "incomplete file")
    raise DemoFailed(f"not all of {files} have an event `failed`; see the sweeper's log")


def named_words(events: Iterable[Mapping[str, Any]], lost: Iterable[LostWord]) -> list[LostWord]:
    """Return the lost words that failed events name; raise DemoFailed if they name other units."""
    words = {word.id: word for word in lost}
    named = [id for event in events for id in event["detail"].get("outstanding", ())]
    if unknown := [id for id in named if id not in words]:
        raise DemoFailed(f"events name {plural(len(unknown), 'unit')} that were not lost")
    return sorted(words[id] for id in named)
