"""The sink and `send`: what arrives, under which ids, and what wrong options get."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

from xorack import traced, unit_id, xor
from xorack.core.errors import SendFailed
from xorack.spark import InvalidOption, UnsuitableColumns, fold, register, request_id, send, unit

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def words(spark):
    return spark.range(0, 300, numPartitions=4).select(
        (F.col("id") % 3).alias("chain"),
        F.col("id").alias("pos"),
        F.concat(F.lit("file "), F.col("id") % 3).alias("tag"),
    )


@pytest.fixture(scope="module")
def rows(words):
    folded = fold(words.select("chain", unit("chain", "pos").alias("unit")), "chain", "unit")
    tags = words.select("chain", "tag").distinct()
    return folded.join(tags, "chain").select("tag", "stamp", F.col("count").alias("finished"))


def expected(run="r", batch=0):
    out = set()
    for chain in range(3):
        stamp = xor(*(traced(unit_id(chain, pos)) for pos in range(chain, 300, 3)))
        tag = f"file {chain}"
        out.add(("stamp", tag, request_id(run, "s", batch, "stamp", tag), stamp, 0, 100))
    return out


def taken(queue):
    requests = queue.take()
    assert len({(r.tag, r.id) for r in requests}) == len(requests)
    return {(r.op, r.tag, r.id, r.stamp, r.started, r.finished) for r in requests}


def write(df, queue, **options):
    register(df.sparkSession)
    given = {"queueUrl": queue.queue_url, "runId": "r", "step": "s", **options}
    writer = df.write.format("xorack").mode("append")
    for name, value in given.items():
        if value is not None:
            writer = writer.option(name, value)
    writer.save()


@pytest.mark.parametrize("send_from", ["driver", "tasks"])
def test_write_and_send_send_the_same(rows, queue, send_from):
    write(rows, queue, sendFrom=send_from)
    assert taken(queue) == expected()
    sent = send(rows, queue_url=queue.queue_url, run_id="r", step="s", send_from=send_from)
    assert taken(queue) == expected()
    assert (sent.requests, sent.chains) == (3, 3)
    assert sent.messages >= 1


def test_rows_that_are_not_grouped_are_folded_on_the_way(words, queue):
    """Each partition has some of each chain's units: still one request a chain."""
    some = words.withColumn("part", F.spark_partition_id().cast("long"))
    parts = fold(
        some.select(unit("chain", "part").alias("key"), "tag", unit("chain", "pos").alias("unit")),
        "key",
        "unit",
    )
    keys = some.select(unit("chain", "part").alias("key"), "tag").distinct()
    ungrouped = parts.join(keys, "key").select("tag", "stamp", F.col("count").alias("finished"))
    assert ungrouped.count() == 12
    write(ungrouped, queue)
    assert taken(queue) == expected()


def test_retried_tasks_change_nothing(rows, queue):
    def stumble(batches):
        from pyspark import TaskContext

        for batch in batches:
            yield batch
            if TaskContext.get().attemptNumber() < 2:
                raise RuntimeError("on purpose")

    write(rows.mapInArrow(stumble, rows.schema), queue)
    assert taken(queue) == expected()
    write(rows.mapInArrow(stumble, rows.schema), queue, sendFrom="tasks")
    assert taken(queue) == expected()


def test_another_run_or_step_has_other_ids(rows, queue):
    write(rows, queue)
    first = {r.id for r in queue.take()}
    write(rows, queue, runId="r2")
    second = {r.id for r in queue.take()}
    write(rows, queue, step="s2")
    third = {r.id for r in queue.take()}
    assert len(first | second | third) == 9


def test_a_refusing_queue_fails_the_write_and_a_repeat_sends_the_same(rows, queue):
    queue.refuse = lambda count: True
    with pytest.raises(Exception, match="messages not sent"):
        write(rows, queue)
    with pytest.raises(SendFailed):
        send(rows, queue_url=queue.queue_url, run_id="r", step="s")
    queue.refuse = lambda count: False
    write(rows, queue)
    assert taken(queue) == expected()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queueUrl": None}, "option queueUrl: is required"),
        ({"queueUrl": "stamps"}, "option queueUrl: 'stamps' is no queue's URL"),
        ({"runId": None}, "option runId: is required"),
        ({"step": None}, "option step: is required"),
        ({"sendFrom": "moon"}, "option sendFrom: 'moon', expected driver or tasks"),
        ({"endpointUrl": "moon"}, "option endpointUrl: 'moon' is no URL"),
        ({"queueName": "x"}, "option queue[nN]ame: no such option"),
        ({"step": ""}, "option step: is empty: '', expected a name for this step"),
        ({"region": "moon"}, "option region: 'moon' is no region"),
        (
            {"endpointUrl": "http://127.0.0.1:1"},
            "option queueUrl: http.*: Could not connect to the endpoint URL: .*127.0.0.1:1/",
        ),
    ],
)
def test_wrong_options_are_named_before_anything_runs(rows, queue, options, message):
    with pytest.raises(Exception, match=message):
        write(
            rows.select(F.raise_error(F.lit("ran")).cast("string").alias("tag")), queue, **options
        )
    assert queue.bodies == []


def test_a_queue_that_is_not_there_is_named_before_anything_runs(rows, queue):
    never = rows.select(F.raise_error(F.lit("ran")).cast("string").alias("tag"))
    nowhere = queue.queue_url.replace("stamps", "nowhere")
    with pytest.raises(Exception, match=f"option queueUrl: there is no queue {nowhere}"):
        write(never, queue, queueUrl=nowhere)
    with pytest.raises(InvalidOption, match=f"option queue_url: there is no queue {nowhere}"):
        send(never, queue_url=nowhere, run_id="r", step="s")


