"""Chains from the attributes of their items, without the parts that hold them."""

from __future__ import annotations

from typing import Any

from xorack.core.chain import Chain


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
