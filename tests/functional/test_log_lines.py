"""The functions' logs: one line a record whatever senders write, and nothing of what they send."""

import io
import json
import logging
import os
import re

import pytest

from tests.support.faults import refused
from xorack.core.message import pack
from xorack.core.request import Request
from xorack.core.stamp import traced

INJECTED = 'a\n{"level":"ERROR","message":"all is lost"}\r\n\x1b[31m\u2028\u202e'
SECRET = "the-detail-is-nobodys-business"


@pytest.fixture
def lines(aws, monkeypatch, capsys):
    """Runs the consumer over requests while DynamoDB refuses all writes; returns what it logged."""
    for name, value in aws.environ().items():
        monkeypatch.setenv(name, value)
    from lambda_src.consumer import handler

    logged = io.StringIO()
    (to_log,) = logging.getLogger("xorack").handlers
    # It was made when the module was imported, for what stdout was then.
    monkeypatch.setattr(to_log, "stream", logged)

    def run(*bodies):
        records = [
            {"messageId": f"m{n}", "body": body, "eventSource": "aws:sqs", "attributes": {}}
            for n, body in enumerate(bodies)
        ]
        capsys.readouterr()
        with refused("UpdateItem", "AccessDeniedException", times=1000):
            answer = handler({"Records": records}, None)
        assert answer["batchItemFailures"]
        printed = logged.getvalue() + capsys.readouterr().out
        return [line for line in printed.splitlines() if line]

    return run


def test_a_record_is_one_line_of_json_whatever_the_tag(lines):
    stamp = traced(0xDEADBEEF)
    request = Request.create(INJECTED, INJECTED[:20], stamp, detail={"secret": SECRET})
    records = [json.loads(line) for line in lines(*pack([request]))]
    logged = [record for record in records if "level" in record]
    assert "all is lost" not in [record.get("message") for record in records]
    (told,) = (record for record in logged if record["message"] == "chain not written")
    assert told["tag"].isascii()
    assert told["tag"].isprintable()
    assert len(told["tag"]) <= 83


def test_long_values_are_cut_and_stamps_details_and_bodies_are_not_logged(lines):
    tag = "t" * 1024
    good = Request.create(tag, "c", traced(0xDEADBEEF), detail={"secret": SECRET})
    (body,) = pack([good])
    printed = "\n".join(lines(body, f"no JSON {SECRET}"))
    assert "t" * 70 in printed
    assert "t" * 81 not in printed
    assert SECRET not in printed
    assert good.to_json()["stamp"][:40] not in printed


def test_no_credentials_are_logged(lines):
    printed = "\n".join(lines(*pack([Request.create("t", "c", traced(1))])))
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        if len(value := os.environ.get(name, "")) > 8:
            assert value not in printed
    assert not re.search(r"(?i)secret|authorization|x-amz-security-token", printed)
