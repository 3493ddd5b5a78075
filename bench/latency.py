"""Latency from sending a chain's last stamp to receiving its event, in the embedded AWS.

The synthesised stack is deployed on this machine; pollers, workers and bus are an emulator's. The
time spent in the batching window is the same on AWS, the milliseconds besides are not.
"""

from __future__ import annotations

import json
import random
import tempfile
import threading
import time
from collections.abc import Sequence
from datetime import datetime
from math import ceil
from pathlib import Path
from typing import Any

from bench.harness import Figures, Section, Table, figure
from xorack.aws.sqs import send
from xorack.core.request import Request
from xorack.core.stamp import traced

PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "max": 100}
STACKS: dict[str, dict[str, Any]] = {
    "as deployed": {},
    "no window": {"batch_size": 10, "batch_window_seconds": 0},
}
"""Settings of each stack; without a window a batch has at most ten messages."""
_WARM_UP = 5
"""Chains that are not counted."""


def percentile(figures: Sequence[float], percent: float) -> float:
    """Find the nearest-rank percentile; 100 is the largest figure.

    Raises:
        ValueError: There are no figures.
    """
    if not figures:
        raise ValueError("percentile of no figures")
    return sorted(figures)[max(0, ceil(len(figures) * percent / 100) - 1)]


class _Subscriber(threading.Thread):
    """Receives events from the subscriber's queue and notes when each arrived."""

    def __init__(self, client: Any, queue_url: str) -> None:
        super().__init__(daemon=True)
        self.client = client
        self.queue_url = queue_url
        self.arrivals: dict[str, tuple[float, dict[str, Any]]] = {}
        self.stopping = threading.Event()

    def run(self) -> None:
        """Receive until `stopping` is set."""
        while not self.stopping.is_set():
            response = self.client.receive_message(
                QueueUrl=self.queue_url, MaxNumberOfMessages=10, WaitTimeSeconds=1
            )
            now = time.time()
            for message in response.get("Messages", []):
                detail = json.loads(message["Body"])["detail"]
                self.arrivals.setdefault(detail["tag"], (now, detail))
                self.client.delete_message(
                    QueueUrl=self.queue_url, ReceiptHandle=message["ReceiptHandle"]
                )


def finish_chains(settings: dict[str, Any], chains: int, gap: float) -> dict[str, list[float]]:
    """Deploy a stack, finish chains one after the other, and time each.

    Args:
        settings: Those of the stack that differ from the defaults.
        chains: How many chains.
        gap: Mean seconds between two last stamps; random, to avoid the pollers' rhythm.

    Returns:
        Milliseconds of each chain: ``all``, until the state was ``written``, and from there until
        the event was ``delivered``.

    Raises:
        TimeoutError: An event did not arrive within a minute.
    """
    from infra.synth import synth
    from xorack.local.deploy import deploy, subscribe
    from xorack.local.embedded import EmbeddedAWS

    draw = random.Random(1)
    tags = [f"chain-{number}" for number in range(chains + _WARM_UP)]
    sent_at = {}
    with tempfile.TemporaryDirectory() as folder, EmbeddedAWS() as aws:
        stack = deploy(aws, synth(Path(folder) / "cdk.out", settings))
        subscriber, sender = _Subscriber(aws.client("sqs"), subscribe(stack)), aws.client("sqs")
        subscriber.start()
        send(stack.queue_url, [Request.create(tag, "c", traced(7)) for tag in tags], sender)
        time.sleep(5)
        for tag in tags:
            time.sleep(draw.expovariate(1 / gap))
            sent_at[tag] = time.time()
            send(stack.queue_url, [Request.stamp_(tag, "s", traced(7), finished=1)], sender)
        deadline = time.time() + 60
        while len(subscriber.arrivals) < len(tags) and time.time() < deadline:
            time.sleep(0.1)
        subscriber.stopping.set()
        subscriber.join()
    if absent := [tag for tag in tags if tag not in subscriber.arrivals]:
        raise TimeoutError(f"{len(absent)} events did not arrive: {absent[:5]}")
    figures: dict[str, list[float]] = {"all": [], "written": [], "delivered": []}
    for tag in tags[_WARM_UP:]:
        arrived_at, detail = subscriber.arrivals[tag]
        ended_at = datetime.fromisoformat(detail["ended_at"].replace("Z", "+00:00")).timestamp()
        times = (arrived_at - sent_at[tag], ended_at - sent_at[tag], arrived_at - ended_at)
        for values, seconds in zip(figures.values(), times, strict=True):
            values.append(round(1000 * seconds, 1))
    return figures


def measure(quick: bool) -> Figures:
    """Measure with the default window, and without one."""
    from xorack.cdk.settings import Settings

    chains, gap = (15, 0.3) if quick else (120, 0.5)
    return {
        name: {
            "gap_seconds": gap,
            "batch_size": settings.get("batch_size", Settings().batch_size),
            "batch_window_seconds": settings.get(
                "batch_window_seconds", Settings().batch_window_seconds
            ),
            "milliseconds": finish_chains(settings, chains, gap),
        }
        for name, settings in STACKS.items()
    }


def describe(figures: Figures) -> Section:
    """Write the section."""
    deployed, without = (figures[name] for name in STACKS)
    parts = {
        "all": "in total", "written": "until `acked` is written", "delivered": "to the subscriber",
    }  # fmt: skip
    table = Table(["window, batch size", "milliseconds", *PERCENTILES])
    for name, of in figures.items():
        label = f"{name}: {of['batch_window_seconds']} s, {of['batch_size']}"
        for part, values in of["milliseconds"].items():
            found = (float(percentile(values, percent)) for percent in PERCENTILES.values())
            table.add(label, parts[part], *found)
    half, other = (percentile(of["milliseconds"]["all"], 50) for of in (deployed, without))
    table.note = (
        f"*As deployed*: the default settings, `batch_window_seconds` "
        f"{deployed['batch_window_seconds']}. Lambda waits at most that long for a batch to fill, "
        "from the first message on. *No window*: the same stack with batches of at most 10. The "
        "rest is the emulator's polling and this machine. "
    ) + (
        f"The window accounts for {figure(half - other)} ms ({100 * (half - other) / half:.0f} %) "
        f"of the median of {figure(half)} ms."
        if half > other
        else "The stack without a window was slower: the window's share cannot be determined."
    )
    return Section(
        "From the last stamp to the event",
        "**An emulator was measured, not AWS**: the synthesised stack in the embedded AWS, on this "
        f"machine. {len(deployed['milliseconds']['all'])} chains of two requests; the last stamps "
        f"are sent one by one, {1000 * deployed['gap_seconds']:g} ms apart on average, at "
        "exponentially distributed intervals. The clock runs from before `SendMessageBatch` until "
        "`ReceiveMessage` of a subscriber's queue, behind a rule on the bus, returns the event.",
        [table],
    )
