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
from xorack.core.stamp import TRACED_LENGTHS, check_bytes, words_of

_VOUCHERS = 4
"""Empty cells that vouch for a unit in an incomplete result."""
_MAX_PER_CELL = 2.5
"""Ids for each cell of a table beyond which another set of ids has the same sum by chance."""
_BITS = 48
"""Most hashes that must be linearly independent. More of 64 bits may be dependent by chance: 48 are
with a probability of 2**-16, 64 with 0.71."""
_MAX_FULL = 0.95
"""Share of cells that hold something beyond which no search succeeded."""
_BUDGET = 4_000
"""Bound of the search, in removals."""
_SMALL_BUDGET = 200
"""The same for no more units than cells: all but 1 of 2,000 stamps that 4,000 solve are solved."""
_DEPTH = 30
"""Most guesses in a row."""
_WIDTH = 3
"""Guesses that are followed up, of those that leave the fewest cells."""
_MAX_TENANTS = 32
"""Hashes of one cell; more never share it by chance."""
_MAX_CHECKS = 50_000
"""Bound of the comparisons of hashes that share cells."""
_SLACK = 3
"""A guess may uncover fewer cells than this and be followed up."""


class Outstanding(NamedTuple):
    """The outstanding units of a chain: started an odd number of times.

    Attributes:
        ids: The ids of units that were started and not finished, or finished and not started; each
            from 1 to 2**64 - 1.
        complete: True if these are all of them.
    """

    ids: frozenset[int]
    complete: bool


def peel(residual: bytes) -> Outstanding:
    """Read the ids of the outstanding units out of a chain's stamp, if it is traced.

    Only the length tells that. An incomplete result has only ids for which four of the five tables
    vouch.

    Args:
        residual: The chain's stamp.

    Returns:
        The ids found, and True if these are all: nothing is left after they are removed. The time
        is bounded for any input, to some 0.2 s.

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
    """Return the ids of all outstanding units, or None if they are more or some have no name.

    ``most`` is at most the number of cells of a table. The time is bounded to about 2 ms for stamps
    of 16 cells, because a long search only helps with more units.
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
    assert uncertain <= table.hashes, "only what was found can be uncertain"
    ids = frozenset(map(xxh64_long_inverse, table.hashes - uncertain))
    return Outstanding(ids - {0}, not uncertain and complete and 0 not in ids)


def _independent(hashes: set[int]) -> bool:
    """Return True if no XOR of some hashes is 0: no smaller set has the sum of these."""
    basis: list[int] = []
    for y in hashes:
        rest = y
        for other in basis:
            rest = min(rest, rest ^ other)
        if not rest:
            return False
        basis.append(rest)
    return True


class _Table:
    """A residual from which hashes are removed; a second removal puts a hash back."""

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
        """Return True if the XOR of each table is that of all hashes, as in every sum of stamps."""
        return all(reduce(xor, table) == self.words[0] for table in self.tables())

    def least_units(self) -> int:
        """Return a lower bound of the units: each is in one cell of each table."""
        return max(sum(map(bool, table)) for table in self.tables())

    @property
    def solved(self) -> bool:
        """True if all cells are empty, and few enough hashes were removed to trust the result."""
        if self.left or len(self.hashes) > _MAX_PER_CELL * self.cells:
            return False
        return len(self.hashes) > _BITS or _independent(self.hashes)

    @property
    def promising(self) -> bool:
        """True if enough cells are empty for a search to succeed."""
        return self.left < _MAX_FULL * (len(self.words) - 1)

    def support(self, y: int) -> tuple[int, int]:
        """Count the cells of a hash that hold it alone, and those that are empty."""
        votes = empty = 0
        for place in words_of(y, self.cells):
            word = self.words[place]
            if word == y:
                votes += 1
            elif not word:
                empty += 1
        return votes, empty

    def vouched(self, y: int) -> bool:
        """Return True if enough cells of a removed hash are empty, and others are not."""
        return self.left > 0 and self.support(y)[1] >= _VOUCHERS

    def exchangeable(self) -> set[int]:
        """Return the hashes that belong to four which may stand for four others of the same sum.

        Such four lie in at most two cells of each table. With 16 cells, about 1 set of 32 hashes in
        2,000 has them. Returns all hashes if the search takes too long: ids were chosen then.
        """
        places = {y: words_of(y, self.cells) for y in self.hashes}
        tenants = defaultdict(list)
        for y, its in places.items():
            for place in its:
                tenants[place].append(y)
        if any(len(ys) > _MAX_TENANTS for ys in tenants.values()):
            return set(self.hashes)
        shared = Counter(pair for ys in tenants.values() for pair in combinations(ys, 2))
        found, checks = set(), 0
        for a, b in (pair for pair, times in shared.items() if times > 1):
            apart = [two for two in zip(places[a], places[b], strict=True) if two[0] != two[1]]
            near = {y for two in apart[:1] for place in two for y in tenants[place]} - {a, b}
            for c, d in combinations(near, 2):
                tables = zip(*(places[y] for y in (a, b, c, d)), strict=True)
                if all(len({*table}) <= 2 for table in tables):
                    found |= {a, b, c, d}
            if (checks := checks + len(near) ** 2) > _MAX_CHECKS:
                return set(self.hashes)
        return found

    def remove(self, y: int) -> list[int]:
        """XOR a hash out of its cells; return what is left in them."""
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
        """Remove all hashes that several cells agree on, the best supported first.

        Each removal leaves fewer full cells, so this ends.
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
        """Remove or put back one hash and what it uncovers; return the length of the log before."""
        before = len(self.log)
        self.remove_supported([*self.remove(y), y], banned=y)
        self.budget -= len(self.log) - before + 1
        return before

    def undo(self, length: int) -> None:
        """Undo all removals after the first `length` of the log."""
        undone = self.log[length:]
        for y in undone:
            self.remove(y)
        assert self.log[length:] == 2 * undone, "what was removed is put back"
        del self.log[length:]

    def candidates(self) -> list[int]:
        """Return hashes that one cell supports, and removed ones that hardly any vouches for."""
        self.budget -= len(self.words) >> 4
        single = {y for y in self.words[1:] if y and self.support(y)[0]}
        return sorted(single.union(y for y in self.hashes if self.support(y)[1] <= 2))

    def search(self, depth: int = 0) -> bool:
        """Guess hashes until everything is solved; False, with nothing changed, if that fails."""
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
