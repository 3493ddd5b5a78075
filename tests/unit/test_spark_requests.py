"""From rows to requests, without Spark: options, folding, ids."""

from __future__ import annotations

import datetime

import pytest

from xorack import plain, traced, xor
from xorack.aws.sqs import SendReport
from xorack.spark import requests
from xorack.spark.errors import InvalidOption, UnsuitableColumns
from xorack.spark.requests import (
    Chains,
    Options,
    Sent,
    check_queue,
    deliver,
    request_id,
    row_columns,
)

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


@pytest.fixture(autouse=True)
def _nothing_known_of_queues():
    requests._ask_queue.cache_clear()
    yield
    requests._ask_queue.cache_clear()


GOOD = {"queueUrl": URL, "runId": "r", "step": "s"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"queueUrl": None}, "queueUrl: is required: the queue's URL, such as the stack's output"),
        ({"runId": None}, "runId: is required: your name for this run"),
        ({"step": None}, "step: is required: a name for this step of the job"),
        ({"queueUrl": ""}, "queueUrl: is empty: '', expected the queue's URL"),
        ({"runId": " "}, "runId: is empty: ' ', expected your name for this run"),
        ({"step": ""}, "step: is empty: '', expected a name for this step"),
        ({"region": ""}, "region: is empty: '', expected a value, or no such option"),
        ({"queueUrl": "stamps"}, "queueUrl: 'stamps' is no queue's URL"),
        ({"queueUrl": "arn:aws:sqs:eu-west-1:1:q"}, "queueUrl: 'arn:aws:sqs:eu-west-1:1:q' is no"),
        ({"queueUrl": f"{URL} "}, "queueUrl: 'https://.* ' is no queue's URL"),
        ({"queueUrl": 7}, "queueUrl: 7, expected a string"),
        ({"runId": True}, "runId: True, expected a string"),
        ({"step": ["a"]}, "step: a list of 1, expected a string"),
        ({"region": "moon"}, "region: 'moon' is no region, expected one such as eu-west-1"),
        (
            {"region": "us-east-1"},
            "region: 'us-east-1', but the queue of queueUrl is in eu-north-1",
        ),
        ({"endpointUrl": "moon"}, "endpointUrl: 'moon' is no URL, expected http"),
        ({"endpointUrl": "http://a b"}, "endpointUrl: 'http://a b' is no URL"),
        ({"sendFrom": "Tasks"}, "sendFrom: 'Tasks', expected driver or tasks"),
        ({"queue": URL}, "queue: no such option; there are queueUrl, runId, step, region"),
    ],
)
def test_a_wrong_option_is_named_with_its_value_and_what_was_expected(wrong, message):
    with pytest.raises(InvalidOption, match=f"^option {message}"):
        Options.of({**GOOD, **wrong})


def test_options_are_named_as_they_are_written():
    for given, message in (
        ({"queue_url": URL, "step": "s"}, "option run_id: is required"),
        ({"queue_url": "q", "step": "s", "run_id": "r"}, "option queue_url: 'q' is no"),
        ({"queueUrl": URL}, "option queueUrl: no such option; there are queue_url, run_id"),
    ):
        with pytest.raises(InvalidOption, match=message):
            Options.of(given, camel_case=False)


def test_dates_and_numbers_may_name_a_run():
    for run in (20260131, datetime.date(2026, 1, 31)):
        assert Options.of({**GOOD, "runId": run}).run_id == str(run)


def test_a_region_that_nobody_says_is_missed_before_anything_runs(monkeypatch):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    options = Options(queue_url="https://queue.test/1/q", run_id="r", step="s")
    with pytest.raises(InvalidOption, match=r"^option region: is required: neither the queue's"):
        options.client()
    monkeypatch.setenv("AWS_DEFAULT_REGION", "on the moon")
    with pytest.raises(InvalidOption, match=r"^option region: .*on the moon"):
        options.client()


def test_a_region_may_be_any_for_an_endpoint_of_ones_own():
    options = Options.of({**GOOD, "region": "us-east-1", "endpointUrl": "http://localhost:4566"})
    assert options.client().meta.region_name == "us-east-1"


