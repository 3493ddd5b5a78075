"""The functions' logs, see docs/operations.md: a line a record, one schema, no content."""

import json
import logging
import re

import pytest

from tests.support.events import creates, event
from tests.support.faults import failing
from tests.support.functions import message
from tests.support.lambda_runtime import run_function
from xorack.acker.chain_writer import ChainWriter
from xorack.aws.clock import milliseconds
from xorack.core.request import Request
from xorack.core.stamp import traced

SECRET = "content-of-the-detail"


def test_every_line_has_one_schema_whatever_the_service():
    """AWS's runtime client writes the lines, as on Lambda; all calls are denied."""
    service = "Prod-Orders-Acker"  # of a construct in a stack; all loggers are named `xorack`
    log = run_function("consumer", event(*creates("t0", "t1", "t2"), "no JSON"), service=service)
    *lines, metrics, uncaught = log
    # An outage logs by the batch.
    assert lines[0].items() >= {"failures": 3, "tag": "t0", "message_ids": "m0 m1 m2"}.items()
    assert "AccessDeniedException" in lines[0]["why"]
    assert [line["message"] for line in lines] == [
        "chains not written",
        "requests rejected",
        "rejected requests not sent",
        "batch",
    ]
    for line in lines:
        expected = {"service": service, "requestId": "request-0", "logger": "xorack"}
        assert line.items() >= expected.items()
        assert line["level"] in ("INFO", "WARNING", "ERROR")
        assert re.fullmatch(r"[0-9T:-]{19}Z", line["timestamp"])
    assert (metrics["service"], metrics["RequestsRejected"]) == (service, [1.0])
    # Lambda's own line for an error that nobody catches.
    assert {"requestId": "request-0", "errorType": "BatchError"}.items() <= uncaught.items()
    assert (uncaught["level"], "timestamp" in uncaught) == ("ERROR", True)


def test_at_the_lowest_level_boto3_logs_no_content_and_no_token():
    secret = message(Request.create("t", "c", traced(1), detail={"x": SECRET}))
    log = run_function("consumer", event(secret), level="DEBUG")
    printed = json.dumps(log)
    lines = [line for line in log if "logger" in line]
    assert {line["logger"] for line in lines} <= {"xorack", "py.warnings"}  # these are lines, too
    assert {line["service"] for line in lines} == {"xorack"}
    for text in (SECRET, "session-token-of-the-role", "wJalrXUtnFEMI"):
        assert text not in printed


@pytest.fixture
def records(functions, caplog):
    """Run the consumer; return its log records as Lambda's JSON has them."""
    caplog.set_level(logging.DEBUG, "xorack")

    def run(*bodies):
        caplog.clear()
        functions.consume(*bodies)
        plain = logging.makeLogRecord({}).__dict__
        return [
            {"message": record.getMessage(), "level": record.levelname}
            | {key: value for key, value in vars(record).items() if key not in plain}
            for record in caplog.records
        ]

    return run


def test_a_message_leads_to_its_chain_and_to_its_event(functions, records):
    opened, *_ = records(*creates("database/file13", "other"))
    expected = {"tag": "database/file13", "status": "open", "applied": 1, "message_ids": "m0"}
    assert opened.items() >= {**expected, "message": "chain written", "level": "DEBUG"}.items()
    last = message(Request.stamp_("database/file13", "s", traced(1), finished=1))
    ended, *_ = records(last, last)
    expected |= {"status": "acked", "duplicate": 1, "message_ids": "m0 m1"}
    assert ended.items() >= {**expected, "message": "chain ended", "level": "INFO"}.items()
    (detail,) = functions.events().values()
    assert ended["event_id"] == detail["id"]


def test_a_chain_that_the_sweeper_ends_leads_to_its_event(functions, records, monkeypatch, caplog):
    records(message(Request.create("late", "c", traced(1), timeout=1)))
    now = milliseconds() + 100_000
    monkeypatch.setitem(ChainWriter.__init__.__kwdefaults__, "clock", lambda: now)
    caplog.clear()
    functions.sweep()
    ended, swept = caplog.records
    assert (ended.getMessage(), ended.tag, ended.why) == ("chain ended", "late", "timed out")
    (detail,) = functions.events().values()
    assert ended.event_id == detail["id"]
    assert swept.counts["ChainsTimedOut"] == 1


def test_a_tag_is_complete_and_printable_and_no_content_is_logged(records):
    tag = "bücket/" + "t" * 900 + '\n{"level":"ERROR"}\r\x1b[31m\u2028\u202e'
    request = Request.create(tag, "c", traced(0xDEADBEEF), detail={"secret": SECRET})
    invalid = Request.stamp_(tag, "s", b"\1" * 9)
    with failing("UpdateItem", "AccessDeniedException", times=1):
        lines = records(message(request), f"no JSON {SECRET}")
    lines += records(message(request), message(invalid), f"no JSON {SECRET}")
    printed = json.dumps(lines, ensure_ascii=False)
    (shown,) = {line["tag"] for line in lines if "tag" in line}
    assert shown.isprintable()
    assert shown.startswith(tag[:907])
    assert SECRET not in printed
    assert request.to_json()["stamp"][:40] not in printed
    whys = {line["why"] for line in lines if line["message"] == "requests rejected"}
    assert whys == {"body"}
