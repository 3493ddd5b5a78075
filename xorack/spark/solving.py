"""Which units of a group are missing: those whose XOR is what the evidence lacks.

The ids are 64 random bits, so sets of a few dozen are linearly independent over GF(2): one XOR then
tells all that are missing, however many. In larger groups, up to four are found by their sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

MOST_INDEPENDENT = 48
"""Units of a group that one XOR of 64 bits tells apart: another set has it by 1 in 2 ** 16."""
MOST_SEARCHED = {1: 1 << 20, 2: 1 << 16, 3: 400, 4: 400}
"""By the number of missing units: the largest group that is searched, in some 0.1 s at most."""
_MASK = (1 << 64) - 1


def missing_units(units: Sequence[int], difference: int, count: int) -> frozenset[int]:
    """Find `count` units of a group, no two of them equal, whose XOR is a difference.

    Returns:
        The units as they were given; empty if no set of that size is found, or if several may be.
    """
    if not 0 < count <= len(units):
        return frozenset()
    given = {unit & _MASK: unit for unit in units}
    wanted = difference & _MASK
    found: Sequence[int] | None = None
    if len(units) <= MOST_INDEPENDENT and count > 2:
        found = _solve(list(given), wanted)
    elif len(units) <= MOST_SEARCHED.get(count, 0):
        found = _search(given, wanted, count)
    exact = found is not None and len(set(found)) == count
    return frozenset(given[unit] for unit in found or () if exact)


def _solve(units: Sequence[int], wanted: int) -> list[int] | None:
    """Solve by Gaussian elimination; None if no set, or more than one, has the sum."""
    basis: list[tuple[int, int]] = []

    def reduced(value: int, members: int) -> tuple[int, int]:
        for other, others in basis:
            if value ^ other < value:
                value, members = value ^ other, members ^ others
        return value, members

    for place, unit in enumerate(units):
        value, members = reduced(unit, 1 << place)
        if not value:
            return None
        basis.append((value, members))
    rest, members = reduced(wanted, 0)
    return None if rest else [unit for place, unit in enumerate(units) if members >> place & 1]


def _search(units: dict[int, int], wanted: int, count: int) -> Sequence[int] | None:
    """Find one to four units by their sum: halves of the set, one of which is looked up."""
    if count == 1:
        return [wanted] if wanted in units else None
    if count < 4:
        for some in combinations(units, count - 1):
            last = wanted
            for unit in some:
                last ^= unit
            if last in units and last not in some:
                return [*some, last]
        return None
    pairs: dict[int, tuple[int, int]] = {}
    for one, other in combinations(units, 2):
        if match := pairs.get(wanted ^ one ^ other):
            return [*match, one, other]
        pairs[one ^ other] = (one, other)
    return None