def test_an_unreachable_queue_is_named():
    url = "http://127.0.0.1:1/123456789012/stamps"
    with pytest.raises(InvalidOption, match=f"^option queueUrl: {url}: Could not connect"):
        check_queue(Options(queue_url=url, run_id="r", step="s"))


def test_a_queue_is_asked_once_and_one_that_did_not_answer_again(monkeypatch):
    from botocore.exceptions import ClientError

    answers = [
        ClientError({"Error": {"Code": "AWS.SimpleQueueService.NonExistentQueue"}}, "x"),
        ClientError({"Error": {"Code": "InvalidClientTokenId"}}, "x"),
        None,
    ]
    asked = []

    class Queue:
        def get_queue_attributes(self, **given):
            asked.append(given["QueueUrl"])
            if answer := answers.pop(0):
                raise answer

    monkeypatch.setattr(Options, "client", lambda self: Queue())
    options = Options(queue_url=URL, run_id="r", step="s")
    for message in (f"there is no queue {URL}", f"{URL}: .*InvalidClientTokenId"):
        with pytest.raises(InvalidOption, match=message):
            check_queue(options)
    check_queue(options)
    check_queue(Options(queue_url=URL, run_id="another", step="s"))
    assert asked == [URL] * 3


@pytest.mark.parametrize("code", ["AccessDenied", "ThrottlingException"])
def test_a_queue_that_may_not_or_cannot_answer_is_taken_at_its_word(monkeypatch, code):
    from botocore.exceptions import ClientError

    class Queue:
        def get_queue_attributes(self, **given):
            raise ClientError({"Error": {"Code": code}}, "GetQueueAttributes")

    monkeypatch.setattr(Options, "client", lambda self: Queue())
    check_queue(Options(queue_url=URL, run_id="r", step="s"))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([], "column tag is missing of none; rows may have tag .string., op"),
        ([("Tag", "string")], "column tag is missing of Tag; rows may have"),
        ([("tag", "bigint")], "column tag is of the type bigint, expected string; rows may"),
        ([("tag", "string"), ("stamp", "string")], "stamp is of the type string, expected binary"),
        (
            [("tag", "string"), ("finished", "double")],
            "column finished is of the type double, expected bigint or int",
        ),
        (
            [("tag", "string"), ("timeout", "decimal(5,1)")],
            r"timeout is of the type decimal\(5,1\), expected bigint or int or double or float",
        ),
        ([("tag", "string"), ("count", "bigint")], "unknown column count; rows may have"),
        (
            [("tag", "string"), ("stamp", "binary"), ("stamp", "binary"), ("finished", "bigint")],
            "column stamp is there 2 times",
        ),
    ],
)
def test_unsuitable_columns_are_named(columns, message):
    with pytest.raises(UnsuitableColumns, match=message):
        row_columns(columns)


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
        (
            [("", "stamp", plain(1), 0, 0, None, None)],
            "stamp of tag '': tag: '', expected a string",
        ),
        (
            [("é" * 600, "stamp", plain(1), 0, 0, None, None)],
            "tag: .*, expected a string of 1 to 1024 UTF-8 bytes",
        ),
        ([("a", "stamp", None, 0, 0, None, None)], "stamp of tag 'a': stamp: None"),
        # Folded with the others it would be lost without a word, and its counts not.
        (
            [("a", "stamp", plain(n) if n else None, 0, 1, None, None) for n in range(3)],
            "stamp of tag 'a': stamp: None, expected bytes",
        ),
        ([("a", "stamp", b"", 0, 0, None, None)], "stamp of tag 'a': stamp: '0 bytes', expected 1"),
        (
            [
                ("a", "stamp", plain(1), 5, 0, None, None),
                ("a", "stamp", plain(2), -1, 0, None, None),
            ],
            "stamp of tag 'a': started: -1, expected 0 or more",
        ),
        (
            [
                ("a", "create", plain(1), 1, 0, None, None),
                ("a", "stamp", traced(1), 1, 1, None, None),
            ],
            "stamp of tag 'a': stamp: 648 bytes, expected 8 as its create has",
        ),
        (
            [("a", "create", plain(1), 1, 0, None, float("nan"))],
            "create of tag 'a': timeout: nan, expected seconds",
        ),
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
