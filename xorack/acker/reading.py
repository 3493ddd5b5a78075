"""Reading many chains, some of whose items may be invalid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from xorack.core.chain import Chain
from xorack.core.errors import NotAChainError

__all__ = ["read_valid"]


def read_valid(
    read: Callable[[Sequence[str]], Mapping[str, Chain]],
    tags: Sequence[str],
    on_invalid: Callable[[NotAChainError], None],
) -> list[Chain]:
    """Read chains in one batch, or one by one if the batch holds an item that is not a chain.

    Args:
        read: `xorack.core.ports.ChainStore.read` of the store, perhaps with retries.
        tags: The tags, each once.
        on_invalid: Called for each item that is not a chain.

    Returns:
        The chains that exist and are valid, in the order of their tags.

    Raises:
        UnavailableError: A retry may help.
    """
    try:
        chains = read(tags)
    except NotAChainError as error:
        if len(tags) == 1:
            on_invalid(error)
            return []
        return [chain for tag in tags for chain in read_valid(read, [tag], on_invalid)]
    return [chains[tag] for tag in tags if tag in chains]
