"""Peeling: read the ids of outstanding units out of the XOR of traced stamps.

Sources: Goodrich and Mitzenmacher, "Invertible Bloom Lookup Tables" (2011), and Eppstein et al.,
"What's the Difference? Efficient Set Reconciliation without Prior Context" (2011).
docs/adr/0004-peeling-by-votes.md explains the rules and has the measurements.
"""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from functools import reduce
from itertools import combinations
from operator import xor
from typing import NamedTuple

from xorack.core.hashing import xxh64_long_inverse
from xorack.core.notebook import table
from xorack.core.stamp import TRACED_LENGTHS, check_bytes, words_of
from xorack.core.text import plural

_VOUCHERS = 4
"""The number of empty cells that confirm a unit in an incomplete result."""
_MAX_PER_CELL = 2.5
"""The most ids for each cell of a table. With more ids, other sets can have the same sum."""
_BITS = 48
"""The most hashes that must be linearly independent. More hashes of 64 bits may be dependent by
chance: 48 hashes are with a probability of 2**-16, 64 hashes with 0.71."""
_MAX_FULL = 0.95
"""The largest share of cells that are not empty. With more of them, no search succeeded."""
_BUDGET = 4_000
"""The largest number of removals in a search."""
_SMALL_BUDGET = 200
"""The same if there are at most as many units as cells. It solves all but 1 in 2,000 of the stamps
that 4,000 removals solve."""
_DEPTH = 30
"""The most guesses in a row."""
_WIDTH = 3
"""The number of guesses that the search follows: those that leave the fewest full cells."""
_MAX_TENANTS = 32
"""The most hashes of one cell. More hashes share a cell only if someone has chosen them."""
_MAX_CHECKS = 50_000
"""The most comparisons of hashes that share cells."""
_MAX_IN_TEXT = 4
"""The most ids in the text of a result."""
_SLACK = 3
"""The search also follows guesses that leave up to this many more full cells."""


class Outstanding(NamedTuple):
    """The outstanding units of a chain, which are in its stamp an odd number of times.

    Attributes:
        ids: The ids of units that were started and not finished, or finished and not started. Each
            id is from 1 to 2**64 - 1.
        complete: Whether these are all outstanding units.
    """

    ids: frozenset[int]
    complete: bool

    def __repr__(self) -> str:
        names = [f"{id:016x}" for id in sorted(self.ids)[:_MAX_IN_TEXT]]
        more = f", and {len(self.ids) - len(names):,} more" if len(self.ids) > len(names) else ""
        all_ = "" if self.complete else ", and others that the stamp does not name"
        return f"<Outstanding: {plural(len(self.ids), 'unit')}: {', '.join(names)}{more}{all_}>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        ids = [f"{id:016x}" for id in sorted(self.ids)]
        return table("Outstanding units", {"all are named": self.complete, "ids": ids})


def peel(residual: bytes) -> Outstanding:
    """Read the ids of the outstanding units out of a chain's stamp, if it is traced.

    The length of the stamp shows whether it is traced. If the result is incomplete, it has only
    those ids that four of the five tables confirm.

    Args:
        residual: The chain's stamp.

    Returns:
        The ids, and whether they are all: nothing is left after they are removed. The call takes at
        most about 0.2 s for any input.

    Raises:
        ArgumentError: The residual is not bytes.
    """
    check_bytes("residual", residual)
    if not any(residual):
        return Outstanding(frozenset(), True)
    cells = TRACED_LENGTHS.get(len(residual))
    if cells is None:
        return Outstanding(frozenset(), False)
    return _outstanding_of(_Table(residual, cells, _BUDGET))


def units_if_few(residual: bytes, most: int) -> frozenset[int] | None:
    """Return the ids of all outstanding units.

    None if there are more than `most`, or the result is incomplete.

    ``most`` may be at most the number of cells of a table. For stamps of 16 cells the call takes at
    most about 2 ms, because a longer search helps only with more units.
    """
    cells = TRACED_LENGTHS.get(len(residual))
    if cells is None:
        return None if any(residual) else frozenset()
    table = _Table(residual, cells, _SMALL_BUDGET)
    if table.least_units() > most:
        return None
    ids, complete = _outstanding_of(table)
    return ids if complete and len(ids) <= most else None


def _outstanding_of(table: _Table) -> Outstanding:
    if not table.consistent():
        return Outstanding(frozenset(), False)
    table.remove_supported(table.words[1:])
    complete = table.solved or (table.promising and table.search())
    uncertain = table.exchangeable()
    if not complete:
        uncertain.update(y for y in table.hashes if not table.vouched(y))
    assert not complete or not any(table.words), "a complete result leaves nothing"
    assert uncertain <= table.hashes, "only removed hashes can be uncertain"
    ids = frozenset(map(xxh64_long_inverse, table.hashes - uncertain))
    return Outstanding(ids - {0}, not uncertain and complete and 0 not in ids)


def _independent(hashes: set[int]) -> bool:
    """Return whether no subset of the hashes has the XOR 0. If so, no smaller set has their sum."""
    basis: list[int] = []
    for y in hashes:
        remainder = y
        for reduced in basis:
            remainder = min(remainder, remainder ^ reduced)
        if not remainder:
            return False
        basis.append(remainder)
    return True


