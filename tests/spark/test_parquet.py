"""Folding Parquet files in Python's tasks gives what folding the frame in the JVM gives."""

from __future__ import annotations

import random
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions as F

from xorack import plain, traced, unit_id, xor
from xorack.bulk import bounds_of_runs
from xorack.spark import (
    UnsuitableColumns,
    consecutive,
    fold,
    fold_parquet,
    fold_runs,
    unit,
    xor_stamps,
)
from xorack.spark import files as files_module
from xorack.spark import runs as runs_module

pytestmark = pytest.mark.spark


def written(frame, place, **options):
    frame.write.options(**options).parquet(str(place))
    return frame.sparkSession.read.parquet(re.sub(r"([\\*?{}\[\]])", r"\\\1", str(place)))


def by_key(frame):
    return {row[0]: (bytes(row[1]), row[2]) for row in frame.collect()}


@pytest.fixture(scope="module")
def rows(spark):
    """Chains that follow each other, and some whose rows are all over the place."""
    return spark.range(0, 30_000, 1, 3).select(
        F.when(F.col("id") < 20_000, F.floor(F.col("id") / 700))
        .otherwise(F.xxhash64(F.col("id") % 50))
        .alias("chain"),
        F.col("id").alias("pos"),
        F.lit("word").alias("word"),
    )


@pytest.mark.parametrize("kind", ["traced", "plain"])
def test_it_is_the_fold_of_the_frame(spark, rows, tmp_path, kind, monkeypatch):
    frame = written(rows, tmp_path / "a b%41*[é]", **{"parquet.block.size": 1 << 16})
    expected = by_key(fold(frame, "chain", unit("chain", "pos"), kind=kind))
    files = frame.inputFiles()
    assert by_key(fold_parquet(spark, files, "chain", "chain", "pos", kind=kind)) == expected
    # However it is shared out, and however little is looked at at a time.
    monkeypatch.setattr(files_module, "TASK_BYTES", 50_000)
    monkeypatch.setattr(files_module, "LEAST_TASK_BYTES", 1)
    assert len(files_module.slices_of(files_module.with_sizes(files), 2)) > 3
    assert by_key(fold_parquet(spark, files, "chain", "chain", "pos", kind=kind)) == expected


def test_names_and_other_columns(spark, rows, tmp_path):
    frame = written(rows, tmp_path / "rows")
    folded = fold_parquet(
        spark, frame.inputFiles(), "chain", "pos", kind="plain", stamp="ends", count="finished"
    )
    assert folded.columns == ["chain", "ends", "finished"]
    expected = fold(frame, "chain", unit("pos"), kind="plain")
    assert by_key(folded) == by_key(expected)


def test_rows_that_do_not_count(spark, rows, tmp_path):
    frame = written(rows, tmp_path / "rows")
    where = (pc.field("pos") >= 100) & (pc.field("word") == "word")
    folded = fold_parquet(spark, frame.inputFiles(), "chain", "chain", "pos", where=where)
    assert by_key(folded) == by_key(fold(frame.where("pos >= 100"), "chain", unit("chain", "pos")))


def test_no_rows(spark, rows, tmp_path):
    frame = written(rows.where("pos < 0"), tmp_path / "rows")
    assert fold_parquet(spark, frame.inputFiles(), "chain", "pos").collect() == []
    assert fold_parquet(spark, [], "chain", "pos").collect() == []


def failure(frame):
    with pytest.raises(PythonException) as raised:
        frame.collect()
    return str(raised.value)


def test_what_is_no_unit_is_named(spark, tmp_path):
    file = tmp_path / "some.parquet"
    table = {"chain": [1, 2], "pos": [0, None], "small": pa.array([1, 2], pa.int32())}
    pq.write_table(pa.table(table), file)
    uri = file.as_uri()
    assert "unit column pos is null in file:" in failure(
        fold_parquet(spark, [uri], "chain", "chain", "pos")
    )
    assert "unit column small of file:" in failure(fold_parquet(spark, [uri], "chain", "small"))
    assert "has no column place: it has chain, pos, small" in failure(
        fold_parquet(spark, [uri], "chain", "place")
    )
    with pytest.raises(UnsuitableColumns, match="at least one"):
        fold_parquet(spark, [uri], "chain")
    with pytest.raises(UnsuitableColumns, match="'opaque'"):
        fold_parquet(spark, [uri], "chain", "pos", kind="opaque")
    with pytest.raises(FileNotFoundError, match=r"gone\.parquet"):
        fold_parquet(spark, [f"{uri}.gone.parquet"], "chain", "pos")


def test_places_that_tasks_can_read(tmp_path):
    assert files_module.can_read(tmp_path.as_uri())
    assert not files_module.can_read("nothing://bucket/words")


def test_stamps_are_added_up(spark):
    stamps = [
        (key, bytes(traced(unit_id(key, at))), at) for key in range(3) for at in range(key + 1)
    ]
    frame = spark.createDataFrame([*stamps, (9, None, 4)], "k long, s binary, n long")
    found = {
        row["k"]: (row["s"], row["n"])
        for row in xor_stamps(frame, "k", stamp="s", count="n").collect()
    }
    assert found == {
        0: (traced(unit_id(0, 0)), 0),
        1: (xor(*(traced(unit_id(1, at)) for at in range(2))), 1),
        2: (xor(*(traced(unit_id(2, at)) for at in range(3))), 3),
        9: (None, 4),
    }


def test_stamps_of_two_lengths_are_refused(spark):
    frame = spark.createDataFrame(
        [(1, bytes(traced(1)), 1), (1, bytes(plain(2)), 1)], "k long, s binary, n long"
    )
    assert "bytes for key 1, expected" in failure(xor_stamps(frame, "k", stamp="s", count="n"))


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
