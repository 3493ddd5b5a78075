"""Reading many chains, some of which may be invalid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from xorack.core.chain import Chain
from xorack.core.ports import Unavailable

__all__ = ["read_valid"]


def read_valid(
    read: Callable[[Sequence[str]], Mapping[str, Chain]],
    tags: Sequence[str],
    on_invalid: Callable[[str, Exception], None],
) -> list[Chain]:
    """Read chains; if the batch fails because of one item, read each by itself.

    Args:
        read: `xorack.core.ports.ChainStore.read` of the store, perhaps with retries.
        tags: No tag twice.
        on_invalid: Called with the tag and the error of each item that cannot be read.

    Returns:
        The chains that exist and are valid.

    Raises:
        Unavailable: A retry may help.
    """
    try:
        return list(read(tags).values())
    except Unavailable:
        raise
    except Exception as error:  # noqa: BLE001 - an item that is not a chain
        if len(tags) == 1:
            on_invalid(tags[0], error)
            return []
        return [chain for tag in tags for chain in read_valid(read, [tag], on_invalid)]
