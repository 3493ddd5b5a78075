"""Reading many chains, some of which may be invalid."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xorack.core.chain import Chain
from xorack.core.ports import ChainStore, Unavailable

__all__ = ["read_valid"]


def read_valid(
    store: ChainStore, tags: Sequence[str], on_invalid: Callable[[str, Exception], None]
) -> list[Chain]:
    """Read chains; if the batch fails because of one item, read each by itself.

    Args:
        store: The store of the chains.
        tags: No tag twice.
        on_invalid: Called with the tag and the error of each item that cannot be read.

    Returns:
        The chains that exist and are valid.

    Raises:
        Unavailable: A retry may help.
    """
    try:
        return list(store.read(tags).values())
    except Unavailable:
        raise
    except Exception as error:  # noqa: BLE001 - an item that is not a chain
        if len(tags) == 1:
            on_invalid(tags[0], error)
            return []
        return [chain for tag in tags for chain in read_valid(store, [tag], on_invalid)]
