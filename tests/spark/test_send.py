"""Units, folds and `send` where they are all that there is: on PySpark 3.5 as on later ones."""

from __future__ import annotations

import pyspark
import pytest
from pyspark.sql import functions as F

from xorack import traced, unit_id, xor
from xorack.spark import fold, register, request_id, send, stamp_of, unit

pytestmark = pytest.mark.spark

OLD = int(pyspark.__version__.split(".")[0]) < 4


@pytest.mark.parametrize("send_from", ["driver", "tasks"])
def test_sends_each_chain_once_under_ids_that_a_retry_keeps(spark, queue, send_from):
    words = spark.range(0, 300, numPartitions=4).select(
        F.concat(F.lit("file "), F.col("id") % 3).alias("tag"), F.col("id").alias("pos")
    )
    folded = fold(words.select("tag", unit("tag", "pos").alias("unit")), "tag", "unit")
    rows = folded.select("tag", "stamp", F.col("count").alias("finished"))

    def stumble(batches):
        from pyspark import TaskContext

        yield from batches
        if TaskContext.get().attemptNumber() < 2:
            raise RuntimeError("on purpose")

    rows = rows.mapInArrow(stumble, rows.schema)
    for _ in range(2):
        sent = send(rows, queue_url=queue.queue_url, run_id="r", step="s", send_from=send_from)
        assert (sent.requests, sent.chains) == (3, 3)
    requests = {(r.tag, r.id, r.stamp, r.finished) for r in queue.take()}
    assert requests == {
        (
            f"file {n}",
            request_id("r", "s", 0, "stamp", f"file {n}"),
            xor(*(traced(unit_id(f"file {n}", pos)) for pos in range(n, 300, 3))),
            100,
        )
        for n in range(3)
    }


def test_creates_with_the_stamps_of_single_units(spark, queue):
    roots = spark.createDataFrame([("a",), ("b",)], "tag string").select(
        "tag",
        F.lit("create").alias("op"),
        stamp_of(unit("tag")).alias("stamp"),
        F.lit(1).cast("long").alias("started"),
        F.lit('{"of": 1}').alias("detail"),
    )
    send(roots, queue_url=queue.queue_url, run_id="r", step="s")
    found = {(r.op, r.tag, r.stamp, r.started, r.detail["of"]) for r in queue.take()}
    assert found == {("create", tag, traced(unit_id(tag)), 1, 1) for tag in ("a", "b")}


@pytest.mark.skipif(not OLD, reason="PySpark 4 has the data source API")
def test_an_old_pyspark_is_told_what_to_use(spark):
    with pytest.raises(
        RuntimeError, match=r"needs PySpark 4\.0 or later .*; use xorack.spark.send"
    ):
        register(spark)
