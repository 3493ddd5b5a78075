"""The events that tell of a chain's end. Pure: a function of the chain as it is kept.

So every copy of an event is the same to the byte, whoever publishes it and however often.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timezone
from typing import Any

from xorack.core.chain import Chain
from xorack.core.stamp import PLAIN_LENGTH, TRACED_LENGTH, Outstanding, peel

__all__ = ["SOURCE", "event_detail", "event_id", "outstanding_of", "rfc3339"]

SOURCE = "xorack"
"""The ``source`` of all events."""


def rfc3339(milliseconds: int | None) -> str | None:
    """A time as RFC 3339 in UTC with milliseconds, for example ``2026-01-31T12:00:00.000Z``.

    Args:
        milliseconds: Since 1970; None for unknown.

    Returns:
        The text; None for unknown.
    """
    if milliseconds is None:
        return None
    seconds, rest = divmod(milliseconds, 1000)
    time = datetime.fromtimestamp(seconds, timezone.utc)
    return f"{time:%Y-%m-%dT%H:%M:%S}.{rest:03d}Z"


def event_id(chain: Chain) -> str:
    """The id of a finished chain's event: the same for every copy.

    It rests on what a chain is told by for ever: its tag, its end, and when those were; a chain
    that is deleted and made again under its tag has another.
    """
    told = json.dumps(
        [chain.tag, chain.status, chain.first_seen_at, chain.created_at, chain.ended_at]
    )
    return hashlib.blake2b(told.encode(), digest_size=16).hexdigest()


def outstanding_of(chain: Chain) -> Outstanding:
    """The units that are outstanding in a chain, as far as its stamp tells.

    A traced stamp is peeled. A plain one names its unit where the counts say that just one is
    left. Opaque ones are not guessed at.

    Args:
        chain: Any chain.

    Returns:
        The ids and whether they are all.
    """
    mixture = len(chain.stamp) == PLAIN_LENGTH and chain.started - chain.finished != 1
    if mixture and any(chain.stamp):
        return Outstanding(frozenset(), False)
    return peel(chain.stamp)


def event_detail(chain: Chain) -> dict[str, Any]:
    """The ``detail`` of a finished chain's event, as docs/protocol.md has it.

    Of a chain that was never created, ``created_at`` is when it was first heard of. Of one that
    another tool created, ``created_at`` and ``duration_ms`` are null: nobody noted it.

    Args:
        chain: An ``acked`` or ``failed`` chain.

    Returns:
        A JSON object.
    """
    duration = None
    created_at = chain.created_at if chain.created else chain.first_seen_at
    if created_at is not None and chain.ended_at is not None:
        # Two machines' clocks may disagree; nothing took less than no time.
        duration = max(0, chain.ended_at - created_at)
    detail: dict[str, Any] = {
        "id": event_id(chain),
        "tag": chain.tag,
        "status": chain.status,
        "created_at": rfc3339(created_at),
        "ended_at": rfc3339(chain.ended_at),
        "duration_ms": duration,
        "started": chain.started,
        "finished": chain.finished,
        "detail": json.loads(chain.detail) if chain.detail else {},
    }
    if chain.status == "failed":
        detail["reason"] = chain.reason
        if len(chain.stamp) in (PLAIN_LENGTH, TRACED_LENGTH):
            ids, complete = outstanding_of(chain)
            detail["outstanding"] = [f"{unit:016x}" for unit in sorted(ids)]
            detail["outstanding_complete"] = complete
    return detail
