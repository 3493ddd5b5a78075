"""Chains in memory: `MemoryStore`, which behaves as the DynamoDB table does towards one caller."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from xorack.core.chain import MARK_BYTES, MARK_KEY_BYTES, Chain
from xorack.core.ports import Conflict

__all__ = ["MemoryStore"]


class MemoryStore:
    """A `xorack.core.ports.ChainStore` in memory, for one process.

    Attributes:
        chains: The chains by tag.
        marks: Marks moved out of chains: (tag, born) -> key -> what was said.
    """

    def __init__(self) -> None:
        self.chains: dict[str, Chain] = {}
        self.marks: dict[tuple[str, int | None], dict[bytes, bytes]] = {}
        self._guard = threading.Lock()

    def read(self, tags: Sequence[str]) -> dict[str, Chain]:
        """See `xorack.core.ports.ChainStore.read`."""
        with self._guard:
            return {tag: self.chains[tag] for tag in tags if tag in self.chains}

    def write(self, before: Chain | None, after: Chain) -> None:
        """See `xorack.core.ports.ChainStore.write`."""
        with self._guard:
            there = self.chains.get(after.tag)
            believed = None if before is None else (before.version, before.stamp)
            actual = None if there is None else (there.version, there.stamp)
            if believed != actual:
                raise Conflict(there)
            self.chains[after.tag] = after

    def get_spilled_marks(self, chain: Chain, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """See `xorack.core.ports.ChainStore.get_spilled_marks`."""
        with self._guard:
            kept = self.marks.get((chain.tag, chain.first_seen_at), {})
            return {key: kept[key] for key in keys if key in kept}

    def put_spilled_marks(self, chain: Chain, marks: bytes, until: int) -> None:
        """See `xorack.core.ports.ChainStore.put_spilled_marks`."""
        del until  # nothing expires in memory
        with self._guard:
            kept = self.marks.setdefault((chain.tag, chain.first_seen_at), {})
            for at in range(0, len(marks), MARK_BYTES):
                mark = marks[at : at + MARK_BYTES]
                kept[mark[:MARK_KEY_BYTES]] = mark[MARK_KEY_BYTES:]

    def due_pages(self, now: int) -> Iterator[list[str]]:
        """See `xorack.core.ports.ChainStore.due_pages`."""
        with self._guard:
            due = [(c.due_at, c.tag) for c in self.chains.values() if c.due_at is not None]
        if tags := [tag for at, tag in sorted(due) if at <= now]:
            yield tags
