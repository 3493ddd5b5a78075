"""The sums of a group name the units that it lost, or none."""

from __future__ import annotations

import random
from functools import reduce
from operator import xor

import pytest

from xorack.spark.missing.naming import MAX_SOLVED, name_missing

_RANDOM = random.Random(28)


def units_of(size):
    return [_RANDOM.getrandbits(64) - (1 << 63) for _ in range(size)]


def sums_of(lost, sign=1):
    return sign * len(lost), reduce(xor, lost, 0), sign * sum(unit >> 32 for unit in lost)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("size", [1, 2, 30, MAX_SOLVED])
@pytest.mark.parametrize("number", [1, 2, 3, 20])
def test_one_xor_names_the_units_of_a_group(size, number, sign):
    """Those that it lost, or has twice; none if the XOR, the count or the sum is of others."""
    units = units_of(size)
    lost = units[:number]
    count, folded, sum_ = sums_of(lost, sign)
    assert name_missing(count, folded, sum_, units) == lost
    for wrong in ((count, folded ^ 12345, sum_), (count, folded, sum_ + 1), (0, folded, sum_)):
        assert name_missing(*wrong, units) == []


def test_units_that_are_not_told_apart():
    assert name_missing(3, 6, 0, [1, 2, 3, 4, 5]) == []  # 1 ^ 2 ^ 5, 1 ^ 3 ^ 4
    assert name_missing(1, 7, 0, [7, 7]) == []  # which of two equal ones?
    assert name_missing(2, 7, 0, [7]) == name_missing(1, 7, 0, []) == []
    many = units_of(MAX_SOLVED + 1)
    assert name_missing(*sums_of(many[:3]), many) == []


def test_a_set_of_the_xor_is_no_other_by_chance():
    """Of groups of 48 units, 1 in 2 ** 16 random sums has a set; its size and sum do not fit."""
    for _ in range(300):
        units = units_of(MAX_SOLVED)
        wrong = (_RANDOM.randrange(1, 9), _RANDOM.getrandbits(63), _RANDOM.getrandbits(33))
        assert name_missing(*wrong, units) == []
