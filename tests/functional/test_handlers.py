"""The Lambda functions over embedded AWS: from SQS events to chains, events and dead letters."""

import base64
import gzip
import json
import random
import string

import pytest

from tests.support.faults import failing
from tests.support.functions import Context, acked, message
from xorack.acker.consumer import BatchResult, Message
from xorack.core.errors import ArgumentError, BatchError, UnavailableError
from xorack.core.request import Request


@pytest.fixture
def metrics(capsys):
    """Return the metrics that were printed since the last call."""

    def metrics():
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        (printed,) = [line for line in lines if "_aws" in line]
        printed["_aws"].pop("Timestamp")
        return printed

    return metrics


def create(tag, stamp=b"\1", **options):
    return Request.create(tag, "c", stamp, **options)


def test_a_rejected_body_of_one_mebibyte_is_compressed(functions, aws):
    body = "x" * 1_048_576
    assert functions.consume(body) == []
    (letter,) = aws.dead_letters()
    attributes = letter["MessageAttributes"]
    assert "body" in attributes["error"]["StringValue"]
    assert attributes["encoding"]["StringValue"] == "gzip+base64"
    assert gzip.decompress(base64.b64decode(letter["Body"])).decode() == body


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 2])
def test_a_rejected_body_that_cannot_be_compressed_is_cut_off(functions, aws, width):
    """It failed its message until SQS gave up and dead-lettered it, without a reason."""
    characters = string.printable[:94] if width == 1 else [chr(n) for n in range(0x80, 0x800)]
    body = "".join(random.Random(1).choices(characters, k=1_048_576 // width))
    assert functions.consume(body) == []
    (letter,) = aws.dead_letters()
    attributes = letter["MessageAttributes"]
    assert "encoding" not in attributes
    assert attributes["error"]["StringValue"].endswith(" (the body is cut off)")
    assert letter["Body"][-1] == "…"
    assert body.startswith(letter["Body"][:-1])
    assert 1_047_000 < len(letter["Body"].encode()) < 1_048_576
    assert attributes["message_id"]["StringValue"] == "m0"


def test_a_call_without_a_context_or_records(functions):
    from lambda_src.consumer import handler

    records = [{"messageId": "m", "body": body} for body in (message(create("t")), "no JSON")]
    assert handler({"Records": records}, None) == {"batchItemFailures": []}
    assert handler({"Records": []}, None) == {"batchItemFailures": []}
    with pytest.raises(ArgumentError, match="event"):
        handler({}, Context())


INVALID_VARIABLES = [
    *((name, "") for name in ("TABLE_NAME", "EVENT_BUS_NAME", "DEAD_LETTER_QUEUE_URL")),
    *(("DEFAULT_TIMEOUT_SECONDS", value) for value in ("soon", "0")),
    ("RETENTION_SECONDS", "-1"),
    *(("PENDING_TIMEOUT_SECONDS", value) for value in ("14 days", "316224001", "9" * 5000)),
    ("PARTITION_KEY", "stamp"),
    ("MASK", "a,,b"),
]


@pytest.mark.parametrize(("name", "value"), INVALID_VARIABLES)
def test_the_error_names_an_invalid_variable(functions, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(ArgumentError, match=f"(?i){name}"):
        functions.consume(message(create("t")))


def test_an_invocation_without_time_does_not_limit_the_next(functions, monkeypatch):
    from lambda_src import environment

    monkeypatch.setattr(environment, "_process", None)
    body = message(*acked("t"))
    with pytest.raises(UnavailableError, match="no time left"):
        functions.consume(body, context=Context(0))
    for seconds, time_outs in ((10, (10 / 12, 10 / 12)), (60, (1, 5))):
        assert functions.consume(body, context=Context(seconds)) == []
        config = environment.process().clients["dynamodb"].meta.config
        assert (config.connect_timeout, config.read_timeout) == pytest.approx(time_outs)
    client = environment.process().clients["dynamodb"]
    assert functions.consume(body, context=Context(59)) == []
    assert environment.process().clients["dynamodb"] is client


def test_metrics_are_those_of_powertools(functions, metrics):
    from aws_lambda_powertools import Metrics

    from lambda_src.consumer import SERVICE

    requests = [acked(f"t{n}") for n in range(3)]
    creates, stamps = (message(*column) for column in zip(*requests, strict=True))
    functions.consume(creates)
    assert "AckLatency" not in metrics()
    functions.consume(stamps)
    printed = metrics()
    assert (printed["RequestsApplied"], printed["ChainsAcked"]) == ([3.0], [3.0])
    assert printed["Writes"] == [6.0]
    assert len(printed["AckLatency"]) == 3
    powertools = Metrics(namespace="xorack", service=SERVICE)
    for metric in printed["_aws"]["CloudWatchMetrics"][0]["Metrics"]:
        for value in printed[metric["Name"]]:
            powertools.add_metric(name=metric["Name"], unit=metric["Unit"], value=int(value))
    powertools.flush_metrics()
    assert metrics() == printed


def test_all_latencies_are_emitted(functions, monkeypatch, capsys):
    from lambda_src import consumer

    result = BatchResult(latencies_ms=list(range(1000)))
    monkeypatch.setattr(consumer.Consumer, "consume", lambda *_: result)
    capsys.readouterr()
    assert functions.consume("ignored") == []
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    # CloudWatch takes a hundred values of a metric at once.
    latencies = [line.get("AckLatency", []) for line in printed]
    assert max(map(len, latencies)) == 100
    assert [value for values in latencies for value in values] == result.latencies_ms
    assert not any("MessagesFailed" in line for line in printed)  # CloudWatch bills zeros


def test_a_batch_of_which_all_fails_raises_after_its_metrics(functions, metrics):
    from lambda_src.consumer import handler

    records = [{"messageId": f"m{n}", "body": message(create(f"t{n}"))} for n in range(2)]
    with (
        failing("UpdateItem", "AccessDeniedException"),
        pytest.raises(BatchError, match=r"all 2 messages .*AccessDenied"),
    ):
        handler({"Records": [*records, records[0]]}, Context())
    assert metrics()["MessagesFailed"] == [2.0]
    with failing("UpdateItem", "AccessDeniedException", times=1):
        (failed,) = handler({"Records": records}, Context())["batchItemFailures"]
    assert failed["itemIdentifier"] in ("m0", "m1")


@pytest.mark.parametrize(
    ("attribute", "sent_at"),
    [
        ({}, 1000),
        *(({"sent_at": str(time)}, time) for time in (0, 1, 500)),
        *(({"sent_at": rubbish}, 1000) for rubbish in ("x", "1001", "-1", "9" * 18, "9" * 38)),
    ],
)
def test_a_message_knows_its_receives_its_sender_and_when_it_was_sent(
    functions, monkeypatch, attribute, sent_at
):
    from lambda_src import consumer

    record = {
        "messageId": "m",
        "body": "{}",
        "attributes": {
            "ApproximateReceiveCount": "3",
            "SentTimestamp": 1000,  # a text from Lambda; others make test events with numbers
            "SenderId": "AROA:loader",
        },
        "messageAttributes": {name: {"stringValue": text} for name, text in attribute.items()},
    }
    received = []

    def consume(_, messages):
        received.extend(messages)
        return BatchResult()

    monkeypatch.setattr(consumer.Consumer, "consume", consume)
    consumer.handler({"Records": [record]}, Context())
    assert received == [Message("m", "{}", 3, sent_at, "AROA:loader")]
