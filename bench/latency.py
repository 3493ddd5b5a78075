"""From the last stamp that is sent to the event that is delivered, over the embedded AWS.

The synthesised stack, deployed into an AWS that runs on this machine: its pollers, its workers and
its bus are an emulator's. What is said here of waiting in the batching window holds on AWS, too;
the milliseconds besides are those of the emulator and of this machine.
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

from bench.harness import Section, Table, figure
from xorack.aws.sqs import send
from xorack.core.request import Request
from xorack.core.stamp import traced

PERCENTILES = (50, 90, 99, 100)
WINDOWS: dict[str, dict[str, Any]] = {
    "as deployed": {},
    "no window": {"batch_size": 10, "batch_window_seconds": 0},
}
"""Settings to measure: a window wants batches above ten, none wants at most ten."""


def percentile(figures: Sequence[float], percent: float) -> float:
    """The least figure that so many percent are not above: nearest rank; 100 is the largest.

    Raises:
        ValueError: There are no figures.
    """
    if not figures:
        raise ValueError("percentile of no figures")
    ordered = sorted(figures)
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]


def _unix(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


class _Arrivals(threading.Thread):
    """Takes events off the subscriber's queue and notes when each came."""

    def __init__(self, client: Any, queue_url: str) -> None:
        super().__init__(daemon=True)
        self.client = client
        self.queue_url = queue_url
        self.came: dict[str, tuple[float, dict[str, Any]]] = {}
        self.enough = threading.Event()

    def run(self) -> None:
        """Receive until it is enough."""
        while not self.enough.is_set():
            answer = self.client.receive_message(
                QueueUrl=self.queue_url, MaxNumberOfMessages=10, WaitTimeSeconds=1
            )
            now = time.time()
            for message in answer.get("Messages", []):
                detail = json.loads(message["Body"])["detail"]
                self.came.setdefault(detail["tag"], (now, detail))
                self.client.delete_message(
                    QueueUrl=self.queue_url, ReceiptHandle=message["ReceiptHandle"]
                )


def measured(settings: dict[str, Any], chains: int, gap: float) -> dict[str, Any]:
    """Deploy with these settings, finish so many chains one after the other, and time each.

    Args:
        settings: Of the stack, beside the defaults.
        chains: How many.
        gap: Seconds between two last stamps, on the average (drawn, so that none keeps step with
            the emulator's pollers).

    Returns:
        Milliseconds of each chain: ``all``, of it until the state was ``written``, and from there
        until the event was ``delivered``.

    Raises:
        TimeoutError: Events that did not come.
    """
    from infra.synth import synth
    from xorack.local.deploy import deploy, subscribe
    from xorack.local.embedded import EmbeddedAWS

    draw = random.Random(1)
    with tempfile.TemporaryDirectory() as folder, EmbeddedAWS() as aws:
        stack = deploy(aws, synth(Path(folder) / "cdk.out", settings))
        arrivals = _Arrivals(aws.client("sqs"), subscribe(stack))
        arrivals.start()
        sender = aws.client("sqs")
        tags = [f"chain-{number}" for number in range(-5, chains)]  # the first five warm it up
        send(stack.queue_url, [Request.create(tag, "c", traced(7)) for tag in tags], sender)
        time.sleep(5)
        sent = {}
        for tag in tags:
            time.sleep(draw.expovariate(1 / gap))
            sent[tag] = time.time()
            send(stack.queue_url, [Request.stamp_(tag, "s", traced(7), finished=1)], sender)
        until = time.time() + 60
        while len(arrivals.came) < len(tags) and time.time() < until:
            time.sleep(0.1)
        arrivals.enough.set()
        arrivals.join()
    if missing := [tag for tag in tags if tag not in arrivals.came]:
        raise TimeoutError(f"{len(missing)} events did not come: {missing[:5]}")
    figures: dict[str, list[float]] = {"all": [], "written": [], "delivered": []}
    for tag in tags[5:]:
        came, detail = arrivals.came[tag]
        ended = _unix(detail["ended_at"])
        figures["all"].append(1000 * (came - sent[tag]))
        figures["written"].append(1000 * (ended - sent[tag]))
        figures["delivered"].append(1000 * (came - ended))
    return figures


def run(quick: bool = False) -> Section:
    """Measure with the default window and without one."""
    from xorack.cdk.settings import Settings

    chains, gap = (15, 0.3) if quick else (120, 0.5)
    window = Settings().batch_window_seconds
    section = Section(
        "latency",
        "From the last stamp to the event",
        "**An emulator was measured, not AWS**: the synthesised stack in the embedded AWS, on this "
        f"machine. {chains} chains of two requests; the last stamps leave one by one, "
        f"{1000 * gap:g} ms apart on the average, exponentially drawn. The clock runs from before "
        "`SendMessageBatch` until `ReceiveMessage` of a subscriber's queue, behind a rule on the "
        "bus, gave the event back.",
    )
    names = {"all": "the whole", "written": "until `acked` is written", "delivered": "from there"}
    table = Table(
        ["window, batch size", "milliseconds", *(_name(p) for p in PERCENTILES)],
        note=f"*As deployed*: the default settings, `batch_window_seconds` {window}. Lambda waits "
        "that long at most for a batch to fill, from the first message that it received on, so a "
        "last stamp waits for what is left of a window that others began, or for all of it. *No "
        "window* is the same stack with batches of at most 10: as far as it is quicker, that "
        "is the window. The rest is the emulator's polling and this machine.",
    )
    section.tables.append(table)
    middle = {}
    for way, settings in WINDOWS.items():
        figures = measured(settings, chains, gap)
        summary = {
            what: {_name(p): percentile(values, p) for p in PERCENTILES}
            for what, values in figures.items()
        }
        middle[way] = summary["all"][_name(50)]
        size = settings.get("batch_size", Settings().batch_size)
        seconds = settings.get("batch_window_seconds", window)
        section.raw[way] = {
            "batch_size": size, "batch_window_seconds": seconds, "summary": summary,
            "milliseconds": {what: [round(v, 1) for v in vs] for what, vs in figures.items()},
        }  # fmt: skip
        table.rows += [
            [f"{way}: {seconds} s, {size}", names[what], *map(figure, summary[what].values())]
            for what in figures
        ]
    of_it = middle["as deployed"] - middle["no window"]
    section.raw["window_of_median"] = of_it
    table.note += f" Of the median, {figure(middle['as deployed'])} ms, " + (
        f"{figure(of_it)} ms ({100 * of_it / middle['as deployed']:.0f} %) are the window's."
        if of_it > 0
        else "the window's part cannot be told: without a window this machine was slower."
    )
    return section


def _name(percent: float) -> str:
    return "max" if percent == 100 else f"p{percent:g}"
