"""From rows to requests, without Spark: options, folding, ids."""

from __future__ import annotations

import pytest

from xorack import plain, xor
from xorack.spark.errors import InvalidOption, UnsuitableColumns
from xorack.spark.requests import Chains, Options, Sent, deliver, request_id
from xorack.sqs import SendReport

URL = "https://sqs.eu-north-1.amazonaws.com/123456789012/stamps"
COLUMNS = ["tag", "op", "stamp", "started", "finished", "detail", "timeout"]


def test_options_in_any_case_and_spark_s_own_are_let_through():
    options = Options.of({"queueurl": URL, "RUNID": "r", "step": "s", "path": "x", "region": None})
    assert options == Options(queue_url=URL, run_id="r", step="s")
    assert options.client().meta.region_name == "eu-north-1"


@pytest.mark.parametrize(
    ("given", "endpoint"),
    [
        ({"queue_url": "http://127.0.0.1:4566/1/q"}, "http://127.0.0.1:4566"),
        ({"queue_url": URL}, "https://sqs.eu-north-1.amazonaws.com"),
        ({"queue_url": URL, "endpoint_url": "http://localhost:1"}, "http://localhost:1"),
    ],
)
def test_the_endpoint_of_a_queue_that_is_not_aws_s_own(given, endpoint):
    options = Options.of({"run_id": "r", "step": "s", **given}, camel_case=False)
    assert options.client().meta.endpoint_url == endpoint


def test_a_stream_has_no_run_id():
    assert Options.of({"queueUrl": URL, "step": "s"}, streaming=True).run_id is None
    with pytest.raises(InvalidOption, match="runId: is for batch writes"):
        Options.of({"queueUrl": URL, "step": "s", "runId": "r"}, streaming=True)


def test_names_are_of_limited_length():
    with pytest.raises(InvalidOption, match="run_id: is longer"):
        Options.of({"queue_url": URL, "step": "s", "run_id": "ü" * 300}, camel_case=False)


def test_ids_depend_on_each_part_and_not_on_where_one_ends():
    base = ["run", "step", 1, "stamp", "tag"]
    ids = {request_id(*base)}
    for place, other in enumerate(["run2", "step2", 2, "fail", "tag2"]):
        ids.add(request_id(*[*base[:place], other, *base[place + 1 :]]))
    ids.add(request_id("runs", "tep", 1, "stamp", "tag"))
    assert len(ids) == 7
    # Written down: another release must make the same ids, or a repeated run would count twice.
    assert request_id(*base) == "57d55fbe334057269e65cdff035ece7f"


def test_rows_in_any_parts_and_order_make_the_same_requests():
    rows = [
        ("b", "stamp", plain(5), 1, 2, None, None),
        ("b", "create", plain(9), 1, 0, '{"a": 1}', 60),
        ("a", None, plain(7), 3, None, None, None),
        ("b", "stamp", bytearray(plain(6)), 4, 8, None, None),
        ("b", "stamp", plain(1), 0, 1, None, None),
    ]
    whole = Chains().add_rows(COLUMNS, rows)
    parts = Chains()
    for row in reversed(rows):
        parts.merge(Chains().add_rows(COLUMNS, [row]))
    requests = list(whole.requests("r", "s"))
    assert requests == list(parts.requests("r", "s"))
    assert [(r.tag, r.op, r.started, r.finished) for r in requests] == [
        ("a", "stamp", 3, 0),
        ("b", "create", 1, 0),
        ("b", "stamp", 5, 11),
    ]
    assert requests[2].stamp == xor(plain(5), plain(6), plain(1))
    assert (requests[1].detail, requests[1].timeout) == ({"a": 1}, 60)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(None, "stamp", plain(1), 0, 0, None, None)], "column tag is null"),
        ([("a", "ack", plain(1), 0, 0, None, None)], "op of tag 'a': 'ack'"),
        ([("a", "stamp", None, 0, 0, None, None)], "stamp of tag 'a': stamp: None"),
        ([("a", "stamp", plain(1), 0, 0, None, None)] * 2, "stamp of tag 'a': stamp: .*zero"),
        ([("a", "stamp", plain(1), -1, 0, None, None)], "stamp of tag 'a': started: -1"),
        ([("a", "create", plain(1), 1, 0, "{", None)], "create of tag 'a': detail is no JSON"),
        ([("a", "fail", None, 0, 0, None, 5)], "fail of tag 'a': timeout: 5"),
        (
            [("a", "stamp", plain(1), 0, 0, None, None), ("a", "stamp", b"x", 0, 0, None, None)],
            "stamp of tag 'a': Buffer lengths",
        ),
        (
            [("a", "create", plain(n), 0, 0, None, n) for n in (1, 2)],
            "rows of tag 'a' disagree: create has timeout 1 and 2",
        ),
    ],
)
def test_what_makes_no_request_is_named_and_nothing_is_sent(rows, message):
    options = Options(queue_url=URL, run_id="r", step="s")
    with pytest.raises(UnsuitableColumns, match=message):
        deliver(
            Chains().add_rows(COLUMNS, [("0", "stamp", plain(3), 0, 0, None, None), *rows]),
            options,
            "r",
            send=lambda *a, **k: pytest.fail("sent"),
        )


def test_what_was_sent_is_counted():
    rows = [("a", "create", plain(1), 1, 0, None, None), ("a", "stamp", plain(2), 1, 0, None, None)]

    def send(url, requests, client):
        assert url == URL
        return SendReport(messages=1, requests=len(requests), bytes=99)

    options = Options(queue_url=URL, run_id="r", step="s")
    sent = deliver(Chains().add_rows(COLUMNS, rows), options, "r", send=send)
    assert sent == Sent(messages=1, requests=2, chains=1, bytes=99)
    assert deliver(Chains(), options, "r", send=send) == Sent()
    assert sent + sent == Sent(2, 4, 2, 198)