class _Table:
    """A residual from which hashes are removed. A second removal puts a hash back."""

    __slots__ = ("budget", "cells", "hashes", "left", "log", "words")

    def __init__(self, residual: bytes, cells: int, budget: int) -> None:
        self.words = list(struct.unpack(f"<{len(residual) // 8}Q", residual))
        self.cells = cells
        self.left = sum(map(bool, self.words[1:]))
        self.hashes: set[int] = set()
        self.log: list[int] = []
        self.budget = budget

    def tables(self) -> list[list[int]]:
        return [self.words[at : at + self.cells] for at in range(1, len(self.words), self.cells)]

    def consistent(self) -> bool:
        """Return whether each table has the XOR of all hashes, as in every sum of stamps."""
        return all(reduce(xor, table) == self.words[0] for table in self.tables())

    def least_units(self) -> int:
        """Return a lower bound of the number of units: each unit is in one cell of each table."""
        return max(sum(map(bool, table)) for table in self.tables())

    @property
    def solved(self) -> bool:
        """Whether all cells are empty, and few enough hashes were removed to trust the result."""
        if self.left or len(self.hashes) > _MAX_PER_CELL * self.cells:
            return False
        return len(self.hashes) > _BITS or _independent(self.hashes)

    @property
    def promising(self) -> bool:
        """Whether enough cells are empty for a search to succeed."""
        return self.left < _MAX_FULL * (len(self.words) - 1)

    def support(self, y: int) -> tuple[int, int]:
        """Return how many cells of a hash hold only this hash, and how many are empty."""
        votes = empty = 0
        for place in words_of(y, self.cells):
            word = self.words[place]
            if word == y:
                votes += 1
            elif not word:
                empty += 1
        return votes, empty

    def vouched(self, y: int) -> bool:
        """Return whether enough cells of a removed hash are empty, while other cells are not."""
        return self.left > 0 and self.support(y)[1] >= _VOUCHERS

    def exchangeable(self) -> set[int]:
        """Return the hashes of each group of four that four other hashes could replace unnoticed.

        Such a group lies in at most two cells of each table. With 16 cells, about 1 in 2,000 sets
        of 32 hashes has such a group. If the search takes too long, a sender has chosen the ids on
        purpose, and all hashes are returned.
        """
        places = {y: words_of(y, self.cells) for y in self.hashes}
        tenants = defaultdict(list)
        for y, its in places.items():
            for place in its:
                tenants[place].append(y)
        if any(len(ys) > _MAX_TENANTS for ys in tenants.values()):
            return set(self.hashes)
        shared = Counter(pair for ys in tenants.values() for pair in combinations(ys, 2))
        exchangeable, checks = set(), 0
        for a, b in (pair for pair, times in shared.items() if times > 1):
            apart = [two for two in zip(places[a], places[b], strict=True) if two[0] != two[1]]
            near = {y for two in apart[:1] for place in two for y in tenants[place]} - {a, b}
            for c, d in combinations(near, 2):
                tables = zip(*(places[y] for y in (a, b, c, d)), strict=True)
                if all(len({*table}) <= 2 for table in tables):
                    exchangeable |= {a, b, c, d}
            if (checks := checks + len(near) ** 2) > _MAX_CHECKS:
                return set(self.hashes)
        return exchangeable

    def remove(self, y: int) -> list[int]:
        """XOR a hash out of its cells. Return the values that are left in them."""
        words = self.words
        words[0] ^= y
        remains = []
        for place in words_of(y, self.cells):
            word = words[place]
            words[place] = remain = word ^ y
            if remain:
                remains.append(remain)
            self.left += bool(remain) - bool(word)
        self.hashes ^= {y}
        self.log.append(y)
        return remains

    def remove_supported(self, values: list[int], banned: int = 0) -> None:
        """Remove all hashes that several cells confirm, beginning with the most cells.

        The loop ends, because each removal leaves fewer full cells.
        """
        certain, pairs, weak = values, list[int](), list[int]()
        while stack := certain or pairs or weak:
            y = stack.pop()
            votes, empty = self.support(y)
            if votes < 2 or empty >= votes or y in (0, banned):
                continue
            if votes == 2 and stack is certain:
                (weak if empty else pairs).append(y)
            else:
                certain += self.remove(y)

    def attempt(self, y: int) -> int:
        """Remove or put back a hash, and then all hashes that now have enough votes.

        Return the length of the log before, for `undo`.
        """
        before = len(self.log)
        self.remove_supported([*self.remove(y), y], banned=y)
        self.budget -= len(self.log) - before + 1
        return before

    def undo(self, length: int) -> None:
        """Undo the removals after the first `length` entries of the log."""
        undone = self.log[length:]
        for y in undone:
            self.remove(y)
        assert self.log[length:] == 2 * undone, "each removed hash is put back"
        del self.log[length:]

    def candidates(self) -> list[int]:
        """Return hashes that one cell confirms, and removed hashes that few cells confirm."""
        self.budget -= len(self.words) >> 4
        single = {y for y in self.words[1:] if y and self.support(y)[0]}
        return sorted(single.union(y for y in self.hashes if self.support(y)[1] <= 2))

    def search(self, depth: int = 0) -> bool:
        """Guess hashes until all cells are empty. If that fails, return False and undo all."""
        outlook = []
        most = self.left + _SLACK
        for y in self.candidates():
            if self.budget <= 0:
                return False
            before = self.attempt(y)
            if self.solved:
                return True
            if self.left < most and depth < _DEPTH:
                outlook.append((self.left, y))
            self.undo(before)
        for _, y in sorted(outlook)[:_WIDTH]:
            before = self.attempt(y)
            if self.search(depth + 1):
                return True
            self.undo(before)
        return False
