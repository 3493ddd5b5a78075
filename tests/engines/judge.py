"""The judge: compares what a campaign left behind to the protocol, without the library.

It reads the raw items, events and dead-lettered messages, and knows the requests that were sent. Of
requests that exclude each other, the ones that took effect are those that were not rejected.
"""

from __future__ import annotations

import base64
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import reduce
from operator import xor
from typing import Any

from tests.engines.campaign import Evidence
from tests.engines.plan import Chain, Raw, canonical

_NO_CREATE = "never created"


def judge(evidence: Evidence) -> list[str]:
    """Return all violations of the protocol, each as a text."""
    violations = [f"gave up waiting for {evidence.unfinished}"] if evidence.unfinished else []
    violations += [f"a program ended with an error: {crash}" for crash in evidence.crashes]
    dead, found = _dead_letters(evidence)
    violations += found
    sent: dict[str, list[Raw]] = defaultdict(list)
    not_judged = {canonical(raw) for raw in evidence.after_end}
    for chain in evidence.plan.chains:
        malformed = {canonical(raw) for raw in chain.malformed}
        not_judged |= malformed
        violations += [f"{chain.tag}: malformed, not rejected: {m}" for m in malformed - dead]
    for raw in evidence.after_end:
        if canonical(raw) not in dead:
            violations.append(f"{raw['tag']}: a create after the end was not rejected")
    for raw in evidence.sent:
        if canonical(raw) not in not_judged:
            sent[raw["tag"]].append(raw)
    events = defaultdict(list)
    for event in evidence.events:
        events[event["detail"]["tag"]].append(event)
    for chain in evidence.plan.chains:
        item = evidence.items.get(chain.tag, {})
        one = _Chain(chain, sent[chain.tag], item, events.pop(chain.tag, []), dead)
        violations += [f"{chain.tag}: {violation}" for violation in one.violations()]
    violations += [f"{tag}: an event of no chain" for tag in events]
    tags = {chain.tag for chain in evidence.plan.chains}
    violations += [f"{tag}: an item of no chain" for tag in evidence.items.keys() - tags]
    return violations


def _dead_letters(evidence: Evidence) -> tuple[set[str], list[str]]:
    """Return the requests that were rejected, and violations."""
    sent = {canonical(raw) for raw in evidence.sent}
    dead: set[str] = set()
    violations = []
    bodies = {body for body, _ in evidence.dead}
    for body, error in evidence.dead:
        if not error:
            violations.append(f"a dead-lettered message without a reason: {body[:200]}")
        if body in evidence.plan.bodies:
            continue
        for raw in json.loads(body)["requests"]:
            if canonical(raw) not in sent:
                violations.append(f"a rejected request that nobody sent: {canonical(raw)[:200]}")
            dead.add(canonical(raw))
    violations += [f"not rejected: {body}" for body in evidence.plan.bodies if body not in bodies]
    return dead, violations


