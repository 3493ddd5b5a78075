"""The units that groups of an output lack, by the sums of each group; plain Python.

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
        lack: The units that the output lacks; negative, if it has too many.
        difference: The XOR of the units on both sides.
        sum: The difference of the sums of their upper 32 bits.
    """

    lack: int
    difference: int
    sum: int


def name_missing(
    groups: Mapping[int, Group], members: Mapping[int, Sequence[int]]
) -> dict[int, frozenset[int]] | None:
    """Name the units that groups lack, or have twice; None unless they explain every group.

    Args:
        groups: The groups that differ, by key.
        members: The units that a group may lack: all of a small group, or the one that its XOR is.
    """
    named = {key: _of_group(group, members.get(key, ())) for key, group in groups.items()}
    return (
        None
        if None in named.values()
        else {key: some or frozenset() for key, some in named.items()}
    )


def _of_group(group: Group, members: Sequence[int]) -> frozenset[int] | None:
    """Return the only set of members that has the sums of a group; None without such a set."""
    given = {unit & _MASK: unit for unit in members}
    if len(given) < len(members) or not 0 < abs(group.lack) <= len(given) <= MAX_SOLVED:
        return None  # of two equal members, nobody can say which one is missing
    found = _solve([*given], group.difference & _MASK)
    if found is None or len(found) != abs(group.lack):
        return None
    units = [given[unit] for unit in found]
    sign = 1 if group.lack > 0 else -1
    return frozenset(units) if sign * sum(unit >> 32 for unit in units) == group.sum else None


def _solve(units: Sequence[int], wanted: int) -> list[int] | None:
    """Solve by Gaussian elimination; None if no set, or more than one, has the XOR."""
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
