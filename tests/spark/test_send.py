"""Units, folds and `send` where they are all that there is: on PySpark 3.5 as on later ones."""

from __future__ import annotations

import pyspark
import pytest
from pyspark.sql import functions as F

from xorack import traced, unit_id, xor
from xorack.spark import (
    InvalidOption,
    Sent,
    UnsuitableColumns,
    fold,
    register,
    request_id,
    send,
    send_rows,
    stamp_of,
    unit,
)

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


def test_rows_at_hand_are_sent_as_those_of_a_frame(spark, queue):
    rows = [
        {"tag": "b", "op": "create", "stamp": traced(7), "started": 1, "detail": '{"of": 1}'},
        {"tag": "b", "stamp": traced(8), "started": 2, "finished": 1, "timeout": None},
        {"tag": "b", "stamp": bytearray(traced(9)), "finished": 3},
        {"tag": "a", "op": "fail", "reason": "is no text"},
    ]
    given = {"queue_url": queue.queue_url, "run_id": "r", "step": "s"}
    schema = (
        "tag string, op string, stamp binary, started long, finished long, timeout double, "
        "detail string, reason string"
    )
    names = [field.split()[0] for field in schema.split(", ")]
    values = [[row.get(name) for name in names] for row in rows]
    for one in values:  # Spark takes bytes, but none of a class of their own
        one[2] = one[2] and bytes(one[2])
    frame = spark.createDataFrame(values, schema)
    of_frame = send(frame, **given)
    expected = queue.take()
    assert send_rows(iter(rows), **given) == of_frame
    assert queue.take() == expected
    assert [(r.op, r.tag, r.started, r.finished) for r in expected] == [
        ("fail", "a", 0, 0),
        ("create", "b", 1, 0),
        ("stamp", "b", 2, 4),
    ]
    assert send_rows([], **given) == Sent()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"tag": "a", "stamp": traced(1), "ends": 1}, "unknown column ends; rows may have tag, op"),
        ({"tag": "a", "stamp": "x"}, "column stamp of tag 'a': 'x', expected binary"),
        ({"tag": 7, "stamp": traced(1)}, "column tag of tag 7: 7, expected string"),
        (
            {"tag": "a", "stamp": traced(1), "finished": True},
            "column finished of tag 'a': True, expected bigint or int",
        ),
        ({"tag": "a", "stamp": traced(1), "finished": 1.0}, "column finished of tag 'a': 1.0"),
        ({"stamp": traced(1)}, "column tag is null"),
        ({"tag": "a"}, "stamp of tag 'a': stamp: None, expected bytes"),
    ],
)
def test_a_wrong_row_at_hand_is_named_and_nothing_is_sent(queue, row, message):
    good = {"tag": "b", "stamp": traced(2)}
    with pytest.raises(UnsuitableColumns, match=message):
        send_rows([good, row], queue_url=queue.queue_url, run_id="r", step="s")
    assert queue.take() == []


def test_rows_at_hand_are_sent_from_where_they_are(queue):
    with pytest.raises(InvalidOption, match=r"send_from: 'tasks', expected driver"):
        send_rows([], queue_url=queue.queue_url, run_id="r", step="s", send_from="tasks")
    with pytest.raises(InvalidOption, match=r"queue_url: there is no queue"):
        send_rows([], queue_url=f"{queue.endpoint}/1/other", run_id="r", step="s")


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
