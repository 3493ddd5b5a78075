"""The judge: hands what a campaign left behind to the oracle of the simulation.

Marks tell which requests took effect: those of the item, and those in buckets beside it.
"""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from typing import Any
from unittest.mock import patch

from tests.engines.campaign import PENDING_SECONDS, Evidence
from tests.engines.plan import planned
from tests.simulation import model
from tests.simulation.model import Item, text
from tests.simulation.oracle import Oracle

_BY_TIME = re.compile("timed out|never created")


class _Book:
    """What the oracle knows of the world: the present, and who reads its findings."""

    trace = None
    current = None

    def __init__(self) -> None:
        self.now = int(time.time() * 1000)
        self.violations: list[str] = []
        self.violated = self.violations.append

    def log(self, line: str) -> None:
        """Keep nothing."""


def judge(evidence: Evidence) -> list[str]:
    """Return all violations of the protocol, each as a text."""
    book: Any = _Book()
    if evidence.unfinished:
        book.violated(f"gave up waiting for {evidence.unfinished}")
    for crash in evidence.crashes:
        book.violated(f"a program ended with an error: {crash}")
    with patch.object(model, "PENDING_TIMEOUT", 1000 * PENDING_SECONDS):
        oracle = Oracle(book, evidence.plan)
        for body in evidence.bodies:
            oracle.queued(body)
        direct = [one for chain in evidence.plan for one in chain.submissions if one.direct]
        oracle.sent |= {one.text for one in direct}
        for tag, item in sorted(_with_all_marks(evidence.items).items()):
            if tag not in oracle.workloads:
                book.violated(f"{tag}: an item of no chain")
                continue
            before = None
            if _BY_TIME.match(text(item, "reason") or ""):
                # The requests took effect before its time was over.
                before = _unfinished(item)
                oracle.wrote(tag, None, before, "code")
            oracle.wrote(tag, before, item, "code")
        for event in evidence.events:
            if event["detail"]["tag"] in oracle.workloads:
                entry = {"Detail": json.dumps(event["detail"]), "DetailType": event["detail-type"]}
                oracle.published(entry)
            else:
                book.violated(f"{event['detail']['tag']}: an event of no chain")
        for body, reason in evidence.dead:
            oracle.rejected(body, reason or "")
        oracle.ended(prompt=True)
        _find_lost(oracle, book)
    return book.violations


def _with_all_marks(items: dict[str, Item]) -> dict[str, Item]:
    """Return the items of chains; marks in buckets come first, as the older ones."""
    spilled: dict[str, list[bytes]] = defaultdict(list)
    for key, item in items.items():
        spilled[key.partition("\0")[0]] += item.get("spilled_marks", {}).get("BS", [])
    chains = {}
    for tag, item in items.items():
        if "\0" not in tag:
            inline = model.marks(item)
            # A crash between the copy of a mark and the write without it leaves the mark twice.
            marks = [bytes(mark) for mark in spilled[tag] if mark not in inline] + inline
            chains[tag] = {**item, "marks": {"B": b"".join(marks)}}
    return chains


def _unfinished(item: Item) -> Item:
    """Return a chain that ended by its time as it was before."""
    status = "open" if "created_at" in item else "pending"
    gone = ("reason", "ended_at", "expires_at", "event_pending")
    left = {name: value for name, value in item.items() if name not in gone}
    return {**left, "status": {"S": status}}


def _find_lost(oracle: Oracle, book: Any) -> None:
    """Find requests without effect: only what came after an early end may have none."""
    for tag, workload in oracle.workloads.items():
        one = oracle.model(tag)
        sent = [each for each in planned(workload) if each.text in oracle.sent and each.request]
        ends_early = any(each.request.op in ("fail", "extend") for each in sent)
        if one.create is None or one.contradicted or ends_early:
            continue
        if one.status == "acked" != text(one.item, "status"):
            book.violated(f"{tag}: lost ack: {text(one.item, 'status')}")
        for each in sent:
            if not one.has(each) and each.text not in one.dead_lettered:
                book.violated(f"{tag}: {each.name} was sent and did not take effect")
