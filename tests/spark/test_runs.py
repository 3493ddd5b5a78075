"""Runs of consecutive numbers in Parquet files: filled in, folded, and seen by their ends."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PythonException

from tests.spark.test_parquet import by_key, failure
from xorack import plain, traced, unit_id, xor
from xorack.spark import consecutive, fold_parquet, fold_runs
from xorack.spark import files as files_module
from xorack.spark import runs as runs_module
from xorack.spark.arrays import bounds_of_runs

pytestmark = pytest.mark.spark


@pytest.fixture
def runs(tmp_path):
    """Files of many row groups, with what `consecutive` fills in; and the values that are meant."""
    rng = random.Random(3)
    uris, meant = [], []
    for number in range(3):
        stored, full = [], []
        while len(full) < 4_000:
            first, length = rng.randrange(1 << 50), rng.choice([1, 2, 30, 700])
            full += range(first, first + length)
            stored += [first, *[None] * (length - 1)]
        file = tmp_path / f"{number}.parquet"
        words = [f"w{at % 7}" for at in range(len(full))]
        table = pa.table({"word": words, "at": pa.array(stored, pa.int64())})
        pq.write_table(table, file, row_group_size=100)
        uris.append(file.as_uri())
        meant += zip(words, full, strict=True)
    return uris, meant


@pytest.mark.parametrize("task_bytes", [3_000, 1 << 25])
def test_a_column_that_is_stored_where_it_does_not_count_on(spark, runs, monkeypatch, task_bytes):
    monkeypatch.setattr(files_module, "TASK_BYTES", task_bytes)
    monkeypatch.setattr(files_module, "LEAST_TASK_BYTES", 1)
    uris, meant = runs
    expected = {
        key: (xor(*(traced(unit_id(at)) for at in units)), len(units))
        for key in range(8)
        if (units := [at for _, at in meant if at % 8 == key])
    }
    folded = fold_parquet(
        spark,
        uris,
        "key",
        "at",
        consecutive="at",
        derived={"key": pc.bit_wise_and(pc.field("at"), pc.scalar(7))},
    )
    assert by_key(folded) == expected
    some = fold_parquet(
        spark, uris, "at", "at", kind="plain", consecutive="at", where=pc.field("at") < 1 << 48
    )
    assert by_key(some) == {at: (plain(unit_id(at)), 1) for _, at in meant if at < 1 << 48}


def test_such_a_column_filled_in_by_spark(spark, runs):
    uris, meant = runs
    # Tasks begin in the middle of files.
    spark.conf.set("spark.sql.files.maxPartitionBytes", 4_000)
    try:
        frame = consecutive(spark.read.parquet(*uris), "at")
        assert frame.columns == ["word", "at"]
        assert sorted(map(tuple, frame.collect())) == sorted(meant)
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")


def test_such_a_column_begins_with_a_value(spark, tmp_path):
    file = tmp_path / "some.parquet"
    table = {"at": pa.array([None, 5, None], pa.int64()), "small": pa.array([1, 2, 3], pa.int32())}
    pq.write_table(pa.table(table), file)
    uri = file.as_uri()
    assert "column at is null in the first row of file:" in failure(
        fold_parquet(spark, [uri], "at", "at", consecutive="at")
    )
    assert "unit column small of file:" in failure(
        fold_parquet(spark, [uri], "at", "at", consecutive="small")
    )
    assert "has no column place: it has at, small" in failure(
        fold_parquet(spark, [uri], "at", "at", consecutive="place")
    )
    filled = consecutive(spark.read.parquet(uri), "at").orderBy("small")
    assert [row["at"] for row in filled.collect()] == [None, 5, 6]


@pytest.mark.parametrize(("at_hand", "task_bytes"), [(1 << 25, 1), (0, 400), (0, 1 << 25)])
def test_runs_tell_which_rows_there_are(spark, runs, monkeypatch, at_hand, task_bytes):
    monkeypatch.setattr(runs_module, "_AT_HAND_BYTES", at_hand)
    monkeypatch.setattr(files_module, "TASK_BYTES", task_bytes)
    monkeypatch.setattr(files_module, "LEAST_TASK_BYTES", 1)
    uris, meant = runs
    found = fold_runs(spark, uris, "at", shift=47)
    assert sum(of.rows for of in found.values()) == len(meant)
    # Whatever is a run here: each row by itself.
    for key, told in found.items():
        mine = np.array([at for _, at in meant if at >> 47 == key])
        bounds = np.bitwise_xor.reduce(bounds_of_runs(mine, np.ones(len(mine), np.int64)))
        assert told == (len(mine), int(bounds.view(np.int64)))


@pytest.mark.parametrize("at_hand", [0, 1 << 25])
def test_runs_of_nothing_and_of_what_is_no_such_column(spark, tmp_path, monkeypatch, at_hand):
    monkeypatch.setattr(runs_module, "_AT_HAND_BYTES", at_hand)
    assert fold_runs(spark, [], "at") == {}
    file = tmp_path / "some.parquet"
    table = {"at": pa.array([None, 5], pa.int64()), "small": pa.array([1, 2], pa.int32())}
    pq.write_table(pa.table(table), file)
    for column, message in [
        ("at", "column at is null in the first row of file:"),
        ("small", "unit column small of file:"),
        ("place", "has no column place: it has at, small"),
    ]:
        with pytest.raises((ValueError, PythonException), match=message):
            fold_runs(spark, [file.as_uri()], column)
    with pytest.raises(FileNotFoundError, match=r"gone\.parquet"):
        fold_runs(spark, [f"{file.as_uri()}.gone.parquet"], "at")
