"""The judge: what each chain must have become. Pure functions, a checker for each invariant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    violations = [f"{plan.tag}: {line}" for plan in outcome.plans for line in _chain(plan, outcome)]
    return [*violations, *_strangers(outcome), *_dead_letters(outcome)]


def _chain(plan: Plan, outcome: Outcome) -> Iterator[str]:
    chain, events = outcome.chains.get(plan.tag), outcome.events.get(plan.tag, ())
    yield from _end(chain, events)
    yield from _table(chain, events)
    for event in events:
        yield from _status(plan, event)
        # No ack arrives before the chain's last message was sent. A bad request may be the last
        # one, and none that the ack needs.
        early = outcome.times.get(plan.tag, Times()).sent - event.received_at
        if event.kind == "acked" and plan.bad is None and early > 0:
            yield f"false ack: its event arrived {early:.3f} s before its last message was sent"
        yield from _content(plan, event)


def _end(chain: Chain | None, events: Sequence[Event]) -> Iterator[str]:
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


def _table(chain: Chain | None, events: Sequence[Event]) -> Iterator[str]:
    """The table and the event say the same."""
    if chain is None:
        yield from (f"{event.kind} by its event, but not in the table" for event in events[:1])
        return
    if chain.event_pending:
        yield "its event is still pending in the table"
    for event in events:
        if event.detail.get("status") != chain.status:
            yield f"{event.detail.get('status')} by its event, but {chain.status} in the table"
        elif chain.final and event.detail.get("id") != event_id(chain):
            yield f"the id of its event is {event.detail.get('id')}, not {event_id(chain)}"


def _status(plan: Plan, event: Event) -> Iterator[str]:
    """The chain ended as its requests say."""
    status, reason = event.detail.get("status"), event.detail.get("reason")
    if event.kind != status:
        yield f"detail-type {event.kind} of an event with status {status}"
    if status == "acked" and plan.lost:
        yield f"false ack: {plan.lost} of {plan.units} units never finished"
    elif status != plan.status:
        yield f"{status} ({reason}), expected {plan.status}"
    elif plan.lost and reason != TIMED_OUT:
        yield f"reason {reason!r}, expected {TIMED_OUT!r}"


def _content(plan: Plan, event: Event) -> Iterator[str]:
    """The event counts the units; that of a failed chain names the lost ones, if stamps can."""
    expected: dict[str, object] = {
        "started": plan.units, "finished": plan.finished, "detail": {"chain": plan.number},
    }  # fmt: skip
    if event.kind == "failed":
        named = plan.options.stamps != "plain"
        expected["outstanding"] = plan.outstanding() if named else []
        expected["outstanding_complete"] = named
    for name, value in expected.items():
        if event.detail.get(name) != value:
            yield f"{name} {event.detail.get(name)}, expected {value}"


def _strangers(outcome: Outcome) -> Iterator[str]:
    """No event or chain has a tag that the run did not send."""
    known = {plan.tag for plan in outcome.plans}
    for tag in sorted({*outcome.events, *outcome.chains} - known):
        yield f"{tag}: no chain of this run"


def _dead_letters(outcome: Outcome) -> Iterator[str]:
    """The dead-letter queue holds the bad requests and no others, each with its reason."""
    expected = [(plan.tag, plan.reason) for plan in outcome.plans if plan.reason is not None]
    for tag, reason in missing_dead_letters(expected, outcome.dead_letters):
        yield f"{tag}: no dead-lettered message whose reason has {reason!r}"
    bad = {tag for tag, _ in expected}
    for tag, reason in sorted({*outcome.dead_letters}):
        if tag not in bad:
            yield f"{tag}: dead-lettered, though all its requests are valid: {reason}"


def missing_dead_letters(
    expected: Iterable[tuple[str, str]], received: Iterable[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Return the expected pairs, a tag and a part of a reason, that no received pair meets."""
    reasons: dict[str, list[str]] = {}
    for tag, reason in received:
        reasons.setdefault(tag, []).append(reason)
    return [
        (tag, part)
        for tag, part in expected
        if not any(part in reason or _SHARED in reason for reason in reasons.get(tag, ()))
    ]
