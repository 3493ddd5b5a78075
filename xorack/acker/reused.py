"""The commonest error of programs in words: a step that runs again and starts other children."""

from __future__ import annotations

import re

from xorack.core.chain import Chain
from xorack.core.errors import RequestIdReused
from xorack.core.hashing import unit_id
from xorack.core.marks import mark_key, split_marks, step_id
from xorack.core.request import Request

_STEP = re.compile("steps?-[0-9a-f]{16}")
_NAMED = 3


def explain_reused_id(error: Exception | None, request: Request, chain: Chain | None) -> str:
    """Return the reason of a rejection, with the children that a step started in vain."""
    if not isinstance(error, RequestIdReused) or not _STEP.fullmatch(request.id):
        return str(error)
    step = "this unit's step" if request.id.startswith("step-") else "this step"
    hint = ""
    if request.id == step_id(unit_id(request.tag)):
        step = "the chain's first step"
        hint = "; was its token passed on, instead of a child's?"
    text = f"id: {request.id!r}, expected a unique id: {step} ran before with other children{hint}"
    if not (units := _started_in_vain(request, chain)):
        return text
    named = " and ".join(f"{unit:016x}" for unit in units[:_NAMED])
    more = f" and {len(units) - _NAMED} more" if len(units) > _NAMED else ""
    verb = "was" if len(units) == 1 else "were"
    # One pair of quotes, whatever their number: reasons are grouped without what is quoted.
    return f"{text}; '{named}{more}' {verb} started by the rejected request only"


def _started_in_vain(request: Request, chain: Chain | None) -> list[int]:
    """Return the children that no applied request started, if the chain tells.

    A unit is in the stamp if it was started or finished, and not both.
    """
    if chain is None or chain.spilled or not request.starts:
        return []
    from xorack.core.peeling import peel  # few batches need it

    outstanding, complete = peel(chain.stamp)
    if not complete:
        return []
    marks = split_marks(chain.marks)
    finished = {u for u in request.starts if mark_key(f"step-{u:016x}") in marks}
    return [u for u in request.starts if (u in outstanding) == (u in finished)]