class _Chain:
    """A chain, its requests and what became of it."""

    def __init__(
        self, plan: Chain, sent: list[Raw], item: dict[str, Any], events: list[Any], dead: set[str]
    ) -> None:
        self.plan = plan
        self.item = item
        self.events = events
        self.rejected = [raw for raw in sent if canonical(raw) in dead]
        self.accepted = [raw for raw in sent if canonical(raw) not in dead]
        self.sent = sent
        self.status = item.get("status", {}).get("S", "open") if item else "absent"
        self.detail = events[0]["detail"] if events else {}
        self.reason = self.detail.get("reason", "")

    def violations(self) -> Iterator[str]:
        yield from self._event()
        lengths = {_length(raw) for raw in self.sent if "stamp" in raw}
        if self.plan.early:
            yield from self._early_end()
        elif len(lengths) > 1 and self.status == "failed" and _names(self.reason, lengths):
            # The stamp of another length came before the create.
            yield from (
                f"rejected: {_shown(raw)}" for raw in self.rejected if raw["op"] == "create"
            )
        else:
            yield from list(self._requests()) or self._end()

    def _event(self) -> Iterator[str]:
        """Check that an ended chain has one event, in equal copies, and another chain none."""
        if self.status not in ("acked", "failed"):
            if self.events:
                yield f"{self.status}, with an event {self.detail['status']}"
            return
        copies = {canonical([event["detail-type"], event["detail"]]) for event in self.events}
        if len({event["detail"]["id"] for event in self.events}) != 1 or len(copies) != 1:
            yield f"{len(self.events)} events, {len(copies)} different ones: {sorted(copies)}"
            return
        if {self.events[0]["detail-type"], self.detail["status"]} != {self.status}:
            yield f"{self.status}, with an event {self.detail['status']}"
        if "event_pending" in self.item:
            yield "its event is pending for ever"

    def _early_end(self) -> Iterator[str]:
        expected = _NO_CREATE
        for raw in self.sent:
            expected = raw.get("reason", expected)
        if (self.status, self.reason) != ("failed", expected):
            yield f"{self.status} ({self.reason}), expected failed ({expected})"
        yield from (f"rejected: {_shown(raw)}" for raw in self.rejected)

    def _requests(self) -> Iterator[str]:
        """Check that the right requests were rejected."""
        by_id = defaultdict(list)
        for raw in self.sent:
            by_id[raw["id"]].append(raw)
        creates = [raw for raw in self.accepted if raw["op"] == "create"]
        if len(creates) != 1:
            yield f"{len(creates)} creates were not rejected"
            return
        length = _length(creates[0])
        for id, variants in by_id.items():
            accepted = [raw for raw in variants if raw in self.accepted]
            if len(variants) > 1 and len(accepted) != 1:
                yield f"{len(accepted)} of {len(variants)} requests with the id {id} took effect"
            raw = variants[0]
            if len(variants) == 1 and raw["op"] == "stamp":
                if _length(raw) == length and not accepted:
                    yield f"rejected: {_shown(raw)}"
                if _length(raw) != length and accepted:
                    yield f"of another length and not rejected: {_shown(raw)}"

    def _end(self) -> Iterator[str]:
        """Check stamp, counts and end against the requests that took effect."""
        stamped = [raw for raw in self.accepted if "stamp" in raw]
        stamp = reduce(xor, (_number(raw) for raw in stamped), 0)
        counts = tuple(sum(raw.get(name, 0) for raw in stamped) for name in ("started", "finished"))
        fails = {raw["reason"] for raw in self.accepted if raw["op"] == "fail"}
        complete = stamp == 0 and counts[0] == counts[1]
        if complete and not fails:
            expected = "acked"
        elif self.plan.end == "open":
            expected = "open"
        else:
            expected = "failed"
        kind = "false ack" if self.status == "acked" else "lost ack" if complete else "wrong end"
        if self.status != expected:
            yield f"{kind}: {self.status} ({self.reason}), expected {expected}"
        stored = bytes(self.item.get("stamp", {}).get("B", b""))
        if int.from_bytes(stored, "little") != stamp:
            yield f"its stamp is not the XOR of its requests ({self.status})"
        if (found := self._counts()) != counts:
            yield f"started and finished are {found}, expected {counts}"
        if expected == "failed":
            yield from self._failure(fails, stamp, counts)
        if self.detail and self.detail["detail"] != self._created().get("detail", {}):
            yield f"its event has the detail {self.detail['detail']}"
        ends = {"acked": "acked", "open": "open"}
        # With a reused id, the request that came first decides.
        if ends.get(self.plan.end, "failed") != expected and not self.plan.tag.startswith(
            "reused id"
        ):
            yield f"its requests make it {expected}, but {self.plan.end} was meant"

    def _failure(self, fails: set[str], stamp: int, counts: tuple[int, ...]) -> Iterator[str]:
        if fails and self.reason not in fails:
            yield f"failed ({self.reason}), expected {fails}"
        if not fails and not self.reason.startswith("timed out"):
            yield f"failed ({self.reason}), expected a time-out"
        if not fails and not stamp and not _names(self.reason, set(counts)):
            yield f"zero with counts {counts}, but the reason is {self.reason!r}"

    def _created(self) -> Raw:
        return next((raw for raw in self.accepted if raw["op"] == "create"), {})

    def _counts(self) -> tuple[int, ...]:
        return tuple(
            self.detail[name] if self.detail else int(self.item.get(name, {}).get("N", 0))
            for name in ("started", "finished")
        )


def _bytes(raw: Raw) -> bytes:
    return base64.b64decode(raw["stamp"])


def _length(raw: Raw) -> int:
    return len(_bytes(raw))


def _number(raw: Raw) -> int:
    return int.from_bytes(_bytes(raw), "little")


def _names(text: str, numbers: set[int]) -> bool:
    return numbers <= {int(number) for number in re.findall(r"\d+", text)}


def _shown(raw: Raw) -> str:
    return f"{raw['op']} {raw['id']!r}"
