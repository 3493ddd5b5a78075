"""What becomes of the reports of a chain's end: of its event and its callback. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from xorack.core.chain import EVENT, Chain

_FIRST_WAIT_MS = 60_000
_LONGEST_WAIT_MS = 3_600_000
_GIVE_UP_MS = 86_400_000


class Refusal(str):
    """The reason of a failure that is an answer about one chain: the service itself is well."""


def mark_delivered(
    chain: Chain, delivered: Collection[str], *, now: int, refused: Mapping[str, str] | None = None
) -> Chain:
    """Return a finished chain after its end was reported, or refused, on channels.

    What was refused is repeated after 1, 2, 4 … 60 minutes. An event is repeated until the bus
    accepts it; a refusal to resume is final a day after the first.

    `delivered` are some of `Chain.undelivered`; `refused` are others of them, with the reasons.
    """
    refused = refused or {}
    assert chain.final, "only the end of a chain is delivered"
    assert delivered or refused, "each write has a delivery"
    since = now if chain.refused_at is None else chain.refused_at
    left = {channel for channel in chain.undelivered if channel not in delivered}
    changes: dict[str, Any] = {"refused_at": since if refused else chain.refused_at}
    if now - since >= _GIVE_UP_MS:
        for kind in left & refused.keys() - {EVENT}:
            changes["resume_failed"] = refused[kind]
            left.remove(kind)
    if chain.resume_pending and not left - {EVENT}:
        changes["resume"] = None
        if "resume_failed" not in changes:
            changes["resumed_at"] = now
    if not left:
        changes["due_at"] = None
    elif left <= refused.keys():
        # Waits double if each is as long as all before it.
        wait = _FIRST_WAIT_MS + max(0, now - since)
        changes["due_at"] = now + min(wait, _LONGEST_WAIT_MS)
    return replace(
        chain,
        version=chain.version + 1,
        event_pending=EVENT in left,
        resume_pending=bool(left - {EVENT}),
        **changes,
    )
