"""Tracking on Spark Connect; the other tests of tracking run on a classic session."""

import pytest
from pyspark.sql import functions as F

from tests.spark.helpers import Acker
from xorack import peel, unit_id
from xorack.errors import ArgumentError, ColumnsError, OutputDiffersError
from xorack.spark import Tracking


@pytest.fixture
def job(connect, queue, tmp_path):
    """Return the session, a run on it and its rows, with some that are written."""
    tracking = Tracking(connect, queue.queue_url, "r", str(tmp_path / "records"), timeout=60)
    lines = tracking.rows("lines", chain="order", unit=["order", "line"])
    frame = connect.range(100).selectExpr(
        "id % 7 AS order", "CAST(id AS int) AS line", "id % 13 AS sku"
    )
    path = str(tmp_path / "lines")
    frame.write.parquet(path)
    return tracking, lines, path, tmp_path


def bill(lines, path):
    session = lines.tracking.spark
    rows = session.read.parquet(path).transform(lines.with_unit)
    return rows.groupBy("sku").agg(F.count("line").alias("lines"), *lines.evidence())


def test_two_jobs(job, queue):
    tracking, lines, path, folder = job
    tracking.check()
    assert lines.start(path).units == 100
    bill(lines, path).write.parquet(f"{folder}/billed")
    report = lines.finish(f"{folder}/billed")
    assert (report.proof, report.chains, report.units, report.missing) == ("written", 7, 100, 0)
    assert Acker(queue.bodies).statuses() == {"acked": 7}


def test_observed(job, queue):
    _, lines, path, folder = job
    lines.start(path)
    observed = lines.observe(bill(lines, path))
    observed.frame.write.parquet(f"{folder}/billed")
    assert lines.tracking.spark.read.parquet(f"{folder}/billed").columns == ["sku", "lines"]
    assert lines.finish(observed=observed).proof == "observed"
    assert Acker(queue.bodies).statuses() == {"acked": 7}


def test_unwritten_observation(job, monkeypatch):
    _, lines, path, _ = job
    lines.start(path)
    monkeypatch.setattr("xorack.spark.evidence._PATIENCE_SECONDS", 0.1)
    with pytest.raises(ArgumentError, match="was not written"):
        lines.finish(observed=lines.observe(bill(lines, path)))


def test_rows_that_are_lost_on_disk_and_come_back(job, queue):
    _, lines, path, folder = job
    lines.start(path)
    session = lines.tracking.spark
    less = session.read.parquet(path).where("line NOT IN (3, 50, 51)")
    less.write.parquet(f"{folder}/less")
    bill(lines, f"{folder}/less").write.parquet(f"{folder}/billed")
    with pytest.raises(OutputDiffersError, match="97 of 100 units of 'lines'"):
        lines.finish(f"{folder}/billed")
    assert lines.finish(f"{folder}/billed", rows=less).missing == 3
    acker = Acker(queue.bodies)
    ids = {id for c in acker.chains.values() if c.status == "open" for id in peel(c.stamp).ids}
    found = lines.rows_of(session.read.parquet(path), [*ids, unit_id("r/lines", 9, 9)])
    assert {row["line"] for row in found.rows.collect()} == {3, 50, 51}
    assert found.unknown == {unit_id("r/lines", 9, 9)}
    bill(lines, path).write.parquet(f"{folder}/all")
    lines.finish(f"{folder}/all")
    acker.apply(queue.bodies)
    assert acker.statuses() == {"acked": 7}


def test_an_error_in_a_task_is_one_line(job, queue):
    _, lines, path, _ = job
    session = lines.tracking.spark
    broken = session.read.parquet(path).withColumn("line", F.expr("nullif(line, 5)"))
    with pytest.raises(ColumnsError, match=r"^unit column line is null; a unit needs a value$"):
        lines.start(broken)
    assert queue.bodies == []


def test_a_queue_that_is_not_there(job):
    tracking, *_ = job
    other = Tracking(tracking.spark, tracking.queue_url + "x", "r", tracking.records)
    with pytest.raises(ArgumentError, match="there is no queue"):
        other.check()


@pytest.mark.slow
def test_a_job_in_between(job, queue):
    tracking, lines, path, folder = job
    parcels = tracking.rows("parcels", chain="order", unit=["order", "sku"])
    lines.start(path)
    rows = tracking.spark.read.parquet(path).transform(lines.with_unit)
    packed = rows.groupBy("order", "sku").agg(F.count("line").alias("lines"), *lines.evidence())
    packed.write.parquet(f"{folder}/parcels")
    assert lines.advance(parcels, f"{folder}/parcels").units == 100
    acker = Acker(queue.bodies)
    assert acker.statuses() == {"open": 7}
    parcels.finish(f"{folder}/parcels")
    acker.apply(queue.bodies)
    assert acker.statuses() == {"acked": 7}
