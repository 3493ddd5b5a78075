"""From rows to requests, without Spark: options, folds, ids."""

from __future__ import annotations

import datetime

import pytest
from botocore.exceptions import ClientError

from xorack import plain, traced, xor
from xorack.aws.sqs import SendReport
from xorack.spark import requests
from xorack.spark.errors import InvalidOption, UnsuitableColumns
from xorack.spark.requests import Chains, Options, Sent, check_queue, deliver

URL = "https://sqs.eu-north-1.amazonaws.com/123456789012/stamps"
COLUMNS = ["tag", "op", "stamp", "started", "finished", "detail", "timeout"]
GOOD = {"queueUrl": URL, "runId": "r", "step": "s"}
OPTIONS = Options(queue_url=URL, run_id="r", step="s")


def test_options_are_case_insensitive_and_those_of_spark_are_ignored():
    options = Options.of({"queueurl": URL, "RUNID": "r", "step": "s", "path": "x", "region": None})
    assert options == OPTIONS
    assert options.client().meta.region_name == "eu-north-1"


@pytest.mark.parametrize(
    ("given", "endpoint"),
    [
        ({"queue_url": "http://127.0.0.1:4566/1/q"}, "http://127.0.0.1:4566"),
        ({"queue_url": URL}, "https://sqs.eu-north-1.amazonaws.com"),
        ({"queue_url": URL, "endpoint_url": "http://localhost:1"}, "http://localhost:1"),
    ],
)
def test_the_endpoint_comes_from_the_options_or_the_url(given, endpoint):
    options = Options.of({"run_id": "r", "step": "s", **given}, camel_case=False)
    assert options.client().meta.endpoint_url == endpoint


def test_a_stream_has_no_run_id():
    assert Options.of({"queueUrl": URL, "step": "s"}, streaming=True).run_id is None
    with pytest.raises(InvalidOption, match="runId: is for batch writes"):
        Options.of({"queueUrl": URL, "step": "s", "runId": "r"}, streaming=True)


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
def test_an_invalid_option_is_named_with_its_value_and_the_expected_one(wrong, message):
    with pytest.raises(InvalidOption, match=f"^option {message}"):
        Options.of({**GOOD, **wrong})


def test_errors_name_options_in_the_style_of_the_caller():
    for given, message in (
        ({"queue_url": URL, "step": "s"}, "option run_id: is required"),
        ({"queue_url": "q", "step": "s", "run_id": "r"}, "option queue_url: 'q' is no"),
        ({"queueUrl": URL}, "option queueUrl: no such option; there are queue_url, run_id"),
        ({"queue_url": URL, "step": "s", "run_id": "ü" * 300}, "run_id: is longer"),
    ):
        with pytest.raises(InvalidOption, match=message):
            Options.of(given, camel_case=False)


def test_a_date_or_a_number_can_be_a_run_id():
    for run in (20260131, datetime.date(2026, 1, 31)):
        assert Options.of({**GOOD, "runId": run}).run_id == str(run)


def test_a_missing_region_is_named(monkeypatch):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    options = Options(queue_url="https://queue.test/1/q", run_id="r", step="s")
    with pytest.raises(InvalidOption, match=r"^option region: is required: neither the queue's"):
        options.client()
    monkeypatch.setenv("AWS_DEFAULT_REGION", "on the moon")
    with pytest.raises(InvalidOption, match=r"^option region: .*on the moon"):
        options.client()


def test_any_region_is_valid_with_an_endpoint_url():
    options = Options.of({**GOOD, "region": "us-east-1", "endpointUrl": "http://localhost:4566"})
    assert options.client().meta.region_name == "us-east-1"


def test_an_unreachable_queue_is_named():
    url = "http://127.0.0.1:1/123456789012/stamps"
    with pytest.raises(InvalidOption, match=f"^option queueUrl: {url}: Could not connect"):
        check_queue(Options(queue_url=url, run_id="r", step="s"))


@pytest.fixture
def responses(monkeypatch):
    """Error codes of GetQueueAttributes, None for success; the test fills in, calls consume."""
    codes = []

    class Queue:
        def get_queue_attributes(self, **request):
            assert request["QueueUrl"] == URL
            if code := codes.pop(0):
                raise ClientError({"Error": {"Code": code}}, "GetQueueAttributes")

    monkeypatch.setattr(Options, "client", lambda self: Queue())
    requests._ask_queue.cache_clear()
    yield codes
    requests._ask_queue.cache_clear()


def test_only_a_successful_check_of_a_queue_is_cached(responses):
    responses += ["AWS.SimpleQueueService.NonExistentQueue", "InvalidClientTokenId", None]
    for message in (f"there is no queue {URL}", f"{URL}: .*InvalidClientTokenId"):
        with pytest.raises(InvalidOption, match=message):
            check_queue(OPTIONS)
    check_queue(OPTIONS)
    check_queue(Options(queue_url=URL, run_id="another", step="s"))
    assert responses == []


@pytest.mark.parametrize("code", ["AccessDenied", "ThrottlingException"])
def test_a_queue_that_does_not_allow_the_check_is_accepted(responses, code):
    responses.append(code)
    check_queue(OPTIONS)


