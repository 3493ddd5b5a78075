"""Units, folds and stamps of the JVM equal those of plain Python."""

from __future__ import annotations

import random
from functools import partial

import pytest
from pyspark.sql import functions as F

from xorack import plain, traced, unit_id, xor
from xorack.core.errors import InvalidRequest
from xorack.spark import (
    DuplicateUnits,
    NullUnits,
    UnsuitableColumns,
    check_units,
    fold,
    stamp_of,
    unit,
    with_unit,
)


def text(rng: random.Random) -> str:
    kinds = ((0x20, 0x7E), (0xA0, 0xD7FF), (0x10000, 0x10FFFF))
    return "".join(chr(rng.randint(*rng.choice(kinds))) for _ in range(rng.randrange(12)))


@pytest.fixture(scope="module")
def values():
    rng = random.Random(20)
    edges = [0, 1, -1, 2**63 - 1, -(2**63)]
    return [
        (
            edges[i] if i < len(edges) else rng.getrandbits(64) - 2**63,
            text(rng),
            rng.randbytes(rng.randrange(70)),
            rng.randrange(-(2**31), 2**31),
        )
        for i in range(1000)
    ]


@pytest.fixture(scope="module")
def frame(spark, values):
    return spark.createDataFrame(values, "l long, s string, b binary, i int").cache()


def test_units_equal_unit_id(frame, values):
    got = (
        with_unit(frame, "l", "s", "b", "i", name="all")
        .withColumn("swapped", unit("s", F.col("l")))
        .withColumn("one", unit("b"))
        .collect()
    )
    for (long, string, binary, small), row in zip(values, got, strict=True):
        assert row["all"] % 2**64 == unit_id(long, string, binary, small)
        assert row["swapped"] % 2**64 == unit_id(string, long)
        assert row["one"] % 2**64 == unit_id(binary)


FORMS = [("plain", 16, plain)]
FORMS += [("traced", cells, partial(traced, cells=cells)) for cells in (16, 64, 256, 1024)]


@pytest.mark.parametrize(("kind", "cells", "stamp"), FORMS)
def test_fold_is_the_xor_of_stamps(frame, values, kind, cells, stamp):
    units = with_unit(frame.repartition(3), "l", "i").withColumn("my key", F.pmod("l", F.lit(7)))
    expected = {}
    for long, _, _, small in values:
        expected.setdefault(long % 7, []).append(stamp(unit_id(long, small)))
    folded = fold(units, "my key", "unit", kind=kind, cells=cells, stamp="x", count="n")
    assert {row["my key"]: (bytes(row["x"]), row["n"]) for row in folded.collect()} == {
        key: (xor(*stamps), len(stamps)) for key, stamps in expected.items()
    }


def test_a_unit_twice_cancels_out_and_three_times_is_itself(spark):
    rows = [(1, 5), (1, 5), (2, 6), (2, 6), (2, 6)]
    folded = fold(spark.createDataFrame(rows, "key long, unit long"), "key", "unit").collect()
    assert {row["key"]: (bytes(row["stamp"]), row["count"]) for row in folded} == {
        1: (bytes(648), 2),
        2: (traced(6), 3),
    }


def test_stamp_of_is_the_stamp_of_one_unit(frame):
    columns = [stamp_of("unit", kind, cells) for kind, cells, _ in FORMS]
    rows = with_unit(frame, "l").select("unit", *columns).limit(100).collect()
    assert len(rows) == 100
    for one, *stamps in rows:
        assert list(map(bytes, stamps)) == [stamp(one) for _, _, stamp in FORMS]


def test_folds_are_combined_before_the_shuffle(frame):
    plan = fold(with_unit(frame, "l"), "i", "unit")._jdf.queryExecution().toString()
    assert "partial_bit_xor" in plan


def test_a_null_unit_column_is_named(spark):
    rows = spark.createDataFrame([(1, "a"), (2, None)], "l long, s string")
    with pytest.raises(Exception, match="unit column s is null"):
        rows.select(unit("l", "s")).collect()
    with pytest.raises(NullUnits, match="s in 1 rows"):
        check_units(rows, "l", "s")


def test_a_column_of_an_unsuitable_type_is_named(frame):
    with pytest.raises(Exception, match=r"unit column i is of the type int.*cast it"):
        frame.select(unit("i")).collect()
    with pytest.raises(UnsuitableColumns, match=r"d \(double\)"):
        with_unit(frame.withColumn("d", F.lit(0.5)), "l", "d")


def test_missing_columns_and_an_invalid_kind_are_named(frame):
    with pytest.raises(UnsuitableColumns, match=r"unit columns x, y .* which has l, s, b, i"):
        with_unit(frame, "x", "l", "y")
    with pytest.raises(UnsuitableColumns, match="key column x"):
        fold(frame, "x", "l")
    with pytest.raises(UnsuitableColumns, match="at least one"):
        unit()
    with pytest.raises(UnsuitableColumns, match="kind: 'other'"):
        fold(frame, "i", "l", kind="other")
    for call in (partial(fold, frame, "i", "l"), partial(stamp_of, "l")):
        with pytest.raises(InvalidRequest, match="cells: 32"):
            call(cells=32)


def test_duplicate_units_are_named(spark):
    rows = spark.createDataFrame([(1, "a"), (1, "b"), (1, "a")], "l long, s string")
    check_units(rows.distinct(), "l", "s")
    with pytest.raises(DuplicateUnits, match=r"l=1, s='a' \(2 rows\)"):
        check_units(rows, "l", "s")
