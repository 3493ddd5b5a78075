"""Differences and audits on Spark Connect; the other tests run on a classic session."""

import pytest
from pyspark.sql import functions as F

from xorack.errors import ColumnsError
from xorack.spark import Counts, Tracking, diff
from xorack.spark._diff import pairing


@pytest.mark.parametrize("few", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_differences(connect, monkeypatch, few):
    monkeypatch.setattr(pairing, "_FEW", few)
    left = connect.range(100).selectExpr("id", "id / 7 AS x", "map('a', array(id)) AS m")
    right = left.where("id <> 3").withColumn("x", F.expr("if(id = 4, 0, x + 0.001)"))
    with diff(left, right, key="id", tolerance={"x": 0.01}) as d:
        assert d.counts == Counts(100, 99, 98, 1, 0, 1, 0, 0)
        assert d.changed_columns == {"x": 1}
        assert d.first()["missing"] == [{"id": 3, "x": 3 / 7, "m": {"a": [3]}}]
        assert [row["id"] for row in d.repair().orderBy("id").collect()] == [3, 4]
    with diff(left, left, key="id") as d:
        assert d.equal
        assert d.repair().schema.simpleString() == left.schema.simpleString()
        assert [frame.collect() for frame in (d.missing, d.changed, d.duplicates)] == [[], [], []]
    with pytest.raises(ColumnsError, match="column no is not in the left frame"):
        diff(left, left, key="no")


@pytest.mark.slow
def test_an_audit(connect, queue, tmp_path):
    tracking = Tracking(connect, queue.queue_url, "r", str(tmp_path / "records"))
    lines = tracking.rows("lines", chain="order", unit=["order", "line"])
    frame = connect.range(20).selectExpr("id % 3 AS order", "id AS line")
    lines.start(frame)
    audit = lines.audit(frame.where("line <> 7"))
    assert audit.chains == {"agree": 2, "short": 1}
    assert [row["line"] for row in audit.missing_rows(frame).collect()] == [7]
