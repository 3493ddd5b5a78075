"""Latency from sending a chain's last stamp to receiving its event, in the embedded AWS.

The synthesised stack is deployed on this machine; pollers, workers and bus are an emulator's. The
time spent in the batching window is the same on AWS, the milliseconds besides are not.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from math import ceil, inf
from pathlib import Path
from typing import Any

from bench.harness import Figures, Plot, Section, Table, figure
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
    """Find the nearest-rank percentile; 100 is the largest figure."""
    return sorted(figures)[ceil(len(figures) * percent / 100) - 1]


def _receive(client: Any, queue_url: str) -> dict[str, float]:
    """Receive events from a subscriber's queue; return the time of arrival by tag."""
    queue = {"QueueUrl": queue_url}
    response = client.receive_message(**queue, MaxNumberOfMessages=10, WaitTimeSeconds=1)
    now, arrivals = time.time(), {}
    for message in response.get("Messages", []):
        arrivals[json.loads(message["Body"])["detail"]["tag"]] = now
        client.delete_message(**queue, ReceiptHandle=message["ReceiptHandle"])
    return arrivals


def finish_chains(settings: dict[str, Any], chains: int, gap: float) -> list[float]:
    """Deploy a stack with some settings, finish chains one after the other, and time each.

    The seconds between two last stamps are random, with the mean ``gap``, to avoid the pollers'
    rhythm.

    Returns:
        Milliseconds of each chain.

    Raises:
        TimeoutError: An event did not arrive within a minute.
    """
    from infra.synth import synth
    from xorack.local.deploy import deploy, subscribe
    from xorack.local.embedded import EmbeddedAWS

    draw = random.Random(1)
    tags = [f"chain-{number}" for number in range(chains + _WARM_UP)]
    sent_at: dict[str, float] = {}
    arrived_at: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, EmbeddedAWS() as aws:
        stack = deploy(aws, synth(Path(folder) / "cdk.out", settings))
        sqs, events_queue = aws.client("sqs"), subscribe(stack)
        send(stack.queue_url, [Request.create(tag, "c", traced(7)) for tag in tags], sqs)
        time.sleep(5)

        def finish() -> None:
            for tag in tags:
                time.sleep(draw.expovariate(1 / gap))
                sent_at[tag] = time.time()
                send(stack.queue_url, [Request.stamp_(tag, "s", traced(7), finished=1)], sqs)

        with ThreadPoolExecutor(1) as pool:
            finishing = pool.submit(finish)
            while len(arrived_at) < len(tags):
                if finishing.done():
                    finishing.result()
                arrived_at = _receive(sqs, events_queue) | arrived_at
                if time.time() > sent_at.get(tags[-1], inf) + 60:
                    raise TimeoutError(f"{len(tags) - len(arrived_at)} events did not arrive")
    seconds = [arrived_at[tag] - sent_at[tag] for tag in tags[_WARM_UP:]]
    return [round(1000 * each, 1) for each in seconds]


def measure(quick: bool) -> Figures:
    """Measure with the default window, and without one."""
    from xorack.cdk.settings import Settings

    chains, gap = (15, 0.3) if quick else (120, 0.5)
    figures = {}
    for name, options in STACKS.items():
        settings = Settings(**options)
        figures[name] = {
            "gap_seconds": gap,
            "batch_size": settings.batch_size,
            "batch_window_seconds": settings.batch_window_seconds,
            "milliseconds": finish_chains(options, chains, gap),
        }
    return figures


def describe(figures: Figures) -> Section:
    """Write the section."""
    deployed, without = (figures[name] for name in STACKS)
    half, other = (percentile(of["milliseconds"], 50) for of in (deployed, without))
    share = (
        f"The window accounts for {figure(half - other)} ms ({100 * (half - other) / half:.0f} %) "
        f"of the median of {figure(half)} ms."
        if half > other
        else "The stack without a window was slower: the window's share cannot be determined."
    )
    table = Table(
        ["window, batch size: milliseconds", *PERCENTILES],
        note="*As deployed*: the default settings, `batch_window_seconds` "
        f"{deployed['batch_window_seconds']}. Lambda waits at most that long for a batch to fill, "
        "from the first message on. *No window*: the same stack with batches of at most 10. The "
        f"rest is the emulator's polling and this machine. {share}",
    )
    series = {}
    for name, of in figures.items():
        window, times = f"{name}: {of['batch_window_seconds']} s", sorted(of["milliseconds"])
        found = [float(percentile(times, percent)) for percent in PERCENTILES.values()]
        table.add(f"{window}, {of['batch_size']}", *found)
        shares = {ms: 100 * number / len(times) for number, ms in enumerate(times, 1)}
        series[f"{window} window"] = shares
    text = "Latency from the last stamp to the event"
    axes = {"xlabel": "ms from the last stamp to the event (emulator)", "ylabel": "% delivered"}
    return Section(
        "From the last stamp to the event",
        "**An emulator was measured, not AWS**: the synthesised stack in the embedded AWS, on this "
        f"machine. {len(deployed['milliseconds'])} chains of two requests; the last stamps are "
        f"sent one by one, {1000 * deployed['gap_seconds']:g} ms apart on average, at "
        "exponentially distributed intervals. The clock runs from before `SendMessageBatch` until "
        "`ReceiveMessage` of a subscriber's queue, behind a rule on the bus, returns the event.",
        [table],
        plot=Plot(text, "steps", series, 3.2, axes),
    )
