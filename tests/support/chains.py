"""Chains from the attributes of their items, without the parts that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xorack.core.chain import Chain
from xorack.core.request import Request
from xorack.core.transitions import Applied, apply, in_order


def make_chain(
    tag: str,
    stamp: bytes = b"",
    status: str = "pending",
    started: int = 0,
    finished: int = 0,
    version: int = 0,
    first_seen_at: int | None = None,
    nonce: int | None = None,
    **attributes: Any,
) -> Chain:
    """Return the chain with these attributes, named as in its item."""
    first = {name: value for name, value in locals().items() if name not in ("tag", "attributes")}
    return Chain.of_attributes(tag, first | attributes)


def changed(chain: Chain, **attributes: Any) -> Chain:
    """Return a chain with some attributes changed, named as in its item."""
    others = chain.attributes() | attributes
    return Chain.of_attributes(others.pop("tag", chain.tag), others)


def apply_all(chain: Chain | None, requests: Sequence[Request], **named: Any) -> Applied:
    """Apply requests in one write; return the outcomes in the order of the requests."""
    order = in_order(range(len(requests)), lambda position: requests[position])
    applied = apply(chain, [requests[position] for position in order], **named)
    outcomes = sorted(zip(order, applied.outcomes, strict=True), key=lambda pair: pair[0])
    return applied._replace(outcomes=[outcome for _, outcome in outcomes])
