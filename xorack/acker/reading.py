"""Reading many chains, some of whose items may be invalid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from xorack.core.chain import Chain
from xorack.core.errors import NotAChainError


def read_valid(
    read: Callable[[Sequence[str]], Mapping[str, Chain]],
    tags: Sequence[str],
    on_invalid: Callable[[NotAChainError], None],
) -> list[Chain]:
    """Read chains in one batch, or one by one if the batch holds an item that is not a chain.

    Such an item goes to ``on_invalid``. ``read`` is `xorack.core.ports.ChainStore.read`, perhaps
    with retries. Returns the chains that exist and are valid, in the order of their tags.
    """
    try:
        chains = read(tags)
    except NotAChainError as error:
        if len(tags) == 1:
            on_invalid(error)
            return []
        return [chain for tag in tags for chain in read_valid(read, [tag], on_invalid)]
    return [chains[tag] for tag in tags if tag in chains]
