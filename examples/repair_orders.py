"""Repairs failed orders from plain Python, with a new chain for missing units.

See docs/operations.md.

    xorack list --status failed --json | python -m examples.repair_orders

A failed chain stays failed. So the outstanding units are processed again under a new tag, which
contains the number of the attempt. A repeated repair sends the same requests, so it takes effect
once.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from examples.track_orders import ORDERS, TIMEOUT_SECONDS
from xorack import Tracker, names_of


def repair(
    tracker: Tracker, failed: Mapping[str, Any], candidates: Iterable[str], attempt: int = 1
) -> list[str]:
    """Start a chain for the outstanding units of a failed chain; return events for the worker.

    Args:
        tracker: The tracker.
        failed: The detail of a failed event, or the output of ``xorack show --json``.
        candidates: The names of all units that the chain may have had.
        attempt: The number of the repair. Each repair of a chain needs another tag.
    """
    tag, everything = failed["tag"], list(candidates)
    names = list(names_of(failed, everything).values())
    # If the names of units are unknown, or the first step never ended, repeat the entire order.
    is_known = failed["outstanding_complete"] and None not in names and tag not in names
    again = names if is_known else everything
    detail = {**(failed["detail"] or {}), "repairs": tag}
    token = tracker.start(f"{tag}/repair-{attempt}", timeout=TIMEOUT_SECONDS, detail=detail)
    with tracker.step(token) as step:
        children = [(name, step.child(name)) for name in again]
    return [json.dumps({"line": name, "token": child.to_json()}) for name, child in children]


def main() -> None:
    """Repair the failed chains whose JSON objects are on stdin; print the worker's events."""
    tracker = Tracker(os.environ["XORACK_QUEUE_URL"])
    for text in sys.stdin:
        failed = json.loads(text)
        _, _, order = failed["tag"].partition("/")  # the first part of a tag is the run
        for event in repair(tracker, failed, ORDERS[order]):
            print(event)


if __name__ == "__main__":
    main()
