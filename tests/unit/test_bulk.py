"""Arrays of units give the same ids and stamps as single units."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from xorack import plain, traced, unit_id
from xorack.core.errors import InvalidRequest
from xorack.core.stamp import xor
from xorack.spark.arrays import Folds, bounds_of_runs, fold_ids, stamp_bytes, unit_ids

LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
STAMPS = {"traced": traced, "plain": plain}
of_each_size = pytest.mark.parametrize("cells", [16, 64, 256, 1024])
of_each_kind = pytest.mark.parametrize("kind", STAMPS)


def fold_in_parts(ids, groups, number, size, kind="traced"):
    """Fold ids some at a time, and XOR the parts."""
    cuts = [slice(start, start + size) for start in range(0, len(ids), size)]
    return np.bitwise_xor.reduce([fold_ids(ids[cut], groups[cut], number, kind) for cut in cuts])


@given(st.lists(LONGS, max_size=50))
def test_ids_equal_those_of_single_units(column):
    assert unit_ids(np.array(column, np.int64)).tolist() == [unit_id(value) for value in column]


def test_ids_across_blocks():
    positions = np.arange(-5, 40_000)
    some = [0, 1, 16383, 16384, 16385, 32768, 40_004]
    assert unit_ids(positions)[some].tolist() == [unit_id(int(positions[at])) for at in some]


@of_each_kind
@pytest.mark.parametrize("number", [1, 2, 7, 300])
@pytest.mark.parametrize("units", [0, 1, 40, 5_000, 20_000])
def test_folds_equal_the_xor_of_single_stamps(kind, number, units):
    rng = np.random.default_rng(units * number)
    ids = rng.integers(1, 1 << 64, units, dtype=np.uint64)
    groups = rng.integers(0, number, units)
    stamp = STAMPS[kind]
    expected = [bytes(len(stamp(1)))] * number
    for group, unit in zip(groups.tolist(), ids.tolist(), strict=True):
        expected[group] = bytes(xor(expected[group], stamp(unit)))
    assert stamp_bytes(fold_ids(ids, groups, number, kind)) == expected


@of_each_size
@pytest.mark.parametrize(("number", "units"), [(1, 20_000), (3, 900)])
def test_folds_of_each_size_equal_the_xor_of_single_stamps(cells, number, units):
    ids, groups = unit_ids(np.arange(units)), np.arange(units) % number
    expected = [0] * number
    for group, unit in zip(groups.tolist(), ids.tolist(), strict=True):
        expected[group] ^= int.from_bytes(traced(unit, cells), "little")
    length = len(traced(1, cells))
    found = stamp_bytes(fold_ids(ids, groups, number, cells=cells))
    assert found == [stamp.to_bytes(length, "little") for stamp in expected]
    folds = Folds(cells=cells)
    folds.add(groups, ids)
    ((_, words, _),) = folds.results()
    assert stamp_bytes(words) == found


def test_all_strategies_of_fold_ids_give_the_same_stamps():
    """`fold_ids` folds one to three tables at a time, depending on the number of units."""
    ids, groups = unit_ids(np.arange(20_000)), np.arange(20_000) % 3
    at_once = fold_ids(ids, groups, 3)
    assert np.array_equal(fold_in_parts(ids, groups, 3, 500), at_once)
    alone = [fold_ids(ids[groups == group], groups[groups == 0], 1)[0] for group in range(3)]
    assert np.array_equal(alone, at_once)


def test_invalid_arguments_are_named():
    with pytest.raises(InvalidRequest, match="int32"):
        unit_ids(np.zeros(2, np.int32))
    with pytest.raises(InvalidRequest, match="2 dimensions"):
        unit_ids(np.zeros((2, 2), np.int64))
    with pytest.raises(InvalidRequest, match="kind"):
        fold_ids(unit_ids(np.zeros(1, np.int64)), np.zeros(1, np.intp), 1, "opaque")
    with pytest.raises(InvalidRequest, match="cells: 32, expected 16, 64, 256 or 1024"):
        fold_ids(unit_ids(np.zeros(1, np.int64)), np.zeros(1, np.intp), 1, cells=32)


@of_each_kind
def test_units_are_added_array_by_array(kind):
    rng = np.random.default_rng(5)
    folds, expected, stamp = Folds(kind), {}, STAMPS[kind]
    for rows in (0, 1, 300, 300):
        keys = rng.integers(-40, 40, rows).repeat(2)  # chains return in later runs
        ids = rng.integers(1, 1 << 64, len(keys), dtype=np.uint64)
        folds.add(keys, ids)
        for key, unit in zip(keys.tolist(), ids.tolist(), strict=True):
            before, count = expected.get(key, (bytes(len(stamp(1))), 0))
            expected[key] = bytes(xor(before, stamp(unit))), count + 1
    found = {}
    for keys, words, counts in folds.results(rows=7):
        assert len(keys) <= 7
        found |= dict(zip(keys, zip(stamp_bytes(words), counts.tolist(), strict=True), strict=True))
    assert found == expected


@of_each_kind
def test_long_runs_are_added_to_the_other_units_of_their_chain(kind):
    lengths = [3, 9_000, 2, 1, 8_192, 8_191, 20_000]
    keys = np.repeat([7, 7 - 9, 7, -2, 5, 7, 5], lengths)
    ids = unit_ids(np.arange(len(keys)))
    folds = Folds(kind)
    folds.add(keys, ids)
    (found, words, counts), *_ = folds.results()
    assert dict(zip(found, counts.tolist(), strict=True)) == {
        int(key): int((keys == key).sum()) for key in set(keys.tolist())
    }
    for key, stamp in zip(found, stamp_bytes(words), strict=True):
        units = ids[keys == key]
        groups = np.zeros(len(units), np.intp)
        assert [stamp] == stamp_bytes(fold_in_parts(units, groups, 1, 100, kind))


def test_units_with_counts():
    folds = Folds("plain")
    keys, counts = np.array([4, 4, -1, 4]), np.array([3, 0, 7, 1])
    folds.add(keys, unit_ids(keys), counts)
    folds.add(np.repeat([4, -1], [9_000, 8_192]), unit_ids(np.arange(17_192)), np.full(17_192, 2))
    (found, _, added), *_ = folds.results()
    assert dict(zip(found, added.tolist(), strict=True)) == {4: 18_004, -1: 16_391}


RUNS = st.lists(st.tuples(st.integers(-100, 100), st.integers(1, 20)), max_size=8)


def folded(runs):
    firsts, lengths = np.array(runs, np.int64).reshape(-1, 2).T
    return int(np.bitwise_xor.reduce(bounds_of_runs(firsts, lengths))), int(lengths.sum())


@given(RUNS, RUNS)
def test_bounds_and_count_identify_runs_without_repeated_numbers(runs, others):
    numbers = [
        [at for first, length in of for at in range(first, first + length)] for of in (runs, others)
    ]
    assume(len(set(numbers[0])) == len(numbers[0]))
    assert (folded(runs) == folded(others)) == (sorted(numbers[0]) == sorted(numbers[1]))


@given(st.integers(-(1 << 62), 1 << 62), st.lists(st.integers(1, 1_000), min_size=1, max_size=9))
def test_bounds_do_not_depend_on_the_cuts_of_a_run(first, lengths):
    firsts = first + np.cumsum([0, *lengths[:-1]])
    assert folded([(first, sum(lengths))]) == folded(list(zip(firsts, lengths, strict=True)))
