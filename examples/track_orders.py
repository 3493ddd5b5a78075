"""Track orders from plain Python, on this machine. See docs/local.md.

    xorack local start
    eval "$(xorack local env)"
    python -m examples.track_orders

A worker packs the lines of two orders, and gets tokens as JSON. The worker never packs one line of
the second order. So that order fails at its deadline, and its event names the line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

from xorack import Tracker, names_of

ORDERS = {"order/17": ["harpoon", "rope"], "order/18": ["lamp", "oil", "wick"]}
LOST = "oil"
TIMEOUT_SECONDS = 3


def take_orders(tracker: Tracker, run: str = "") -> list[str]:
    """Start a chain for each order and a unit for each line; return events for the worker."""
    events = []
    with tracker.batch():  # sends one message with all requests
        for tag, lines in ORDERS.items():
            token = tracker.start(run + tag, timeout=TIMEOUT_SECONDS, detail={"customer": "Ahab"})
            with tracker.step(token) as step:
                for line in lines:
                    child = step.child(line)
                    events.append(json.dumps({"line": line, "token": child.to_json()}))
    return events


def pack(tracker: Tracker, event: str) -> None:
    """Pack a line. If the step raises, its unit stays outstanding."""
    work = json.loads(event)
    with tracker.step(work["token"]):
        if work["line"] == LOST:
            raise LookupError(f"{LOST} is out of stock")


def main() -> None:
    """Track the orders and print their events. The sweeper runs every minute."""
    tracker = Tracker(os.environ["XORACK_QUEUE_URL"])
    run = time.strftime("%Y-%m-%dT%H%M%S/")  # an ended chain keeps its tag, so use new tags
    for event in take_orders(tracker, run):
        try:
            pack(tracker, event)
        except LookupError as error:
            print(f"a worker: {error}", flush=True)
    follow = [sys.executable, "-m", "xorack.cli", "local", "events", "--follow"]
    ended: set[str] = set()
    with subprocess.Popen(follow, stdout=subprocess.PIPE, text=True) as events:
        for line in events.stdout or ():
            detail = json.loads(line)["detail"]
            tag = detail["tag"].removeprefix(run)
            if tag == detail["tag"]:
                continue
            # A child's id is a hash of its parent's id and of its name.
            names = names_of(detail, ORDERS[tag])
            print(tag, detail["status"], detail.get("reason", ""), *names.values())
            ended.add(tag)
            if ended == {*ORDERS}:
                events.terminate()


if __name__ == "__main__":
    main()
