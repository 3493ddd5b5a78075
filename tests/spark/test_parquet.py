"""Folding Parquet files in Python's tasks gives what folding the frame in the JVM gives."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions as F

from xorack import plain, traced, unit_id, xor
from xorack.spark import UnsuitableColumns, fold, fold_parquet, unit, xor_stamps
from xorack.spark import files as files_module

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
