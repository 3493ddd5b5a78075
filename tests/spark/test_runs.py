"""Runs of consecutive numbers in Parquet files: filled in by Spark, and folded by their bounds."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PythonException

from xorack.spark import consecutive, files, fold_runs
from xorack.spark import runs as runs_module
from xorack.spark.arrays import bounds_of_runs


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Write files of many row groups; return their URIs and the rows after filling in."""
    rng, folder = random.Random(3), tmp_path_factory.mktemp("runs")
    uris, rows = [], []
    for number in range(3):
        stored, full = [], []
        while len(full) < 4_000:
            first, length = rng.randrange(1 << 50), rng.choice([1, 2, 30, 700])
            full += range(first, first + length)
            stored += [first, *[None] * (length - 1)]
        file = folder / f"{number}.parquet"
        words = [f"w{at % 7}" for at in range(len(full))]
        table = pa.table({"word": words, "at": pa.array(stored, pa.int64())})
        pq.write_table(table, file, row_group_size=100)
        uris.append(file.as_uri())
        rows += zip(words, full, strict=True)
    return uris, rows


@pytest.fixture
def starts_with_null(tmp_path):
    file = tmp_path / "some.parquet"
    table = {"at": pa.array([None, 5, None], pa.int64()), "small": pa.array([1, 2, 3], pa.int32())}
    pq.write_table(pa.table(table), file)
    return file.as_uri()


def test_consecutive_fills_a_column_in(spark, written, starts_with_null):
    uris, rows = written
    spark.conf.set("spark.sql.files.maxPartitionBytes", 4_000)  # tasks start within files
    try:
        frame = consecutive(spark.read.parquet(*uris), "at")
        assert frame.columns == ["word", "at"]
        assert sorted(map(tuple, frame.collect())) == sorted(rows)
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    filled = consecutive(spark.read.parquet(starts_with_null), "at").orderBy("small")
    assert [row["at"] for row in filled.collect()] == [None, 5, 6]


@pytest.mark.parametrize(("at_hand", "task_bytes"), [(1 << 25, 1), (0, 400), (0, 1 << 25)])
def test_runs_are_folded_alike_in_the_driver_and_in_tasks(
    spark, written, monkeypatch, at_hand, task_bytes
):
    monkeypatch.setattr(runs_module, "_AT_HAND_BYTES", at_hand)
    monkeypatch.setattr(files, "TASK_BYTES", task_bytes)
    monkeypatch.setattr(files, "LEAST_TASK_BYTES", 1)
    uris, rows = written
    folded = fold_runs(spark, uris, "at", shift=47)
    assert sum(of.rows for of in folded.values()) == len(rows)
    # The expected bounds take each row as a run of its own.
    for key, of in folded.items():
        mine = np.array([at for _, at in rows if at >> 47 == key])
        bounds = np.bitwise_xor.reduce(bounds_of_runs(mine, np.ones(len(mine), np.int64)))
        assert of == (len(mine), int(bounds.view(np.int64)))


@pytest.mark.parametrize(
    ("at_hand", "column", "message"),
    [
        (1 << 25, "at", "column at is null in the first row of file:"),
        (1 << 25, "small", "unit column small of file:"),
        (1 << 25, "place", "has no column place: it has at, small"),
        (0, "at", "column at is null in the first row of file:"),
    ],
)
def test_an_invalid_column_is_named(spark, starts_with_null, monkeypatch, at_hand, column, message):
    monkeypatch.setattr(runs_module, "_AT_HAND_BYTES", at_hand)
    with pytest.raises((ValueError, PythonException), match=message):
        fold_runs(spark, [starts_with_null], column)


def test_no_files_and_a_missing_file(spark, starts_with_null):
    assert fold_runs(spark, [], "at") == {}
    with pytest.raises(FileNotFoundError, match=r"gone\.parquet"):
        fold_runs(spark, [f"{starts_with_null}.gone.parquet"], "at")


def test_can_read_knows_the_file_systems_of_pyarrow(tmp_path):
    assert files.can_read(tmp_path.as_uri())
    assert not files.can_read("nothing://bucket/words")
