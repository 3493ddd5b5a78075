"""Which units are missing from groups, by the sums of each group; plain Python.

The XOR of a group's units on both sides is that of its missing units. The ids are 64 random bits:
a few dozen are linearly independent over GF(2), so one XOR tells which of them are missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

MAX_SOLVED = 48
"""Units of a group that one XOR tells apart: another set has it with a probability of 2 ** -16."""
_MASK = (1 << 64) - 1


class Group(NamedTuple):
    """What the sums of a group differ in: those of the source less those of the output.

    Attributes:
        missing_count: The units that are missing from the output; negative, if it has too many.
        xor: The XOR of the units on both sides.
        sum: The difference of the sums of their upper 32 bits.
    """

    missing_count: int
    xor: int
    sum: int


def name_missing(
    groups: Mapping[int, Group], members: Mapping[int, Sequence[int]]
) -> dict[int, frozenset[int]] | None:
    """Name the units that groups lost or have twice; None unless they explain every group.

    Args:
        groups: The groups that differ, by key.
        members: The units that may be missing: all of a small group, or the one that its XOR is.
    """
    named: dict[int, frozenset[int]] = {}
    for key, group in groups.items():
        units = _of_group(group, members.get(key, ()))
        if not units:
            return None
        named[key] = units
    return named


def _of_group(group: Group, members: Sequence[int]) -> frozenset[int]:
    """Return the only set of members that has the sums of a group; empty without such a set."""
    given, count = {unit & _MASK: unit for unit in members}, abs(group.missing_count)
    if len(given) < len(members) or not 0 < count <= len(given) <= MAX_SOLVED:
        return frozenset()  # of two equal members, nobody can say which one is missing
    units = frozenset(given[unit] for unit in _solve([*given], group.xor & _MASK))
    upper = sum(unit >> 32 for unit in units)
    is_right = len(units) == count and group.sum == (upper if group.missing_count > 0 else -upper)
    return units if is_right else frozenset()


def _solve(units: Sequence[int], wanted: int) -> list[int]:
    """Solve by Gaussian elimination; empty if no set, or more than one, has the XOR."""
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
