"""Differences of frames: the rules, odd names and types, duplicates, tolerance, repairs."""

from __future__ import annotations

import pytest

from xorack.spark import diff


@pytest.fixture
def frame(spark):
    def make(rows, schema="id int, name string, price double"):
        return spark.createDataFrame(rows, schema)

    return make


def rows_of(frame):
    return sorted(map(tuple, frame.collect()), key=str)


def test_kinds(frame):
    left = frame([(1, "a", 1.0), (2, "b", 2.0), (3, "c", None), (None, "n", 0.0)])
    right = frame([(1, "a", 1.0), (2, "B", 2.5), (4, "d", 4.0), (None, "n", -0.0)])
    with diff(left, right, key="id") as d:
        print(d, d.summary(), d.first())
        assert rows_of(d.missing) == [(3, "c", None)]
        assert rows_of(d.extra) == [(4, "d", 4.0)]
        assert rows_of(d.changed) == [(2, ["name", "price"], ("b", 2.0), ("B", 2.5))]
        assert d.changed_columns == {"name": 1, "price": 1}
        assert rows_of(d.repair()) == [(2, "b", 2.0), (3, "c", None)]
        assert rows_of(d.deletions()) == [(4,)]
        assert rows_of(d.duplicates) == []
        assert not d.equal
    with diff(left, left, key="id") as d:
        print(d)
        assert d.equal
        assert d.missing.columns == left.columns
        assert d.changed.count() == 0
