"""Explains the most common error of programs: a repeated step starts other children than before."""

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
    """Return the reason of a rejection. If a step was repeated, name the children that it lost."""
    if not isinstance(error, RequestIdReused) or not _STEP.fullmatch(request.id):
        return str(error)
    step = "this unit's step" if request.id.startswith("step-") else "this step"
    hint = ""
    if request.id == step_id(unit_id(request.tag)):
        step = "the chain's first step"
        hint = "; was its token passed on, instead of a child's?"
    text = f"id: {request.id!r}, expected a unique id: {step} ran before with other children{hint}"
    if not (units := _lost_children(request, chain)):
        return text
    named = " and ".join(f"{unit:016x}" for unit in units[:_NAMED])
    more = f" and {len(units) - _NAMED} more" if len(units) > _NAMED else ""
    verb = "was" if len(units) == 1 else "were"
    # All ids are in one pair of quotes, because dead letters are grouped by reasons without the
    # quoted parts.
    return f"{text}; '{named}{more}' {verb} started by the rejected request only"


def _lost_children(request: Request, chain: Chain | None) -> list[int]:
    """Return the children that no applied request has started, if the chain shows them.

    The stamp contains each unit that was started or finished, but not both.
    """
    if chain is None or chain.spilled or not request.starts:
        return []
    from xorack.core.peeling import peel  # imported here: few batches need it

    outstanding, complete = peel(chain.stamp)
    if not complete:
        return []
    marks = split_marks(chain.marks)
    finished = {u for u in request.starts if mark_key(f"step-{u:016x}") in marks}
    return [u for u in request.starts if (u in outstanding) == (u in finished)]
