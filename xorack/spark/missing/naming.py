"""Find the missing units of a group from the sums of the group. Plain Python.

The XOR of a group's units on both sides is the XOR of its missing units. The ids are 64 random
bits. Several dozen random ids are almost always linearly independent over GF(2), so their XOR
determines which ids are missing.
"""

from __future__ import annotations

from collections.abc import Sequence

MAX_SOLVED = 48
"""Most units of a group. Another set has the same XOR with a probability of 2 ** -16."""
_MASK = (1 << 64) - 1


def name_missing(missing_count: int, xor: int, sum_: int, members: Sequence[int]) -> list[int]:
    """Return the only set of members that has these sums, or an empty list.

    The count and the sum of the upper 32 bits are the sums of the source minus the sums of the
    output. They are negative if the output has surplus units. The XOR is over the units on both
    sides.
    """
    by_id, count = {unit & _MASK: unit for unit in members}, abs(missing_count)
    if len(by_id) < len(members) or not 0 < count <= len(by_id) <= MAX_SOLVED:
        return []  # if two members are equal, it is unknown which of them is missing
    units = [by_id[unit] for unit in _solve([*by_id], xor & _MASK)]
    upper = sum(unit >> 32 for unit in units)
    is_right = len(units) == count and sum_ == (upper if missing_count > 0 else -upper)
    return units if is_right else []


def _solve(units: Sequence[int], wanted: int) -> list[int]:
    """Solve by Gaussian elimination. Return an empty list unless exactly one set has the XOR."""
    basis: list[tuple[int, int]] = []

    def reduced(value: int, members: int) -> tuple[int, int]:
        for other, others in basis:
            if value ^ other < value:
                value, members = value ^ other, members ^ others
        return value, members

    for place, unit in enumerate(units):
        value, members = reduced(unit, 1 << place)
        if not value:
            return []
        basis.append((value, members))
    rest, members = reduced(wanted, 0)
    return [] if rest else [unit for place, unit in enumerate(units) if members >> place & 1]
