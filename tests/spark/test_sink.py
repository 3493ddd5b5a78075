"""`format("xorack")` and `send`: what arrives, under which ids, and how errors are named."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

from tests.spark.helpers import (
    fail_first_attempt,
    received,
    requests_for_three_chains,
    three_chains,
)
from xorack.core.errors import SendFailed
from xorack.spark import InvalidOption, UnsuitableColumns, fold, register, send, unit


@pytest.fixture(scope="module")
def never(rows):
    """Rows whose evaluation fails: a test of them proves that nothing ran."""
    return rows.where("raise_error('ran') IS NULL")


def options(queue, **changed):
    given = {"queueUrl": queue.queue_url, "runId": "r", "step": "s", **changed}
    return {name: value for name, value in given.items() if value is not None}


def write(df, queue, **changed):
    register(df.sparkSession)
    df.write.format("xorack").mode("append").options(**options(queue, **changed)).save()


@pytest.mark.parametrize("send_from", ["driver", "tasks"])
def test_a_write_with_a_retried_task_sends_each_chain_once(rows, queue, send_from):
    write(rows.mapInArrow(fail_first_attempt, rows.schema), queue, sendFrom=send_from)
    assert received(queue) == requests_for_three_chains()


def test_ungrouped_rows_become_one_request_a_chain(spark, queue):
    key = F.concat_ws("/", "tag", F.spark_partition_id().cast("string")).alias("key")
    units = three_chains(spark).select(key, unit("tag", "pos").alias("unit"))
    ungrouped = fold(units, "key", "unit").selectExpr(
        "substring_index(key, '/', 1) AS tag", "stamp", "count AS finished"
    )
    assert ungrouped.count() == 12  # three chains in each of four partitions
    write(ungrouped, queue)
    assert received(queue) == requests_for_three_chains()


def test_a_rejecting_queue_fails_the_write_and_a_repeat_sends_the_same(rows, queue, target):
    queue.refuse = lambda count: True
    with pytest.raises(Exception, match="messages not sent"):
        write(rows, queue)
    with pytest.raises(SendFailed):
        send(rows, **target)
    queue.refuse = lambda count: False
    write(rows, queue)
    assert received(queue) == requests_for_three_chains()


# The option parser has its tests in tests/unit; these show that Spark passes options on.
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"queueUrl": None}, "option queueUrl: is required"),
        ({"sendFrom": "moon"}, "option sendFrom: 'moon', expected driver or tasks"),
        ({"queueName": "x"}, "option queue[nN]ame: no such option"),
        (
            {"endpointUrl": "http://127.0.0.1:1"},
            "option queueUrl: http.*: Could not connect to the endpoint URL: .*127.0.0.1:1/",
        ),
    ],
)
def test_invalid_options_are_named_before_anything_runs(never, queue, changed, message):
    with pytest.raises(Exception, match=message):
        write(never, queue, **changed)
    assert queue.bodies == []


def test_a_missing_queue_is_named_before_anything_runs(never, queue, target):
    nowhere = queue.queue_url.replace("stamps", "nowhere")
    with pytest.raises(Exception, match=f"option queueUrl: there is no queue {nowhere}"):
        write(never, queue, queueUrl=nowhere)
    with pytest.raises(InvalidOption, match=f"option queue_url: there is no queue {nowhere}"):
        send(never, **{**target, "queue_url": nowhere})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["upper(tag) AS Tag", "stamp"], "column tag is missing of Tag, stamp; rows may have tag"),
        (["tag", "stamp", "finished AS count"], "unknown column count; rows may have tag"),
        (["1 AS tag", "stamp"], "column tag is of the type int, expected string"),
        (["tag", "hex(stamp) AS stamp"], "column stamp is of the type string, expected binary"),
        (["tag", "stamp", "stamp", "finished"], "column stamp is there 2 times"),
        (["tag", "stamp", "double(finished) AS finished"], "column finished is of the type double"),
    ],
)
def test_unsuitable_columns_are_named_before_anything_runs(never, queue, target, columns, message):
    frame = never.selectExpr(*columns)
    with pytest.raises(UnsuitableColumns, match=message):
        send(frame, **target)
    if "1 AS tag" in columns:  # the same check, in a process of its own
        with pytest.raises(Exception, match=message):
            write(frame, queue)
    assert queue.bodies == []


@pytest.mark.parametrize(
    ("tag", "stamp", "finished", "message"),
    [
        ("NULL", "X'01'", 1, "column tag is null in a row"),
        ("'b'", "NULL", 1, "stamp of tag 'b': stamp: None, expected bytes"),
        ("'file 0'", "X'01'", 1, "stamp of tag 'file 0': Buffer lengths are not equal: "),
        ("'file 0'", "stamp", -1, "stamp of tag 'file 0': finished: -1, expected 0 or more"),
    ],
)
def test_an_invalid_row_is_named_and_no_other_is_sent(
    spark, rows, queue, target, tag, stamp, finished, message
):
    few = spark.createDataFrame(rows.collect(), rows.schema).coalesce(1)
    invalid = few.limit(1).selectExpr(
        f"CAST({tag} AS string) AS tag",
        f"CAST({stamp} AS binary) AS stamp",
        f"CAST({finished} AS bigint) AS finished",
    )
    frame = few.unionByName(invalid)
    with pytest.raises(UnsuitableColumns, match=message):
        send(frame, **target)
    if tag == "NULL":
        with pytest.raises(Exception, match=message):
            write(frame, queue)
    assert queue.bodies == []


def test_invalid_arguments_of_send_are_named(rows, queue, target):
    with pytest.raises(InvalidOption, match="option run_id: is empty: ''"):
        send(rows, **{**target, "run_id": ""})
    with pytest.raises(UnsuitableColumns, match=r"stamp of tag 'file \d': stamp: None"):
        send(rows.drop("stamp"), **target)
    assert queue.bodies == []


def test_the_mode_overwrite_is_an_error(rows, queue):
    register(rows.sparkSession)
    with pytest.raises(Exception, match="use append"):
        rows.write.format("xorack").mode("overwrite").options(**options(queue)).save()


@pytest.fixture
def stream(spark, rows, queue, tmp_path):
    """Run a stream over all files of ``in``; returns the query's id."""
    register(spark)
    (tmp_path / "in").mkdir()
    source = spark.readStream.schema(rows.schema).parquet(str(tmp_path / "in"))

    def run(frame=source, **changed):
        writer = frame.writeStream.format("xorack").trigger(availableNow=True)
        given = {"runId": None, "checkpointLocation": str(tmp_path / "checkpoint"), **changed}
        query = writer.options(**options(queue, **given)).start()
        query.awaitTermination()
        return str(query.id)

    run.source, run.folder = source, tmp_path
    return run


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"queueUrl": None}, "option queueUrl: is required"),
        ({"runId": "r"}, "option run[iI]d: is for batch writes"),
        ({"queueUrl": "http://127.0.0.1:1/1/q"}, "option queueUrl: http.*Could not connect"),
    ],
)
def test_invalid_options_of_a_stream_are_named(rows, queue, stream, changed, message):
    rows.write.mode("append").parquet(str(stream.folder / "in"))
    with pytest.raises(Exception, match=message):
        stream(stream.source.where("raise_error('ran') IS NULL"), **changed)
    assert queue.bodies == []


def test_a_stream_sends_each_batch_under_its_own_ids(rows, queue, stream):
    for batch in range(2):
        rows.coalesce(1).write.mode("append").parquet(str(stream.folder / "in"))
        query_id = stream()
        assert received(queue) == requests_for_three_chains(query_id, batch)
    # Spark replays a batch without a commit: the same ids again.
    commits = stream.folder / "checkpoint" / "commits"
    (commits / "1").unlink()
    (commits / ".1.crc").unlink(missing_ok=True)
    assert stream() == query_id
    assert received(queue) == requests_for_three_chains(query_id, 1)
