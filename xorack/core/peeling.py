"""Peeling: read the ids of outstanding units out of the XOR of stamps.

Sources: Goodrich and Mitzenmacher, "Invertible Bloom Lookup Tables" (2011), and Eppstein et al.,
"What's the Difference? Efficient Set Reconciliation without Prior Context" (2011).
docs/adr/0004-peeling-by-votes.md explains why cells vote.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from xorack.core.stamp import PLAIN_LENGTH, TRACED_LENGTH, TRACED_WORDS, check_bytes, words_of

__all__ = ["Outstanding", "peel"]

_UNPACK = struct.Struct(f"<{TRACED_WORDS}Q").unpack
_MAX_IDS = TRACED_WORDS
"""More ids than words cannot be distinguished: a longer peeling is wrong."""
_CERTAIN_VOTES = 3
"""Tables that must agree on an id before it is removed at once."""
_MAX_GUESSES = 256
"""Bound of the search among cells that only one table supports."""


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
    """Read the ids of the outstanding units out of a chain's stamp.

    A traced residual (648 bytes) is peeled: a value that hashes to its own cell may be an id. It is
    removed from its cells, which uncovers others. The XOR of several ids hashes to its own cell by
    chance once in 16 cases. So ids that two cells agree on go first. An id that only one cell
    supports counts only if every word is zero in the end.

    A plain residual (8 bytes) is one id if exactly one unit is outstanding. Compare the counts:
    the XOR of several ids looks like one.

    Residuals of other lengths are opaque and name nothing.

    Args:
        residual: The chain's stamp.

    Returns:
        The ids found, and True if these are all. Any input ends after at most some hundred passes
        over 80 cells.

    Raises:
        InvalidRequest: The residual is not bytes.
    """
    check_bytes("residual", residual)
    if not any(residual):
        return Outstanding(frozenset(), True)
    if len(residual) == PLAIN_LENGTH:
        return Outstanding(frozenset((int.from_bytes(residual, "little"),)), True)
    if len(residual) != TRACED_LENGTH:
        return Outstanding(frozenset(), False)
    table = _Table(list(_UNPACK(residual)), {}, set(), {})
    candidates = table.peel_agreed()
    if any(table.words) and candidates:
        table = _search(table, candidates, [_MAX_GUESSES]) or table
    return Outstanding(frozenset(table.ids), not any(table.words))


class _Table:
    """A residual under peeling."""

    __slots__ = ("ids", "places", "rejected", "words")

    def __init__(
        self,
        words: list[int],
        ids: dict[int, None],
        rejected: set[int],
        places: dict[int, tuple[int, int, int, int, int]],
    ) -> None:
        self.words = words
        self.ids = ids  # a dict keeps the order of discovery
        self.rejected = rejected  # XORs of several ids, removed and restored
        self.places = places  # shared by all copies: hashing is most of the work

    def copy(self) -> _Table:
        return _Table(self.words[:], self.ids.copy(), self.rejected.copy(), self.places)

    def votes(self, value: int, cell: int) -> int:
        """Count the tables that hold a value in its cell; 0 if ``cell`` is not one of its cells."""
        places = self.places.get(value)
        if places is None:
            places = self.places[value] = words_of(value)
        if cell not in places:
            return 0
        return sum(self.words[place] == value for place in places)

    def remove(self, value: int) -> None:
        """XOR an id out of its cells."""
        self.ids[value] = None
        self.words[0] ^= value
        for place in self.places[value]:
            self.words[place] ^= value

    def restore(self, value: int) -> None:
        """Undo a removal, and exclude the value from now on: this bounds the loop."""
        self.remove(value)
        del self.ids[value]
        self.rejected.add(value)

    def peel_agreed(self) -> list[int]:
        """Remove all ids that several cells agree on; return the candidates of single cells.

        Two ids that share two cells leave a mixture with two votes, once in some hundred cases. It
        disappears as soon as one of them is removed, so ids with more votes go first. A mixture
        that was removed appears again, in the cells that it was wrongly put into, and is restored.
        """
        while len(self.ids) < _MAX_IDS:
            before = len(self.ids), len(self.rejected)
            pair, single = self._pass()
            if (len(self.ids), len(self.rejected)) != before:
                continue
            if not pair:
                return single
            self.remove(pair)
        return []

    def _pass(self) -> tuple[int, list[int]]:
        """Look at every cell once; return a value of two votes (or 0) and those of one vote."""
        pair, single = 0, []
        for cell in range(1, TRACED_WORDS):
            value = self.words[cell]
            if value == 0 or value in self.rejected:
                continue
            votes = self.votes(value, cell)
            if value in self.ids:
                if votes >= 2:
                    self.restore(value)
            elif votes >= _CERTAIN_VOTES:
                self.remove(value)
            elif votes == 2:
                pair = value
            elif votes == 1:
                single.append(value)
        return pair, single


def _search(table: _Table, candidates: list[int], budget: list[int]) -> _Table | None:
    """Remove ids that one cell supports; return the table whose words are all zero, or None."""
    for value in candidates:
        if budget[0] <= 0 or len(table.ids) >= _MAX_IDS:
            return None
        budget[0] -= 1
        attempt = table.copy()
        attempt.remove(value)
        further = attempt.peel_agreed()
        if not any(attempt.words):
            return attempt
        if (solved := _search(attempt, further, budget)) is not None:
            return solved
    return None
