"""The functions of the example of fan-in, without their stack."""

import importlib
import json
import sys

import pytest
from aws_lambda_powertools.utilities.batch.exceptions import BatchProcessingError

from tests.functional.test_fan_in import record_of
from tests.functional.test_handlers import advance_clock
from tests.support.functions import Context

pytestmark = pytest.mark.thorough

BUCKET = "files"
NEW_FILE = {
    "id": "1",
    "source": "aws.s3",
    "detail-type": "Object Created",
    "detail": {"bucket": {"name": BUCKET}, "object": {"key": "a.txt", "sequencer": "00AF"}},
}


@pytest.fixture
def handlers(aws, functions, monkeypatch):
    """The module of the functions, over a bucket and a queue."""
    aws.client("s3").create_bucket(
        Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"}
    )
    environment = {
        "BUCKET": BUCKET,
        "WORK_QUEUE_URL": aws.client("sqs").create_queue(QueueName="work")["QueueUrl"],
        "ACKER_QUEUE_URL": aws.queue_url,
        "TIMEOUT": "60",
        "FAILURE_RATE": "0.3",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    name = "examples.fan_in.functions.handlers"
    yield importlib.import_module(name)
    del sys.modules[name]


def work(aws, handlers):
    """Deliver the messages once; those that failed stay."""
    queue = {"QueueUrl": handlers.WORK_QUEUE_URL}
    sqs, again = aws.client("sqs"), []
    while batch := sqs.receive_message(
        **queue, MaxNumberOfMessages=10, MessageAttributeNames=["All"]
    ).get("Messages"):
        try:
            response = handlers.work({"Records": [*map(record_of, batch)]}, Context())
            failed = {entry["itemIdentifier"] for entry in response["batchItemFailures"]}
        except BatchProcessingError:
            failed = {message["MessageId"] for message in batch}
        for message in batch:
            handle = {"ReceiptHandle": message["ReceiptHandle"]}
            if message["MessageId"] in failed:
                again.append(handle)
            else:
                sqs.delete_message(**queue, **handle)
    for handle in again:
        sqs.change_message_visibility(**queue, **handle, VisibilityTimeout=0)
    return len(again)


def report(aws, functions, handlers):
    """Hand the event of the chain to the subscriber; return its report."""
    ((tag, detail),) = functions.events().items()
    assert tag == f"{BUCKET}/a.txt/00AF"
    handlers.report({"detail": detail}, Context())
    body = aws.client("s3").get_object(Bucket=BUCKET, Key="reports/a.txt")["Body"]
    return json.loads(body.read())


@pytest.mark.parametrize("broken", [False, True])
def test_the_report_names_the_line_that_was_lost(aws, functions, handlers, monkeypatch, broken):
    lines = [f"order {n}" for n in range(1, 31)]
    lines[16] = "broken" if broken else "order 17"
    aws.client("s3").put_object(Bucket=BUCKET, Key="a.txt", Body="\n".join(lines).encode())
    for _ in range(2):  # the event comes twice
        handlers.split(NEW_FILE, Context())
    failed = 60
    while failed > 2 * broken:
        failed = work(aws, handlers)
        functions.deliver()
    if broken:
        assert functions.events() == {}
        advance_clock(monkeypatch, 100)
        functions.sweep()
    lost = {"line 17": "broken"} if broken else {}
    status, units = ("failed", 30) if broken else ("acked", 31)
    expected = {"status": status, "units": units, "lost": lost}
    assert report(aws, functions, handlers) == expected
    assert aws.dead_letters() == []
