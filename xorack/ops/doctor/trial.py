"""A trial sends chains to a deployed acker, waits for their events and verifies them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

from xorack.aws.schema import ALIAS
from xorack.aws.sqs import send
from xorack.aws.stack import StackOutputs, open_table
from xorack.core.chain import Chain
from xorack.core.request import Request
from xorack.core.text import plural
from xorack.ops.backlog import depth
from xorack.ops.doctor.load import Load, Plan, Sent, send_load
from xorack.ops.doctor.subscription import Subscription
from xorack.ops.doctor.verify import Received, TrialResult

_POLL_SECONDS = 0.5
_RECEIVERS = 4
_SETTLE_SECONDS = 2.0
_SAY_SECONDS = 10.0


class TwoChains(Load):
    """Two chains. The first finishes all its units, and the second all units but the last."""

    def plans(self, run: str) -> list[Plan]:
        return [Plan(f"{run}/acked", 0, 3), Plan(f"{run}/failed", 1, 3, lost=1)]


@dataclass
class Trial:
    """A run of a load against an acker.

    Attributes:
        run: The name of the run, with which all its tags begin.
        say: Shows a line of progress.
        sweeper: The name of the sweeper's function. The trial invokes this function at deadlines if
            the caller may do so. Otherwise the schedule invokes it within a minute.
        patience_seconds: The trial gives up after this time without progress.
    """

    load: Load
    run: str
    outputs: StackOutputs
    client: Callable[[str], Any]
    say: Callable[[str], Any]
    sweeper: str | None = None
    patience_seconds: float = 90.0
    events: dict[str, list[Received]] = field(default_factory=dict)
    sweeper_error: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        self.plans = self.load.plans(self.run)
        self._url, self._sqs = self.outputs.queue_url, self.client("sqs")
        self._subscription = Subscription(
            self.run, self.outputs.bus_name, self.client, prefix=f"{self.run}/"
        )
        table, dynamodb = self.outputs.table_name, self.client("dynamodb")
        self._store = open_table(table, dynamodb, self.outputs.retention_ms)

    @property
    def left_behind(self) -> Sequence[str]:
        return self._subscription.left_behind

    def conduct(self) -> tuple[Sent, TrialResult]:
        """Send the load, wait for all ends, and return the results.

        The rule and the queue are always removed. The chains stay until they expire.
        """
        with ExitStack() as stack:
            stack.enter_context(self._subscription.open())
            stop = threading.Event()
            pool = stack.enter_context(ThreadPoolExecutor(_RECEIVERS))
            stack.callback(stop.set)
            for _ in range(_RECEIVERS):
                pool.submit(self._receive, stop)
            sent = send_load(self.load, self.run, self._url, self._sqs)
            self._await_events([plan for plan in self.plans if not plan.lost])
            self._end([plan for plan in self.plans if plan.lost])
            chains = self._settle()
        return sent, TrialResult(self.plans, sent.times, self.events, chains)

    def _settle(self) -> dict[str, Chain]:
        """Wait for unexpected events and until no event is pending; return all chains."""
        time.sleep(_SETTLE_SECONDS)
        chains: dict[str, Chain] = {}

        def published() -> bool:
            chains.update(self._read(self.plans))
            return not any(chain.reports.event_pending for chain in chains.values())

        self._wait("pending events", published)
        return chains

    def _read(self, plans: Sequence[Plan]) -> dict[str, Chain]:
        """Read chains consistently by their tags. A scan would also read all other chains."""
        return self._store.read([plan.tag for plan in plans]) if plans else {}

    def _wait(self, goal: str, is_reached: Callable[[], bool]) -> None:
        """Wait until a condition is true, while events arrive or the queue gets shorter."""
        most, least = -1, 0
        deadline, reported_at = 0.0, time.monotonic()
        while not is_reached():
            now, events, messages = time.monotonic(), len(self.events), depth(self._sqs, self._url)
            if events > most or messages < least:
                most, least, deadline = events, messages, now + self.patience_seconds
            elif now >= deadline:
                self.say(f"gave up waiting for {goal}")
                return
            if now >= reported_at + _SAY_SECONDS:
                reported_at = now
                seen = f"{plural(events, 'event')}, {plural(messages, 'message')} queued"
                self.say(f"waiting for {goal}: {seen}")
            time.sleep(_POLL_SECONDS)

    def _receive(self, stop: threading.Event) -> None:
        while not stop.is_set():
            for event in self._subscription.receive():
                received = Received(event["detail-type"], event["detail"], time.time())
                with self._lock:
                    events = self.events.setdefault(str(received.detail.get("tag")), [])
                    if all(other[:2] != received[:2] for other in events):
                        events.append(received)

    def _await_events(self, plans: Sequence[Plan], sweep: bool = False) -> None:
        tags = {plan.tag for plan in plans}

        def arrived() -> bool:
            if sweep and not tags <= {*self.events}:
                self._sweep()
            return tags <= {*self.events}

        self._wait(f"the events of {plural(len(tags), 'chain')}", arrived)

    def _end(self, plans: Sequence[Plan]) -> None:
        """Move the deadlines of chains that lost units to now."""

        def applied() -> bool:
            chains = self._read(plans)
            return all(_is_applied(plan, chains.get(plan.tag)) for plan in plans)

        self._wait("the requests of chains that lost units", applied)
        send(self._url, (Request.extend(plan.tag, "end", 0.001) for plan in plans), self._sqs)
        self._await_events(plans, sweep=True)

    def _sweep(self) -> None:
        """Invoke the sweeper once, if the caller may do so."""
        if self.sweeper is None:
            return
        try:
            answer = self.client("lambda").invoke(FunctionName=self.sweeper, Qualifier=ALIAS)
        except ClientError:
            self.sweeper = None  # without the permission, wait for the schedule
            return
        if "FunctionError" in answer:
            self.sweeper_error = answer["Payload"].read().decode(errors="replace")[:500]


def _is_applied(plan: Plan, chain: Chain | None) -> bool:
    """Return whether all requests of a chain that lost units were applied or cannot be applied."""
    if chain is None or chain.status == "pending":
        return False
    return chain.final or (chain.counts.started, chain.counts.finished) == (
        plan.units,
        plan.finished,
    )
