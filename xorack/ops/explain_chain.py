"""Explains why one chain failed or does not end, by texts, dead letters, counts and the queue."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from xorack.core.errors import ArgumentError
from xorack.core.text import plural, span
from xorack.ops.backlog import Backlog
from xorack.ops.clues import Clue, clues_of
from xorack.ops.dead_letters import DeadMessage
from xorack.ops.explain import Group, explain_chains, letter_text, run_prefix
from xorack.ops.run_chains import RunChains
from xorack.ops.similar_texts import count_causes
from xorack.ops.status import ChainStatus

_MAX_LETTERS = 3
_MAX_REASONS = 5
"""The reasons of failed children that are shown, the most common first."""


def explain_chain(
    status: ChainStatus,
    letters: Sequence[DeadMessage] = (),
    backlog: Backlog | None = None,
    likes: Sequence[ChainStatus] = (),
    children: Sequence[ChainStatus] = (),
) -> list[Clue]:
    """Return statements about the cause of a chain's state, the strongest first; at least one.

    `letters` are dead letters of the chain. `likes` are chains of its run. `children` are failed
    chains that are units of the chain; see `failed_children`.
    """
    chain = status.chain
    why = []
    if status.reason:
        why.append(Clue("reason", f"{chain.status}: {status.reason}"))
    if status.note_text:
        # The note about a failed chain is from the acker.
        by = "" if "chain" in (status.note or {}) else "a sender noted: "
        why.append(Clue("note", f"{by}{status.note_text}"))
    why += _of_family(status, children)
    why += _of_letters(letters)
    why += clues_of(status)
    if not chain.final:
        why += of_backlog(backlog)
    if group := _likes_of(status, likes):
        why.append(Clue("likes", _likes_text(group, likes)))
    if len(why) == (status.reason is not None) and not chain.final:
        why.append(Clue("progress", _progress(status)))
    elif chain.status == "acked":
        end = status.tolerance or "all of its units are finished"
        late = f"; {status.after_end} came after its end" if status.after_end else ""
        why.insert(0, Clue("acked", f"acked: {end}{late}"))
    if chain.final:
        why += _of_event(status)
    return why


def explain_absence(
    tag: str, place: str, letters: Sequence[DeadMessage], backlog: Backlog | None
) -> list[Clue]:
    """Return why a tag may have no chain. `place` is the table or stack that was searched."""
    why = [*_of_letters(letters), *of_backlog(backlog)]
    where = "its requests were not sent, went to another queue, or it ended long ago and expired"
    why.append(Clue("absent", f"{place} has no chain {tag!r}: {where}"))
    if "/" not in tag:
        why.append(Clue("run", f"if it is a run: xorack explain --run {shlex.quote(tag)}"))
    return why


def _of_family(status: ChainStatus, children: Sequence[ChainStatus]) -> list[Clue]:
    """Return the reasons of failed children of a chain, and the chain's parents."""
    why, ended = [], status.chain.ended_children
    if count := ended["failed"]:
        many = plural(count, "chain that is a unit of it", "chains that are units of it")
        first = ended["failed_tags"][:1]
        hint = f": xorack explain {shlex.quote(first[0])}" if first else ""
        why.append(Clue("children", f"{many} failed{hint}"))
    texts = (": ".join(filter(None, (each.reason, each.note_text))) for each in children)
    for text, number in count_causes(texts).most_common(_MAX_REASONS):
        why.append(
            Clue("children", f"{number:,} of {plural(len(children), 'chain')} failed: {text}")
        )
    if status.chain.parent_tags and status.chain.status == "failed":
        parents = ", ".join(status.chain.parent_tags)
        text = f"it is a unit of {parents}, and its failure left this unit outstanding"
        why.append(Clue("parents", text))
    return why


def _of_event(status: ChainStatus) -> list[Clue]:
    """Return where the event is, unless a failure explains more."""
    if status.chain.reports.event_pending:
        return [Clue("event", "its event is not published yet: the sweeper tries each minute")]
    text = (
        "its event is published: if no event arrived, xorack doctor examines the rules on the bus"
    )
    return [Clue("event", text)] if status.chain.status == "acked" else []


def _of_letters(letters: Sequence[DeadMessage]) -> list[Clue]:
    counts = count_causes(map(letter_text, letters))
    return [
        Clue("dead_letter", f"{plural(count, 'dead letter')} of it: {text}")
        for text, count in counts.most_common(_MAX_LETTERS)
    ]


def of_backlog(backlog: Backlog | None) -> list[Clue]:
    """Return the state of the queue, whose waiting messages may still change the chain."""
    if backlog is None or not backlog.waiting:
        return []
    waits = "waits" if backlog.waiting == 1 else "wait"
    text = f"{plural(backlog.waiting, 'message')} {waits} in the acker's queue"
    text = ": ".join(filter(None, (text, backlog.advice)))
    return [Clue("queue", backlog.stuck_text or text)]


def _likes_of(status: ChainStatus, likes: Sequence[ChainStatus]) -> Group | None:
    """Return the run's other chains with the same cause; None if the run has no other chains."""
    prefix = run_prefix(status.chain.tag)
    if not prefix or status.chain.status == "acked":
        return None
    try:
        run = RunChains(prefix[:-1])
    except ArgumentError:
        return None
    # If a run has failed chains, only these are explained.
    is_failed = status.chain.status == "failed"
    chains = [each for each in likes if is_failed or each.chain.status != "failed"]
    for group in explain_chains(run, chains).groups:
        if len(group.chains) > 1 and status.chain.tag in {each.chain.tag for each in group.chains}:
            return group
    return None


def _likes_text(group: Group, likes: Sequence[ChainStatus]) -> str:
    prefix = run_prefix(group.chains[0].chain.tag)
    verb = "failed for the same reason" if group.reason else "have not ended"
    text = f"{len(group.chains):,} of {plural(len(likes), 'chain')} of run {prefix[:-1]} {verb}"
    sentence = f"; {group.reasons.sentence}" if group.reasons.findings else ""
    return f"{text}{sentence}: xorack explain --run {shlex.quote(prefix[:-1])}"


def _progress(status: ChainStatus) -> str:
    last = status.chain.last_stamp_at
    ago = "" if last is None else f", the last step {span(max(0, status.now - last))} ago"
    left = "no deadline"
    if status.deadline is not None:
        left = f"its deadline is in {span(max(0, status.deadline - status.now))}"
    return f"{status.counts} finished{ago}; {left}: nothing points to a problem yet"


def to_dict(tag: str, status: ChainStatus | None, why: Sequence[Clue]) -> dict[str, Any]:
    """Return what ``xorack explain TAG --json`` prints."""
    return {
        "tag": tag,
        "status": None if status is None else status.chain.status,
        "why": [{"kind": each.kind, "text": each.text} for each in why],
    }
