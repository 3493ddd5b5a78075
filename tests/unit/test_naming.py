"""Which units groups lost, by their sums: those that explain every group, or none."""

from __future__ import annotations

import random
from functools import reduce
from operator import xor

import pytest

from xorack.spark.missing.naming import MAX_SOLVED, Group, name_missing

_RANDOM = random.Random(28)


def units_of(size):
    return [_RANDOM.getrandbits(64) - (1 << 63) for _ in range(size)]


def group_of(lost, sign=1):
    return Group(sign * len(lost), reduce(xor, lost, 0), sign * sum(unit >> 32 for unit in lost))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("size", [1, 2, 30, MAX_SOLVED])
@pytest.mark.parametrize("count", [1, 2, 3, 20])
def test_one_xor_names_the_units_of_a_group(size, count, sign):
    """Those that it lost, or has twice; not if the XOR or the sum is of others."""
    units = units_of(size)
    lost = frozenset(units[:count])
    group = group_of(lost, sign)
    assert name_missing({5: group}, {5: units}) == {5: lost}
    assert name_missing({5: group._replace(xor=group.xor ^ 12345)}, {5: units}) is None
    assert name_missing({5: group._replace(sum=group.sum + 1)}, {5: units}) is None


def test_all_groups_are_explained_or_none():
    groups, members = {}, {}
    for key in range(20):
        members[key] = units_of(10)
        groups[key] = group_of(members[key][: 1 + key % 5])
    named = name_missing(groups, members)
    assert named == {key: frozenset(members[key][: 1 + key % 5]) for key in groups}
    # A row of one group is in another: neither has the sums of units that are its own.
    other = members[3][0]
    changed = groups[7]._replace(
        missing_count=groups[7].missing_count - 1, xor=groups[7].xor ^ other
    )
    assert name_missing({**groups, 7: changed}, members) is None


def test_units_that_are_not_told_apart():
    assert name_missing({0: Group(3, 6, 0)}, {0: [1, 2, 3, 4, 5]}) is None  # 1 ^ 2 ^ 5, 1 ^ 3 ^ 4
    assert name_missing({0: Group(1, 7, 0)}, {0: [7, 7]}) is None  # which of two equal ones?
    assert name_missing({0: Group(0, 7 ^ 9, 0)}, {0: [7, 9]}) is None
    assert name_missing({0: Group(2, 7, 0)}, {0: [7]}) is None
    assert name_missing({0: Group(1, 7, 0)}, {}) is None
    many = units_of(MAX_SOLVED + 1)
    assert name_missing({0: group_of(many[:3])}, {0: many}) is None


def test_a_set_of_the_xor_is_no_other_by_chance():
    """Of groups of 48 units, 1 in 2 ** 16 random sums has a set; its size and sum do not fit."""
    for _ in range(300):
        units = units_of(MAX_SOLVED)
        wrong = Group(_RANDOM.randrange(1, 9), _RANDOM.getrandbits(63), _RANDOM.getrandbits(33))
        assert name_missing({0: wrong}, {0: units}) is None
