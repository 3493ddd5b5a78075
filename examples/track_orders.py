"""Track orders from plain Python, on this machine: the stack itself, in the embedded AWS.

    .venv/bin/python -m examples.track_orders

A worker packs the lines of two orders; it gets tokens as JSON. It never packs one line of the
second order: that order fails at its deadline, and its event names the line.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

from infra.synth import synth
from xorack import Tracker, unit_id
from xorack.local import environment
from xorack.local.deploy import deploy, drain, subscribe
from xorack.local.embedded import EmbeddedAWS

ORDERS = {"order/17": ["harpoon", "rope"], "order/18": ["lamp", "oil", "wick"]}
LOST = "oil"
TIMEOUT = 3  # seconds


def take_orders(tracker: Tracker) -> list[str]:
    """Start a chain for each order and a unit for each line; return events for the worker."""
    events = []
    with tracker.batch():  # one message for all requests
        for tag, lines in ORDERS.items():
            token = tracker.start(tag, timeout=TIMEOUT, detail={"customer": "Ahab"})
            with tracker.step(token) as step:
                for line in lines:
                    child = step.child(line)
                    events.append(json.dumps({"line": line, "token": child.to_json()}))
    return events


def pack(tracker: Tracker, event: str) -> None:
    """Pack a line; a step that raises stays outstanding."""
    work = json.loads(event)
    with tracker.step(work["token"]):
        if work["line"] == LOST:
            raise LookupError(f"{LOST} is out of stock")


def main() -> None:
    """Track the orders and print their events."""
    environment.ensure(notify=print)
    with tempfile.TemporaryDirectory() as folder, EmbeddedAWS() as aws:
        stack = deploy(aws, synth(Path(folder) / "cdk.out", {}))
        events = subscribe(stack)
        tracker = Tracker(stack.queue_url, aws.client("sqs"))
        for event in take_orders(tracker):
            try:
                pack(tracker, event)
            except LookupError as error:
                print(f"a worker: {error}")
        # A child's id is a hash of its parent's id and of its name.
        root = unit_id("order/18")
        signed = root - (1 << 64) if root >> 63 else root
        names = {f"{unit_id(signed, line):016x}": line for line in ORDERS["order/18"]}
        ended: set[str] = set()
        for message in drain(
            events, aws.client("sqs"), wait_seconds=90, until=lambda: len(ended) == len(ORDERS)
        ):
            detail = message["detail"]
            ended.add(detail["tag"])
            outstanding = [names.get(unit, unit) for unit in detail.get("outstanding", [])]
            print(detail["tag"], detail["status"], detail.get("reason", ""), *outstanding)
            if len(ended) < len(ORDERS):
                # On its schedule the sweeper runs every minute.
                time.sleep(TIMEOUT)
                aws.client("lambda").invoke(FunctionName=stack.outputs["SweeperName"])


if __name__ == "__main__":
    main()
