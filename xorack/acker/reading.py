"""Reading many chains, some of whose items may be invalid."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xorack.core.chain import Chain
from xorack.core.errors import NotAChain
from xorack.core.ports import ChainStore

__all__ = ["read_valid"]


def read_valid(
    store: ChainStore, tags: Sequence[str], on_invalid: Callable[[NotAChain], None]
) -> list[Chain]:
    """Read chains in one batch, or one by one if the batch holds an item that is not a chain.

    Args:
        store: The store of the chains.
        tags: The tags, each once.
        on_invalid: Called for each item that is not a chain.

    Returns:
        The chains that exist and are valid, in the order of their tags.

    Raises:
        Unavailable: A retry may help.
    """
    try:
        chains = store.read(tags)
    except NotAChain as error:
        if len(tags) == 1:
            on_invalid(error)
            return []
        return [chain for tag in tags for chain in read_valid(store, [tag], on_invalid)]
    return [chains[tag] for tag in tags if tag in chains]
