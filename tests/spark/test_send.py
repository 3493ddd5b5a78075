"""Units, folds and `send` without the data source: on PySpark 3.5 as on later ones."""

from __future__ import annotations

import pyspark
import pytest

from tests.spark.helpers import fail_first_attempt, received, requests_for_three_chains
from xorack import traced
from xorack.spark import InvalidOption, Sent, UnsuitableColumns, register, send, send_rows

OLD = int(pyspark.__version__.split(".")[0]) < 4


@pytest.mark.parametrize("send_from", ["driver", "tasks"])
def test_each_chain_is_sent_once_under_ids_that_a_retry_keeps(rows, queue, target, send_from):
    for attempt in (rows.mapInArrow(fail_first_attempt, rows.schema), rows):
        sent = send(attempt, **target, send_from=send_from)
        assert (sent.requests, sent.chains) == (3, 3)
        assert sent.messages >= 1
        assert received(queue) == requests_for_three_chains()


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
    assert (expected[1].stamp, expected[1].detail["of"]) == (traced(7), 1)
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


@pytest.mark.skipif(not OLD, reason="PySpark 4 has the data source API")
def test_register_on_an_old_pyspark_recommends_send(spark):
    with pytest.raises(
        RuntimeError, match=r"needs PySpark 4\.0 or later .*; use xorack.spark.send"
    ):
        register(spark)
