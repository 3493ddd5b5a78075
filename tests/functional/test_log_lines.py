"""The functions' logs: one line a record whatever senders write, and no content of requests."""

import io
import json
import os
import re

import pytest

from tests.support.faults import failing
from tests.support.functions import message
from xorack.core.request import Request
from xorack.core.stamp import traced

INJECTED = 'a\n{"level":"ERROR","message":"all is lost"}\r\n\x1b[31m\u2028\u202e'
SECRET = "content-of-the-detail"


@pytest.fixture
def lines(functions, monkeypatch, capsys):
    """Run the consumer while DynamoDB rejects all writes; return its log lines."""
    import lambda_src.consumer  # creates the log handler

    logged = io.StringIO()
    (handler,) = lambda_src.consumer.logger.handlers
    monkeypatch.setattr(handler, "stream", logged)

    def run(*bodies):
        capsys.readouterr()
        with failing("UpdateItem", "AccessDeniedException"):
            assert functions.consume(*bodies)
        return [line for line in (logged.getvalue() + capsys.readouterr().out).splitlines() if line]

    return run


def test_a_record_is_one_line_of_json_whatever_the_tag(lines):
    request = Request.create(INJECTED, INJECTED[:20], traced(0xDEADBEEF), detail={"x": SECRET})
    records = [json.loads(line) for line in lines(message(request))]
    assert "all is lost" not in [record.get("message") for record in records]
    (record,) = (record for record in records if record.get("message") == "chain not written")
    assert record["tag"].isascii()
    assert record["tag"].isprintable()
    assert len(record["tag"]) <= 83


def test_long_values_are_cut_and_stamps_details_and_bodies_are_not_logged(lines):
    request = Request.create("t" * 1024, "c", traced(0xDEADBEEF), detail={"secret": SECRET})
    printed = "\n".join(lines(message(request), f"no JSON {SECRET}"))
    assert "t" * 70 in printed
    assert "t" * 81 not in printed
    assert SECRET not in printed
    assert request.to_json()["stamp"][:40] not in printed


def test_no_credentials_are_logged(lines):
    printed = "\n".join(lines(message(Request.create("t", "c", traced(1)))))
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        if len(value := os.environ.get(name, "")) > 8:
            assert value not in printed
    assert not re.search(r"(?i)secret|authorization|x-amz-security-token", printed)
