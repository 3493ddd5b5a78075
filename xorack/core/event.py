"""The events that xorack publishes when chains end. Pure functions of the chain.

All copies of an event are byte for byte equal, whichever function publishes them, and at any time.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timezone
from typing import Any

from xorack.core.chain import Chain
from xorack.core.checks import MAX_COUNT
from xorack.core.errors import ArgumentError
from xorack.core.stamp import PLAIN_LENGTH, TRACED_LENGTHS

VERSION = 1
"""The version of the detail of events."""

SOURCE = "xorack"
"""The ``source`` of all events."""
MAX_OUTSTANDING = 100
"""The most ids in an event. With this limit every event is smaller than 28 KiB."""


def rfc3339(milliseconds: int | None) -> str | None:
    """Format milliseconds since the epoch as ``2026-01-31T12:00:00.000Z``; None stays None."""
    if milliseconds is None:
        return None
    seconds, rest = divmod(milliseconds, 1000)
    time = datetime.fromtimestamp(seconds, timezone.utc)
    return f"{time:%Y-%m-%dT%H:%M:%S}.{rest:03d}Z"


def milliseconds_of(time: Any) -> int:
    """Return the milliseconds of a time that `rfc3339` formatted; else raise ArgumentError."""
    try:
        moment = datetime.strptime(time, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)
    except (TypeError, ValueError):
        raise ArgumentError("sent_at", time, "a time such as 2026-01-31T12:00:00.000Z") from None
    return round(moment.timestamp() * 1000)


def event_id(chain: Chain) -> str:
    """Return the id of a finished chain's event: a hash of the fields that identify the chain.

    All copies of the event have the same id. A chain that is created again has another id.
    """
    identity = [chain.tag, chain.status, chain.first_seen_at, chain.created_at, chain.ended_at]
    identity += [] if chain.nonce is None else [chain.nonce]
    return hashlib.blake2b(json.dumps(identity).encode(), digest_size=16).hexdigest()


def outstanding_units(chain: Chain) -> int | None:
    """Return the number of outstanding units, or None if the chain's counts are not reliable."""
    left = chain.counts.outstanding
    if chain.tolerated:
        return left
    known = left > 0 or (left == 0 and not any(chain.stamp))
    return left if 0 < chain.counts.started < MAX_COUNT and known else None


def outstanding_of(chain: Chain) -> tuple[list[int], bool, int]:
    """Return the outstanding units, whether they are all, and how many the stamp names.

    If the stamp names no unit, the units come from a note. The number is then 0.
    """
    from xorack.core.peeling import peel  # imported here: few invocations see a chain fail

    ids, complete = peel(chain.stamp)
    if not ids and (noted := noted_units(chain)):
        return noted, False, 0
    # Three plain ids may cancel out. An attacker may choose ids whose stamp equals the stamp of a
    # smaller set.
    enough = len(ids) >= chain.counts.outstanding and len(chain.stamp) != PLAIN_LENGTH
    return sorted(ids), complete and enough, len(ids)


def noted_units(chain: Chain) -> list[int]:
    return sorted(int(id, 16) for id in json.loads(chain.note or "{}").get("missing", ()))


def event_detail(chain: Chain) -> dict[str, Any]:
    """Return the ``detail`` of a finished chain's event, which docs/protocol.md specifies."""
    duration = None
    created_at = chain.created_at if chain.created else chain.first_seen_at
    if created_at is not None and chain.ended_at is not None:
        duration = max(0, chain.ended_at - created_at)  # the clocks of two machines may differ
    detail: dict[str, Any] = {
        "version": VERSION,
        "id": event_id(chain),
        "tag": chain.tag,
        "status": chain.status,
        "created_at": rfc3339(created_at),
        "ended_at": rfc3339(chain.ended_at),
        "duration_ms": duration,
        "started": min(MAX_COUNT, chain.counts.started),
        "finished": min(MAX_COUNT, chain.counts.finished),
        "detail": json.loads(chain.detail) if chain.detail else {},
    }
    if chain.parents:
        detail["parent_tags"] = chain.parent_tags
    if chain.status == "failed":
        detail["reason"] = chain.reason
    if chain.tolerated:
        detail["tolerated_units"] = min(MAX_COUNT, chain.counts.tolerated_units)
    if chain.children:
        detail["children"] = json.loads(chain.children)
    note = json.loads(chain.note or "{}")
    is_incomplete = chain.status == "failed" or chain.tolerated
    # A job that tolerates missing units finishes these units, too. Then only its note reports them.
    tells_missing = bool(note.get("missing") or note.get("missing_count"))
    if note and (is_incomplete or chain.children or tells_missing):
        detail["note"] = note
    if is_incomplete:
        units, complete, named = outstanding_of(chain)
        if units or chain.tolerated or len(chain.stamp) in (PLAIN_LENGTH, *TRACED_LENGTHS):
            detail["outstanding"] = [f"{unit:016x}" for unit in units[:MAX_OUTSTANDING]]
            detail["outstanding_units"] = outstanding_units(chain)
            detail["outstanding_named"] = named
            detail["outstanding_complete"] = complete
    return detail
