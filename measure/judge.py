"""The judge: what each chain must have become. Pure functions, a checker for each invariant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from measure.load import Times
from measure.options import Plan
from measure.subscription import Event
from xorack.core.chain import TIMED_OUT, Chain
from xorack.core.event import event_id

__all__ = ["Outcome", "judge", "missing_dead_letters"]

_SHARED = "more of this message"
"""The reason of many rejected requests that share a message is that of the first."""


@dataclass
class Outcome:
    """What is known of a run at its end.

    Attributes:
        plans: The run's chains.
        times: Times of each chain's last message, by tag.
        events: The events that differ, by tag.
        chains: The chains of the table, by tag.
        dead_letters: Tag and reason of each dead-lettered message.
    """

    plans: Sequence[Plan]
    times: Mapping[str, Times]
    events: Mapping[str, Sequence[Event]]
    chains: Mapping[str, Chain]
    dead_letters: Sequence[tuple[str, str]] = field(default_factory=list)


def judge(outcome: Outcome) -> list[str]:
    """Check all invariants; return the violations, a line each."""
    violations = []
    for plan in outcome.plans:
        chain, events = outcome.chains.get(plan.tag), outcome.events.get(plan.tag, ())
        for check in (_end, _table):
            violations += [f"{plan.tag}: {line}" for line in check(plan, chain, events)]
        times = outcome.times.get(plan.tag, Times())
        for event in events:
            for check_event in _EVENT_CHECKS:
                violations += [f"{plan.tag}: {line}" for line in check_event(plan, event, times)]
    violations += _strangers(outcome)
    violations += _dead_letters(outcome)
    return violations


def _end(plan: Plan, chain: Chain | None, events: Sequence[Event]) -> Iterator[str]:
    """A chain has one event: no lost ack, no second end."""
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
        left = f"{chain.finished} of {chain.started} units finished"
        yield f"not ended: {chain.status} in the table, {left}"


def _table(plan: Plan, chain: Chain | None, events: Sequence[Event]) -> Iterator[str]:
    """The table and the event say the same."""
    if chain is None:
        if events:
            yield f"{events[0].kind} by its event, but not in the table"
        return
    if chain.event_pending:
        yield "its event is still pending in the table"
    for event in events:
        if event.detail.get("status") != chain.status:
            yield f"{event.detail.get('status')} by its event, but {chain.status} in the table"
        elif chain.final and event.detail.get("id") != event_id(chain):
            yield f"the id of its event is {event.detail.get('id')}, not {event_id(chain)}"


def _status(plan: Plan, event: Event, times: Times) -> Iterator[str]:
    """The chain ended as its requests say."""
    status = event.detail.get("status")
    if event.kind != status:
        yield f"detail-type {event.kind} of an event with status {status}"
    if status == "acked" and plan.lost:
        yield f"false ack: {plan.lost} of {plan.units} units never finished"
    elif status != plan.status:
        yield f"{status} ({event.detail.get('reason')}), expected {plan.status}"
    elif plan.lost and event.detail.get("reason") != TIMED_OUT:
        yield f"reason {event.detail.get('reason')!r}, expected {TIMED_OUT!r}"


def _early(plan: Plan, event: Event, times: Times) -> Iterator[str]:
    """No ack arrives before the chain's last message was sent."""
    # A bad request may be the chain's last one, and none that the ack needs.
    early = times.sent - event.received_at
    if event.kind == "acked" and plan.bad is None and early > 0:
        yield f"false ack: its event arrived {early:.3f} s before its last message was sent"


def _counts(plan: Plan, event: Event, times: Times) -> Iterator[str]:
    """The event counts the units."""
    counts = event.detail.get("started"), event.detail.get("finished")
    if counts != (plan.units, plan.finished):
        yield f"started and finished are {counts}, expected {(plan.units, plan.finished)}"
    if event.detail.get("detail") != {"chain": plan.number}:
        yield f"detail {event.detail.get('detail')}, expected {{'chain': {plan.number}}}"


def _names(plan: Plan, event: Event, times: Times) -> Iterator[str]:
    """A failed chain's event names just the lost units, if the stamps can."""
    if event.kind != "failed":
        return
    names, complete = plan.outstanding(), True
    if plan.options.stamps == "plain":
        names, complete = [], False
    if event.detail.get("outstanding") != names:
        yield f"outstanding {event.detail.get('outstanding')}, expected {names}"
    if event.detail.get("outstanding_complete") is not complete:
        yield f"outstanding_complete is not {complete}"


_EVENT_CHECKS: tuple[Callable[[Plan, Event, Times], Iterator[str]], ...] = (
    _status, _early, _counts, _names,
)  # fmt: skip


def _strangers(outcome: Outcome) -> Iterator[str]:
    """No event or chain has a tag that the run did not send."""
    known = {plan.tag for plan in outcome.plans}
    for tag in sorted({*outcome.events, *outcome.chains} - known):
        yield f"{tag}: no chain of this run"


def _dead_letters(outcome: Outcome) -> Iterator[str]:
    """Just the bad requests are in the dead-letter queue, each with its reason."""
    expected = [(plan.tag, plan.reason) for plan in outcome.plans if plan.reason is not None]
    for tag, reason in missing_dead_letters(expected, outcome.dead_letters):
        yield f"{tag}: no dead-lettered message whose reason has {reason!r}"
    bad = {tag for tag, _ in expected}
    for tag, reason in sorted({*outcome.dead_letters}):
        if tag not in bad:
            yield f"{tag}: dead-lettered, though all its requests are valid: {reason}"


def missing_dead_letters(
    expected: Iterable[tuple[str, str]], taken: Iterable[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Return the expected tags and parts of reasons that no dead-lettered message has."""
    reasons: dict[str, list[str]] = {}
    for tag, reason in taken:
        reasons.setdefault(tag, []).append(reason)
    return [
        (tag, part)
        for tag, part in expected
        if not any(part in reason or _SHARED in reason for reason in reasons.get(tag, ()))
    ]
