"""Units, folds and `send` without the data source: on PySpark 3.5 as on later ones."""

from __future__ import annotations

import pyspark
import pytest
from pyspark.sql import functions as F

from tests.spark.helpers import fail_first_attempt
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

OLD = int(pyspark.__version__.split(".")[0]) < 4


@pytest.fixture
def target(queue):
    return {"queue_url": queue.queue_url, "run_id": "r", "step": "s"}


@pytest.mark.parametrize("send_from", ["driver", "tasks"])
def test_each_chain_is_sent_once_under_ids_that_a_retry_keeps(spark, queue, target, send_from):
    words = spark.range(0, 300, numPartitions=4).select(
        F.concat(F.lit("file "), F.col("id") % 3).alias("tag"), F.col("id").alias("pos")
    )
    units = words.select("tag", unit("tag", "pos").alias("unit"))
    rows = fold(units, "tag", "unit", count="finished")
    rows = rows.mapInArrow(fail_first_attempt, rows.schema)
    for _ in range(2):
        sent = send(rows, **target, send_from=send_from)
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


def test_send_rows_sends_the_same_as_send(spark, queue, target):
    rows = [
        {"tag": "b", "op": "create", "stamp": traced(7), "started": 1, "detail": '{"of": 1}'},
        {"tag": "b", "stamp": traced(8), "started": 2, "finished": 1, "timeout": None},
        {"tag": "b", "stamp": bytearray(traced(9)), "finished": 3},
        {"tag": "a", "op": "fail", "reason": "is no text"},
    ]
    schema = (
        "tag string, op string, stamp binary, started long, finished long, timeout double, "
        "detail string, reason string"
    )
    # Spark takes bytes, but not a subclass of bytes.
    plain = [{**row, "stamp": row.get("stamp") and bytes(row["stamp"])} for row in rows]
    from_frame = send(spark.createDataFrame(plain, schema), **target)
    expected = queue.take()
    assert send_rows(iter(rows), **target) == from_frame
    assert queue.take() == expected
    assert [(r.op, r.tag, r.started, r.finished) for r in expected] == [
        ("fail", "a", 0, 0),
        ("create", "b", 1, 0),
        ("stamp", "b", 2, 4),
    ]
    assert send_rows([], **target) == Sent()


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
def test_send_rows_names_an_invalid_row_and_sends_nothing(queue, target, row, message):
    with pytest.raises(UnsuitableColumns, match=message):
        send_rows([{"tag": "b", "stamp": traced(2)}, row], **target)
    assert queue.take() == []


def test_send_rows_names_invalid_options(queue, target):
    with pytest.raises(InvalidOption, match=r"send_from: 'tasks', expected driver"):
        send_rows([], **target, send_from="tasks")
    with pytest.raises(InvalidOption, match=r"queue_url: there is no queue"):
        send_rows([], **{**target, "queue_url": f"{queue.endpoint}/1/other"})


def test_creates_carry_the_stamps_of_single_units(spark, queue, target):
    roots = spark.createDataFrame([("a",), ("b",)], "tag string").select(
        "tag",
        F.lit("create").alias("op"),
        stamp_of(unit("tag")).alias("stamp"),
        F.lit(1).cast("long").alias("started"),
        F.lit('{"of": 1}').alias("detail"),
    )
    send(roots, **target)
    found = {(r.op, r.tag, r.stamp, r.started, r.detail["of"]) for r in queue.take()}
    assert found == {("create", tag, traced(unit_id(tag)), 1, 1) for tag in ("a", "b")}


@pytest.mark.skipif(not OLD, reason="PySpark 4 has the data source API")
def test_register_on_an_old_pyspark_recommends_send(spark):
    with pytest.raises(
        RuntimeError, match=r"needs PySpark 4\.0 or later .*; use xorack.spark.send"
    ):
        register(spark)