WRONG_COLUMNS = [
    (["upper(tag) AS Tag", "stamp"], "column tag is missing of Tag, stamp; rows may have tag"),
    (["tag", "stamp", "finished AS count"], "unknown column count; rows may have tag"),
    (["1 AS tag", "stamp"], "column tag is of the type int, expected string"),
    (["tag", "hex(stamp) AS stamp"], "column stamp is of the type string, expected binary"),
    (["tag", "stamp", "stamp", "finished"], "column stamp is there 2 times"),
    (["tag", "stamp", "double(finished) AS finished"], "column finished is of the type double"),
]


def test_wrong_columns_are_named_before_anything_runs(rows, queue):
    for at, (columns, message) in enumerate(WRONG_COLUMNS):
        never = rows.where("raise_error('ran') IS NULL").selectExpr(*columns)
        with pytest.raises(UnsuitableColumns, match=message):
            send(never, queue_url=queue.queue_url, run_id="r", step="s")
        if at in (0, 4):  # `format` checks by the same function, in a process that costs a second
            with pytest.raises(Exception, match=message):
                write(never, queue)
    assert queue.bodies == []


WRONG_ROWS = [
    ("NULL", "X'01'", 1, "column tag is null in a row"),
    ("''", "X'01'", 1, "stamp of tag '': tag: '', expected a string of 1 to 1024"),
    ("'b'", "NULL", 1, "stamp of tag 'b': stamp: None, expected bytes"),
    ("'file 0'", "NULL", 1, "stamp of tag 'file 0': stamp: None, expected bytes"),
    ("'b'", "X''", 1, "stamp of tag 'b': stamp: '0 bytes', expected 1 to 65536 bytes"),
    ("'b'", "X'0000'", 1, "stamp of tag 'b': stamp: '2 zero bytes', expected at least one"),
    ("'file 0'", "X'01'", 1, "stamp of tag 'file 0': Buffer lengths are not equal: "),
    ("'file 0'", "stamp", -1, "stamp of tag 'file 0': finished: -1, expected 0 or more"),
]


def test_a_wrong_row_is_named_and_no_other_is_sent(spark, rows, queue):
    few = spark.createDataFrame(rows.limit(3).collect(), rows.schema).coalesce(1)
    for at, (tag, stamp, finished, message) in enumerate(WRONG_ROWS):
        stray = few.limit(1).selectExpr(
            f"CAST({tag} AS string) AS tag",
            f"CAST({stamp} AS binary) AS stamp",
            f"CAST({finished} AS bigint) AS finished",
        )
        frame = few.unionByName(stray)
        with pytest.raises(UnsuitableColumns, match=message):
            send(frame, queue_url=queue.queue_url, run_id="r", step="s")
        if at == 3:
            with pytest.raises(Exception, match=message):
                write(frame, queue)
    assert queue.bodies == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queueUrl": None}, "option queueUrl: is required"),
        ({"step": ""}, "option step: is empty"),
        ({"runId": "r"}, "option run[iI]d: is for batch writes"),
        ({"region": "moon"}, "option region: 'moon' is no region"),
        ({"queueUrl": "http://127.0.0.1:1/1/q"}, "option queueUrl: http.*Could not connect"),
    ],
)
def test_wrong_options_of_a_stream_are_named(spark, rows, queue, tmp_path, options, message):
    register(spark)
    source = tmp_path / "in"
    source.mkdir()
    rows.write.mode("append").parquet(str(source))
    stream = spark.readStream.schema(rows.schema).parquet(str(source))
    writer = stream.where("raise_error('ran') IS NULL").writeStream.format("xorack")
    for name, value in {"queueUrl": queue.queue_url, "step": "s", **options}.items():
        if value is not None:
            writer = writer.option(name, value)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match=message):
        writer.trigger(availableNow=True).start().awaitTermination()
    assert queue.bodies == []


def test_wrong_arguments_of_send_are_named(rows, queue):
    with pytest.raises(InvalidOption, match="option run_id: is empty: ''"):
        send(rows, queue_url=queue.queue_url, run_id="", step="s")
    with pytest.raises(UnsuitableColumns, match="unknown column extra; rows may have tag"):
        send(rows.withColumn("extra", F.lit(1)), queue_url=queue.queue_url, run_id="r", step="s")
    with pytest.raises(UnsuitableColumns, match="column stamp is of the type string"):
        send(rows.withColumn("stamp", F.lit("x")), queue_url=queue.queue_url, run_id="r", step="s")
    with pytest.raises(UnsuitableColumns, match=r"stamp of tag 'file \d': stamp: None"):
        send(rows.drop("stamp"), queue_url=queue.queue_url, run_id="r", step="s")
    assert queue.bodies == []


def test_overwriting_makes_no_sense(rows, queue):
    register(rows.sparkSession)
    with pytest.raises(Exception, match="use append"):
        rows.write.format("xorack").mode("overwrite").option("queueUrl", queue.queue_url).option(
            "runId", "r"
        ).option("step", "s").save()


def test_a_stream_sends_each_batch_under_its_own_ids(spark, rows, queue, tmp_path):
    register(spark)
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    source.mkdir()
    stream = spark.readStream.schema(rows.schema).parquet(str(source))

    def run():
        query = (
            stream.writeStream.format("xorack")
            .option("queueUrl", queue.queue_url)
            .option("step", "s")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return str(query.id)

    for batch in range(2):
        rows.coalesce(1).write.mode("append").parquet(str(source))
        query_id = run()
        assert taken(queue) == expected(query_id, batch)
    # A batch that was sent but not committed is replayed: the same ids again.
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    assert run() == query_id
    assert taken(queue) == expected(query_id, 1)
