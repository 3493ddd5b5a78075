"""Chains in memory: a `xorack.core.ports.ChainStore` for one process, and the fake of the tests."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from itertools import chain as chain_

from xorack.aws.item import due_shard
from xorack.core.chain import Chain
from xorack.core.marks import Bucket, split_marks
from xorack.core.ports import DueCount, DuePage, OnInvalid
from xorack.errors import ConflictError, NotAChainError


class MemoryStore:
    """A store that behaves as the DynamoDB table does towards one caller after the other.

    Attributes:
        chains: The chains by tag.
        invalid: The errors of items that are no chains, by tag.
        marks: Spilled marks: tag and generation of the chain, to key, to checksum. None expires.
    """

    def __init__(self) -> None:
        self.chains: dict[str, Chain] = {}
        self.invalid: dict[str, NotAChainError] = {}
        self.marks: dict[tuple[object, ...], dict[bytes, bytes]] = {}
        self._guard = threading.Lock()
        self._shards: dict[str, tuple[Chain, int]] = {}

    def read(
        self, tags: Sequence[str], on_invalid: OnInvalid | None = None, *, marks: bool = True
    ) -> dict[str, Chain]:
        for error in (self.invalid[tag] for tag in tags if tag in self.invalid):
            if on_invalid is None:
                raise error
            on_invalid(error)
        with self._guard:
            found = self.chains.keys() - self.invalid.keys()
            return {tag: self.chains[tag] for tag in tags if tag in found}

    def write(self, before: Chain | None, after: Chain) -> None:
        with self._guard:
            stored = self.chains.get(after.tag)
            if _identity(before) != _identity(stored):
                raise ConflictError(stored)
            self.chains[after.tag] = after

    def get_spilled_marks(self, chain: Chain, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        with self._guard:
            marks = self.marks.get((chain.tag, chain.generation), {})
            return {key: marks[key] for key in keys if key in marks}

    def put_end_marks(
        self, chain: Chain, by_bucket: Mapping[Bucket, Sequence[bytes]], until: int
    ) -> list[bytes]:
        self.put_spilled_marks(chain, b"".join(chain_.from_iterable(by_bucket.values())), until)
        return []

    def put_spilled_marks(self, chain: Chain, marks: bytes, until: int) -> None:
        with self._guard:
            self.marks.setdefault((chain.tag, chain.generation), {}).update(split_marks(marks))

    def keep_spilled_marks(self, chain: Chain, until: int) -> None:
        """Do nothing: no mark expires."""

    def due_page(self, now: int, shard: int, after: tuple[int, str] | None = None) -> DuePage:
        due = self._due(now, shard, after)
        page, more = due[:20], len(due) > 20
        return DuePage([tag for _, tag in page], page[-1] if more else None)

    def count_due(self, now: int, shard: int, after: tuple[int, str] | None = None) -> DueCount:
        due = self._due(now, shard, after)
        return DueCount(len(due), due[0][0] if due else None)

    def _due(self, now: int, shard: int, after: tuple[int, str] | None) -> list[tuple[int, str]]:
        with self._guard:
            due = [c for c in self.chains.values() if c.due_at is not None and c.due_at <= now]
        found = ((c.due_at, c.tag) for c in due if self._shard_of(c) == shard)
        return sorted(entry for entry in found if after is None or entry > after)

    def _shard_of(self, chain: Chain) -> int:
        """Return the shard of a chain; a sweep asks for each chain once a shard."""
        known = self._shards.get(chain.tag)
        if known is None or known[0] is not chain:
            self._shards[chain.tag] = known = chain, due_shard(chain)
        return known[1]

    def earlier_retentions(self, *, record: bool = False) -> tuple[tuple[()], bool]:
        """Return no earlier retentions."""
        return (), True


def _identity(chain: Chain | None) -> tuple[object, ...] | None:
    return None if chain is None else (chain.generation, chain.version, chain.stamp)
