"""Read the ids of outstanding units out of a traced residual: what `xorack.core.stamp.peel` does.

Sources: Goodrich and Mitzenmacher, "Invertible Bloom Lookup Tables" (2011), and Eppstein et al.,
"What's the Difference? Efficient Set Reconciliation without Prior Context" (2011);
docs/adr/0004-peeling-by-votes.md has why cells vote.
"""

from __future__ import annotations

import struct

from xorack.core.stamp import TRACED_WORDS, Outstanding, words_of

__all__ = ["peeled"]

_UNPACK = struct.Struct(f"<{TRACED_WORDS}Q").unpack
_MOST_IDS = TRACED_WORDS
"""More ids than words cannot be told apart; a peeling that goes on longer is going astray."""
_CERTAIN = 3
"""Tables that must agree on an id for it to be taken at sight."""
_MOST_GUESSES = 256
"""Bounds the search among cells that only one table speaks for."""


class _Table:
    """A residual while it is peeled."""

    __slots__ = ("found", "places", "words", "wrong")

    def __init__(
        self,
        words: list[int],
        found: dict[int, None],
        wrong: set[int],
        places: dict[int, tuple[int, int, int, int, int]],
    ) -> None:
        self.words = words
        self.found = found  # in the order found; a dict, as a set has none
        self.wrong = wrong  # mixtures, taken and given back
        self.places = places  # shared by all copies: hashing is most of the work

    def copy(self) -> _Table:
        return _Table(self.words[:], self.found.copy(), self.wrong.copy(), self.places)

    def votes(self, value: int, cell: int) -> int:
        """How many tables hold ``value`` where it belongs; 0 if ``cell`` is not one of them."""
        places = self.places.get(value)
        if places is None:
            places = self.places[value] = words_of(value)
        if cell not in places:
            return 0
        words = self.words
        return sum(words[place] == value for place in places)

    def take(self, value: int) -> None:
        """XOR an id out of its cells."""
        self.found[value] = None
        self.words[0] ^= value
        for place in self.places[value]:
            self.words[place] ^= value

    def peel_agreed(self) -> list[int]:
        """Take out all ids that several cells agree on; return the candidates of a single cell.

        Those with the most votes go first: two ids that share two cells make a mixture with two
        votes, once in some hundred times, which is gone as soon as one of them is taken. A
        mixture that was taken all the same comes up again, in the cells that it was wrongly put
        into, and is given back.
        """
        while len(self.found) < _MOST_IDS:
            progress = False
            best, single = 0, []
            for cell in range(1, TRACED_WORDS):
                value = self.words[cell]
                if value == 0 or value in self.wrong:
                    continue
                votes = self.votes(value, cell)
                if value in self.found:
                    if votes >= 2:
                        self.take(value)
                        del self.found[value]
                        self.wrong.add(value)  # never again: so that it ends
                        progress = True
                elif votes >= _CERTAIN:
                    self.take(value)
                    progress = True
                elif votes == 2:
                    best = value
                elif votes == 1:
                    single.append(value)
            if progress:
                continue
            if not best:
                return single
            self.take(best)
        return []


def _peel_guessing(table: _Table, candidates: list[int], budget: list[int]) -> _Table | None:
    """Take out what rests on one cell, if the whole then ends with every word zero."""
    for value in candidates:
        if budget[0] <= 0 or len(table.found) >= _MOST_IDS:
            return None
        budget[0] -= 1
        attempt = table.copy()
        attempt.take(value)
        further = attempt.peel_agreed()
        if not any(attempt.words):
            return attempt
        ended = _peel_guessing(attempt, further, budget)
        if ended is not None:
            return ended
    return None


def peeled(residual: bytes) -> Outstanding:
    """Peel a traced residual that is not zero.

    Args:
        residual: 648 bytes, `xorack.core.stamp.TRACED_LENGTH`.

    Returns:
        The ids found and whether they are all.
    """
    table = _Table(list(_UNPACK(residual)), {}, set(), {})
    candidates = table.peel_agreed()
    if any(table.words) and candidates:
        table = _peel_guessing(table, candidates, [_MOST_GUESSES]) or table
    return Outstanding(frozenset(table.found), not any(table.words))
