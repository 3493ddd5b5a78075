"""The steps of a measurement: subscribe, send, wait, end lossy chains, send again, judge."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from measure.judge import Outcome, missing_dead_letters
from measure.load import Message, Sender, Sent
from measure.options import Options, Plan
from measure.report import Result
from measure.subscription import Events, Leftovers, subscribed, take_dead_letters
from xorack.aws.sqs import send
from xorack.aws.stack import StackOutputs, open_table
from xorack.core.chain import Chain
from xorack.core.request import Request
from xorack.core.text import plural
from xorack.ops.backlog import depth

_POLL_SECONDS = 0.5
_SAY_SECONDS = 10.0
_EMPTY_POLLS = 3
_SETTLE_SECONDS = 5
_SLICE = 100


@dataclass
class Measurement:
    """A measurement of a stack."""

    options: Options
    run: str  # its name, the beginning of all of its tags
    outputs: StackOutputs
    client: Callable[[str], Any]  # returns the boto3 client of a service
    say: Callable[[str], Any]  # shows a line to the user

    def __post_init__(self) -> None:
        """Plan the chains and find the table."""
        self.plans = list(self.options.plans(self.run))
        outputs, dynamodb = self.outputs, self.client("dynamodb")
        self._queue_url, self._sqs = outputs.queue_url, self.client("sqs")
        self._store = open_table(outputs.table_name, dynamodb, outputs.retention_ms)
        self._leftovers = Leftovers()
        self._events = Events()
        self._dead: list[tuple[str, str]] = []
        self._chains_left = False

    def measure(self) -> Result:
        """Measure, and clean up in every case. The chains stay in the table until their TTL.

        Raises:
            MeasureFailed: The events cannot be received.
            SendError: The queue does not accept the messages.
        """
        with ExitStack() as stack:
            dead_letters = "the run's dead letters"
            stack.callback(self._leftovers.remove, dead_letters, self._take_dead_letters)
            events = subscribed(self.run, self.outputs.bus_name, self.client, self._leftovers)
            self._events = stack.enter_context(events)
            self.say(f"sending {plural(len(self.plans), 'chain')}")
            self._chains_left = True
            sender = Sender(self.options, self.run, self._queue_url, self._sqs)
            sent = self.send(sender)
            sending = sent.last - sent.first
            self.say(f"sent {plural(sent.messages, 'message')} in {sending:.1f} s")
            self._await_events([plan for plan in self.plans if not plan.lost])
            deadline_at = self._end_lossy([plan for plan in self.plans if plan.lost])
            self._send_late(sender)
            self._wait("dead letters", lambda: not self._missing_dead_letters())
            chains = self.settle()
        by_tag = self._events.by_tag
        outcome = Outcome(self.plans, sent.times, by_tag, chains, self._dead)
        self._chains_left = not all(chain.final for chain in chains.values())
        return Result(self.run, outcome, sent, sending, deadline_at, self.left_behind())

    def send(self, sender: Sender) -> Sent:
        """Send all messages; the campaign of the engines adds faults here."""
        return sender.send()

    def settle(self) -> dict[str, Chain]:
        """Wait for events that must not come; read all chains."""
        time.sleep(_SETTLE_SECONDS)
        return self._read(self.plans)

    def left_behind(self) -> list[str]:
        """Return what was not removed."""
        lines = list(self._leftovers.lines)
        if self._chains_left:
            lines.append(
                "chains that have not ended, which time out: "
                f"xorack list --table {self.outputs.table_name} --run {self.run}"
            )
        return lines

    def _wait(self, what: str, reached: Callable[[], bool]) -> None:
        """Wait until a condition holds, as long as events come or the queue gets shorter."""
        most, least = -1, 0
        deadline, said = 0.0, time.monotonic()
        while not reached():
            now, events, messages = time.monotonic(), len(self._events.by_tag), self._queued()
            if events > most or messages < least:
                most, least, deadline = events, messages, now + self.options.patience
            elif now >= deadline:
                self.say(f"gave up waiting for {what}")
                return
            if now >= said + _SAY_SECONDS:
                said = now
                seen = f"{plural(events, 'event')}, {plural(messages, 'message')} queued"
                self.say(f"waiting for {what}: {seen}")
            time.sleep(_POLL_SECONDS)

    def _queued(self) -> int:
        return depth(self._sqs, self._queue_url)

    def _await_events(self, plans: Collection[Plan]) -> None:
        tags = {plan.tag for plan in plans}
        what = f"the events of {plural(len(tags), 'chain')}"
        self._wait(what, lambda: tags <= {*self._events.by_tag})

    def _end_lossy(self, plans: Collection[Plan]) -> float:
        """Move the deadlines of chains that lost units to now; return the time in seconds."""
        left = list(plans)

        def applied() -> bool:
            while left:
                # A part at a time: each poll is billed.
                chains = self._read(part := left[:_SLICE])
                left[:_SLICE] = [p for p in part if not _is_applied(p, chains.get(p.tag))]
                if left[:_SLICE] == part:
                    return False
            return True

        self._wait("the requests of chains that lost units", applied)
        deadline_at = time.time()
        send(self._queue_url, (Request.extend(plan.tag, "end", 0.001) for plan in plans), self._sqs)
        self._await_events(plans)
        return deadline_at

    def _send_late(self, sender: Sender) -> None:
        """Send copies of messages whose chains have ended, and wait until they are consumed."""
        sender.deliver(Message(body, copy=True) for body in sender.sent.late)
        empty = [0]

        def is_empty() -> bool:
            # SQS's counts are approximate.
            empty[0] = 0 if self._queued() else empty[0] + 1
            return empty[0] >= _EMPTY_POLLS

        self._wait("an empty queue", is_empty)

    def _missing_dead_letters(self) -> list[Plan]:
        self._take_dead_letters()
        return missing_dead_letters(self.plans, self._dead)

    def _take_dead_letters(self) -> None:
        url = self.outputs.dead_letter_queue_url
        self._dead += take_dead_letters(self.run, url, self._sqs)

    def _read(self, plans: Collection[Plan]) -> dict[str, Chain]:
        """Read chains by their tags, consistently; a scan would read all others, too."""
        return self._store.read([plan.tag for plan in plans]) if plans else {}


def _is_applied(plan: Plan, chain: Chain | None) -> bool:
    """Tell whether all requests of a chain that lost units were applied, or cannot be."""
    if chain is None or chain.status == "pending":
        return False
    return chain.final or (chain.counts.started, chain.counts.finished) == (
        plan.units,
        plan.finished,
    )
