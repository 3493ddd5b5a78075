"""X-Ray subsegments of calls to table, bus and queue, as the daemon beside a function gets them."""

import json
import socket
import time

import pytest
from aws_xray_sdk.core import xray_recorder
from aws_xray_sdk.core.models.facade_segment import FacadeSegment
from aws_xray_sdk.core.models.subsegment import Subsegment

from lambda_src import environment, tracing
from tests.support.faults import failing, lost_responses
from tests.support.functions import acked, message
from tests.support.lambda_runtime import TRACE, run_function

xray_recorder.emitter._socket.close()  # the SDK opens it when it is imported
ROOT, PARENT = "1-58406520-a006649127e371903a2de979", "53995c3f42cd8ad8"


@pytest.fixture
def daemon():
    """A socket in the place of X-Ray's daemon."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1_000_000)
        listening.bind(("127.0.0.1", 0))
        listening.setblocking(False)
        yield listening


def received(daemon):
    documents = []
    try:
        while True:
            header, document = daemon.recv(65_536).split(b"\n", 1)
            assert json.loads(header) == {"format": "json", "version": 1}
            documents.append(json.loads(document))
    except BlockingIOError:
        return documents


@pytest.fixture
def traced(functions, daemon, monkeypatch):
    """The functions of a stack with `tracing`."""
    monkeypatch.setenv("TRACING", "true")
    monkeypatch.setenv("AWS_XRAY_DAEMON_ADDRESS", "127.0.0.1:{1}".format(*daemon.getsockname()))
    monkeypatch.setenv("_X_AMZN_TRACE_ID", TRACE)
    return functions


def as_the_sdk_makes_it(document):
    """The same subsegment, made by AWS's own SDK."""
    parent = FacadeSegment("function", entityid=PARENT, traceid=ROOT, sampled=True)
    subsegment = Subsegment(document["name"], document["namespace"], parent)
    parent.add_subsegment(subsegment)
    subsegment.set_aws(document["aws"])
    subsegment.put_http_meta("status", document["http"]["response"]["status"])
    subsegment.apply_status_code(document["http"]["response"]["status"])
    subsegment.close(document["end_time"])
    made = json.loads(subsegment.serialize())
    del made["in_progress"]
    return made | {"id": document["id"], "start_time": document["start_time"]}


def test_calls_of_table_bus_and_queue_are_subsegments(traced, daemon, aws):
    before = time.time()
    assert traced.consume(message(*acked("t")), "no JSON") == []
    documents = received(daemon)
    calls = {(one["name"], one["aws"]["operation"]): one for one in documents}
    assert set(calls) == {
        ("dynamodb", "UpdateItem"), ("events", "PutEvents"), ("sqs", "SendMessageBatch"),
    }  # fmt: skip
    for document in documents:
        assert document == as_the_sdk_makes_it(document)
        assert before <= document["start_time"] <= document["end_time"] <= time.time()
    assert calls["dynamodb", "UpdateItem"]["aws"]["table_name"] == aws.table_name
    assert calls["sqs", "SendMessageBatch"]["aws"]["queue_url"] == aws.dead_letter_queue_url
    assert len({one["id"] for one in documents}) == len(documents)


@pytest.mark.parametrize(
    ("fault", "flags"),
    [
        (failing("UpdateItem", "AccessDeniedException", times=1), {"error"}),
        (failing("UpdateItem", "ThrottlingException", times=1), {"error", "throttle"}),
        (lost_responses("UpdateItem"), {"fault", "cause"}),
    ],
)
def test_failures_have_flags(traced, daemon, fault, flags):
    with fault:
        traced.consume(message(*acked("t")), "no JSON")
    first = received(daemon)[0]
    assert first.keys() & {"error", "throttle", "fault", "cause"} == flags
    assert "://" not in str(first)  # the URL of a call may hold a secret: a callback's id


def test_a_large_batch_sends_only_some(traced, daemon, monkeypatch):
    monkeypatch.setattr(tracing, "MAX_SUBSEGMENTS", 3)
    for trace in (TRACE, TRACE.replace("a006", "b006")):
        monkeypatch.setenv("_X_AMZN_TRACE_ID", trace)
        assert (
            traced.consume(message(*acked("t1")), message(*acked("t2")), message(*acked("t3")))
            == []
        )
        assert len(received(daemon)) == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("_X_AMZN_TRACE_ID", TRACE.replace("Sampled=1", "Sampled=0")),
        ("_X_AMZN_TRACE_ID", "Sampled=1"),
        ("_X_AMZN_TRACE_ID", ""),
        ("TRACING", ""),
    ],
)
def test_without_a_sampled_trace_nothing_is_sent(traced, daemon, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert traced.consume(message(*acked("t"))) == []
    assert received(daemon) == []
    assert (environment.services().tracer is None) == (name == "TRACING")


@pytest.mark.thorough
def test_lambdas_runtime_names_the_trace(daemon):
    batch = {"Records": [{"messageId": "m", "body": message(*acked("t"))}]}
    address = "127.0.0.1:{1}".format(*daemon.getsockname())
    variables = {"TRACING": "true", "AWS_XRAY_DAEMON_ADDRESS": address}
    run_function("consumer", batch, environment=variables)
    (document,) = received(daemon)
    assert (document["trace_id"], document["parent_id"]) == (ROOT, PARENT)
    assert document["aws"]["request_id"] == "id-of-the-call"
