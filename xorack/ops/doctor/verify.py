"""Verifies the end of each chain of a trial. Pure functions.

The simulation in tests/simulation checks its events with `check_event`, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from xorack.core.chain import TIMED_OUT, Chain
from xorack.core.event import MAX_OUTSTANDING, event_id
from xorack.ops.doctor.load import Plan


class Received(NamedTuple):
    """An event as the subscriber's queue first delivered it; `at` is in seconds since the epoch."""

    kind: str
    detail: Mapping[str, Any]
    at: float


class Expected(NamedTuple):
    """The expected content of a chain's event: values of its detail, and the outstanding units."""

    values: Mapping[str, object]
    outstanding: Collection[int]
    traced: bool
    """Whether stamps name the outstanding units."""


@dataclass
class TrialResult:
    """The results of a run at its end. Mappings are by tag."""

    plans: Sequence[Plan]
    times: Mapping[str, float]
    """The time at which each chain's last request was sent to SQS."""
    events: Mapping[str, Sequence[Received]]
    """The different events. Copies of one event count once."""
    chains: Mapping[str, Chain]

    def violations(self, plan: Plan) -> list[str]:
        """Return the faults of a chain of the run."""
        return list(_violations(plan, self))

    def all_violations(self) -> list[str]:
        known = {plan.tag for plan in self.plans}
        unknown = sorted({*self.events, *self.chains} - known)
        violations = [
            f"{plan.tag}: {line}" for plan in self.plans for line in self.violations(plan)
        ]
        return [*violations, *(f"{tag}: no chain of this run" for tag in unknown)]


def check_event(kind: str, detail: Mapping[str, Any], expected: Expected) -> Iterator[str]:
    """Check that an event has the values of its chain, and as many names of units as it claims."""
    if kind != detail.get("status"):
        yield f"detail-type {kind} of an event with status {detail.get('status')}"
    for name, value in expected.values.items():
        if detail.get(name) != value:
            yield f"{name} {detail.get(name)!r}, expected {value!r}"
    if detail.get("outstanding_complete"):
        units = [f"{unit:016x}" for unit in sorted(expected.outstanding)]
        named = (detail["outstanding"], detail["outstanding_named"])
        if not expected.traced or named != (units[:MAX_OUTSTANDING], len(units)):
            yield f"outstanding {named[0]}, expected {units}"


def _expected(plan: Plan) -> Expected:
    values = {
        "status": "failed" if plan.lost else "acked",
        "reason": TIMED_OUT if plan.lost else None,
        "started": plan.units,
        "finished": plan.finished,
        "detail": {"chain": plan.number},
    }
    if plan.lost:
        values["outstanding_complete"] = True
    return Expected(values, plan.outstanding(), traced=True)


def _violations(plan: Plan, outcome: TrialResult) -> Iterator[str]:
    chain, events = outcome.chains.get(plan.tag), outcome.events.get(plan.tag, ())
    yield from _ends(chain, events)
    yield from _differences_from_table(chain, events)
    for event in events:
        yield from _false_acks(plan, event, outcome.times.get(plan.tag, 0.0))
        yield from check_event(event.kind, event.detail, _expected(plan))


def _ends(chain: Chain | None, events: Sequence[Received]) -> Iterator[str]:
    """Check that a chain has one event: no lost ack, no second end."""
    if len(events) > 1:
        ids = sorted({str(event.detail.get("id")) for event in events})
        yield f"{len(events)} different events, ids {', '.join(ids)}"
    if events:
        return
    if chain is None:
        yield "lost: neither an event nor an item in the table"
    elif chain.final:
        yield f"lost event: {chain.status} in the table"
    else:
        left = f"{chain.counts.finished} of {chain.counts.started} units finished"
        yield f"not ended: {chain.status} in the table, {left}"


def _differences_from_table(chain: Chain | None, events: Sequence[Received]) -> Iterator[str]:
    if chain is None:
        yield from (f"{event.kind} by its event, but not in the table" for event in events[:1])
        return
    if chain.reports.event_pending:
        yield "its event is still pending in the table"
    for event in events:
        if event.detail.get("status") != chain.status:
            yield f"{event.detail.get('status')} by its event, but {chain.status} in the table"
        elif chain.final and event.detail.get("id") != event_id(chain):
            yield f"the id of its event is {event.detail.get('id')}, not {event_id(chain)}"


def _false_acks(plan: Plan, event: Received, last_sent: float) -> Iterator[str]:
    """Check that no chain is acked while work is left, or before its last request was sent."""
    if "acked" not in (event.kind, event.detail.get("status")):
        return
    if plan.lost:
        yield f"false ack: {plan.lost} of {plan.units} units never finished"
    if (early := last_sent - event.at) > 0:
        yield f"false ack: its event arrived {early:.3f} s before its last request was sent"