TAG = ("tag", "string")
NUMBER = "expected bigint or int or double or float"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([], "column tag is missing of none; rows may have tag .string., op"),
        ([("Tag", "string")], "column tag is missing of Tag; rows may have"),
        ([("tag", "bigint")], "column tag is of the type bigint, expected string; rows may"),
        ([TAG, ("stamp", "string")], "stamp is of the type string, expected binary"),
        ([TAG, ("finished", "double")], "is of the type double, expected bigint or int"),
        ([TAG, ("timeout", "decimal(5,1)")], r"timeout is of the type decimal\(5,1\), " + NUMBER),
        ([TAG, ("count", "bigint")], "unknown column count; rows may have"),
        ([TAG, *[("stamp", "binary")] * 2], "column stamp is there 2 times"),
    ],
)
def test_unsuitable_columns_are_named(columns, message):
    with pytest.raises(UnsuitableColumns, match=message):
        requests.row_columns(columns)


def test_request_ids_depend_on_each_part_and_on_its_end():
    base = ["run", "step", 1, "stamp", "tag"]
    ids = {requests.request_id(*base), requests.request_id("runs", "tep", 1, "stamp", "tag")}
    for place, other in enumerate(["run2", "step2", 2, "fail", "tag2"]):
        ids.add(requests.request_id(*base[:place], other, *base[place + 1 :]))
    assert len(ids) == 7
    # A literal: other releases must compute the same ids, or a repeated run counts twice.
    assert requests.request_id(*base) == "57d55fbe334057269e65cdff035ece7f"


def test_requests_do_not_depend_on_the_order_and_partition_of_rows():
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
    stamp, create, others = list(whole.requests("r", "s"))
    assert [stamp, create, others] == list(parts.requests("r", "s"))
    assert (stamp.tag, stamp.op, stamp.started, stamp.finished) == ("a", "stamp", 3, 0)
    assert (create.tag, create.op, create.started, create.finished) == ("b", "create", 1, 0)
    assert (create.detail, create.timeout) == ({"a": 1}, 60)
    assert (others.tag, others.op, others.started, others.finished) == ("b", "stamp", 5, 11)
    assert others.stamp == xor(plain(5), plain(6), plain(1))


def row(stamp=b"x", started=0, finished=0, timeout=None, tag="a", op="stamp", detail=None):
    return (tag, op, stamp, started, finished, detail, timeout)


def create_row(unit=1, **fields):
    return row(plain(unit), op="create", **fields)


STAMP, CREATE = "stamp of tag 'a': ", "create of tag 'a': "


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row(tag=None)], "column tag is null"),
        ([row(op="ack")], "op of tag 'a': 'ack'"),
        ([row(tag="")], "stamp of tag '': tag: '', expected a string"),
        ([row(tag="é" * 600)], "tag: .*, expected a string of 1 to 1024 UTF-8 bytes"),
        ([row(None)], f"{STAMP}stamp: None"),
        # Folded with the others, a row without a stamp must not add its counts.
        ([row(n and plain(n), 0, 1) for n in (None, 1, 2)], f"{STAMP}stamp: None, expected bytes"),
        ([row(b"")], f"{STAMP}stamp: '0 bytes', expected 1"),
        ([row(plain(1), 5), row(plain(2), -1)], f"{STAMP}started: -1, expected 0 or more"),
        (
            [create_row(started=1), row(traced(1), 1, 1)],
            f"{STAMP}stamp: 648 bytes, expected 8 as its create has",
        ),
        ([create_row(timeout=float("nan"))], f"{CREATE}timeout: nan, expected seconds"),
        ([row(plain(1))] * 2, f"{STAMP}stamp: .*zero"),
        ([row(plain(1), -1)], f"{STAMP}started: -1"),
        ([create_row(detail="{")], f"{CREATE}detail is no JSON"),
        ([row(None, op="fail", timeout=5)], "fail of tag 'a': timeout: 5"),
        ([row(plain(1)), row(b"x")], f"{STAMP}Buffer lengths"),
        (
            [create_row(unit, timeout=unit) for unit in (1, 2)],
            "rows of tag 'a' disagree: create has timeout 1 and 2",
        ),
    ],
)
def test_an_invalid_row_is_named_and_nothing_is_sent(rows, message):
    def send(*_, **__):
        pytest.fail("sent")

    rows = [row(plain(3), tag="0"), *rows]
    with pytest.raises(UnsuitableColumns, match=message):
        deliver(Chains().add_rows(COLUMNS, rows), OPTIONS, "r", send=send)


def test_sent_requests_are_counted():
    rows = [create_row(started=1), row(plain(2), 1)]

    def send(url, requests, client):
        assert url == URL
        return SendReport(messages=1, requests=len(requests), bytes=99)

    sent = deliver(Chains().add_rows(COLUMNS, rows), OPTIONS, "r", send=send)
    assert sent == Sent(messages=1, requests=2, chains=1, bytes=99)
    assert deliver(Chains(), OPTIONS, "r", send=send) == Sent()
    assert sent + sent == Sent(2, 4, 2, 198)
