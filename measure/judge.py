"""The judge: what each chain must have become. Pure functions, a checker for each invariant.

`check_event` judges the events of tests/simulation, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from measure.options import BAD, Plan
from measure.subscription import Event
from xorack.core.chain import TIMED_OUT, Chain
from xorack.core.event import MAX_OUTSTANDING, event_id

_SHARED = "more of this message"
"""The reason of many rejected requests that share a message is that of the first."""


class Expected(NamedTuple):
    """What the requests of a chain that took effect make of its event."""

    values: Mapping[str, object]  # of its detail
    outstanding: Collection[int]
    traced: bool  # stamps name the outstanding units


@dataclass
class Outcome:
    """What is known of a run at its end; mappings are by tag."""

    plans: Sequence[Plan]
    times: Mapping[str, float]  # when each chain's last message was available
    events: Mapping[str, Sequence[Event]]  # those that differ
    chains: Mapping[str, Chain]  # of the table
    dead_letters: Sequence[tuple[str, str]] = field(default_factory=list)  # tags and reasons


def judge(outcome: Outcome) -> list[str]:
    """Check all invariants; return the violations, a line each."""
    violations = [f"{plan.tag}: {line}" for plan in outcome.plans for line in _chain(plan, outcome)]
    return [*violations, *_unknown_tags(outcome), *_dead_letters(outcome)]


def check_event(kind: str, detail: Mapping[str, Any], expected: Expected) -> Iterator[str]:
    """Check that an event has the values of its chain, and names all units if it claims to."""
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


def _chain(plan: Plan, outcome: Outcome) -> Iterator[str]:
    chain, events = outcome.chains.get(plan.tag), outcome.events.get(plan.tag, ())
    yield from _end(chain, events)
    yield from _table(chain, events)
    for event in events:
        yield from _ack(plan, event, outcome.times.get(plan.tag, 0.0))
        yield from check_event(event.kind, event.detail, _expected(plan))


def _end(chain: Chain | None, events: Sequence[Event]) -> Iterator[str]:
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


def _table(chain: Chain | None, events: Sequence[Event]) -> Iterator[str]:
    """Check that the table and the event say the same."""
    if chain is None:
        yield from (f"{event.kind} by its event, but not in the table" for event in events[:1])
        return
    if chain.delivery.event_pending:
        yield "its event is still pending in the table"
    for event in events:
        if event.detail.get("status") != chain.status:
            yield f"{event.detail.get('status')} by its event, but {chain.status} in the table"
        elif chain.final and event.detail.get("id") != event_id(chain):
            yield f"the id of its event is {event.detail.get('id')}, not {event_id(chain)}"


def _ack(plan: Plan, event: Event, last_sent: float) -> Iterator[str]:
    """Check that no chain is acked with work left, or before its last message was there."""
    if "acked" not in (event.kind, event.detail.get("status")):
        return
    if plan.lost:
        yield f"false ack: {plan.lost} of {plan.units} units never finished"
    early = last_sent - event.received_at
    # A bad request may be the chain's last one, and none that the ack needs.
    if plan.bad is None and early > 0:
        yield f"false ack: its event arrived {early:.3f} s before its last message was sent"


def _unknown_tags(outcome: Outcome) -> Iterator[str]:
    """Check that no event or chain has a tag that the run did not send."""
    known = {plan.tag for plan in outcome.plans}
    for tag in sorted({*outcome.events, *outcome.chains} - known):
        yield f"{tag}: no chain of this run"


def _dead_letters(outcome: Outcome) -> Iterator[str]:
    """Check that the dead-letter queue has just the bad requests, each with its reason."""
    for plan in missing_dead_letters(outcome.plans, outcome.dead_letters):
        yield f"{plan.tag}: no dead-lettered message of its request {plan.bad}"
    bad = {plan.tag for plan in outcome.plans if plan.bad is not None}
    for tag, reason in sorted({*outcome.dead_letters}):
        if tag not in bad:
            yield f"{tag}: dead-lettered, though all its requests are valid: {reason}"


def missing_dead_letters(plans: Iterable[Plan], received: Iterable[tuple[str, str]]) -> list[Plan]:
    """Return the plans whose bad request has no dead-lettered message with its reason."""
    reasons: dict[str, list[str]] = {}
    for tag, reason in received:
        reasons.setdefault(tag, []).append(reason)

    def is_there(tag: str, part: str) -> bool:
        return any(part in reason or _SHARED in reason for reason in reasons.get(tag, ()))

    return [plan for plan in plans if plan.bad and not is_there(plan.tag, BAD[plan.bad])]
