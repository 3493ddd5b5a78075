"""Calls that resume the task that waits for a chain, as the services' models define them."""

import json

import boto3
import pytest
from botocore.exceptions import ReadTimeoutError
from botocore.stub import Stubber

from tests.support.chains import changed, make_chain
from tests.support.fakes import NO_WAIT
from xorack.aws.callbacks import CALLBACK_SERVICES, CallbackSender
from xorack.core.event import event_detail

ACKED = make_chain("t", b"\0", "acked", 1, 1, 2, created_at=0, ended_at=1, resume="")
FAILED = make_chain("t", b"\1", "failed", 1, 0, 2, created_at=0, ended_at=1, reason="timed out")
CALLBACK = "send_durable_execution_callback"


def text(chain):
    return json.dumps(event_detail(chain), separators=(",", ":"))


CALLS = {
    "step_functions": ("send_task_success", "send_task_failure"),
    "lambda": (f"{CALLBACK}_success", f"{CALLBACK}_failure"),
}
FAILURE = {"ErrorType": "ChainFailed", "ErrorMessage": "timed out", "ErrorData": text(FAILED)}
PARAMETERS = {
    "step_functions": (
        {"taskToken": "T", "output": text(ACKED)},
        {"taskToken": "T", "error": "ChainFailed", "cause": text(FAILED)},
    ),
    "lambda": (
        {"CallbackId": "T", "Result": text(ACKED).encode()},
        {"CallbackId": "T", "Error": FAILURE},
    ),
}


@pytest.fixture
def stub():
    """Return a function that stubs the client of a kind."""
    clients = {}

    def make(kind):
        client = boto3.client(CALLBACK_SERVICES[kind].client, "eu-west-1")
        clients[kind] = Stubber(client)
        clients[kind].activate()
        return CallbackSender(kind, client, policy=NO_WAIT), clients[kind]

    yield make
    for stubber in clients.values():
        stubber.assert_no_pending_responses()


def waiting(chain, kind):
    return changed(chain, resume=json.dumps({kind: "T"}), resume_pending=True)


@pytest.mark.parametrize("kind", CALLBACK_SERVICES)
def test_the_result_is_the_detail_of_the_event(stub, kind):
    resumer, stubber = stub(kind)
    for chain, call, parameters in zip((ACKED, FAILED), CALLS[kind], PARAMETERS[kind], strict=True):
        stubber.add_response(call, {}, parameters)
        assert resumer.publish([waiting(chain, kind)]) == {}


@pytest.mark.parametrize(
    ("kind", "code", "answer"),
    [
        ("step_functions", "TaskDoesNotExist", "gone"),
        ("step_functions", "TaskTimedOut", "gone"),
        ("lambda", "CallbackTimeoutException", "gone"),
        ("lambda", "ResourceNotFoundException", "gone"),
        ("step_functions", "AccessDeniedException", "refused"),
        ("step_functions", "InvalidToken", "refused"),
        ("lambda", "InvalidParameterValueException", "refused"),
    ],
)
def test_nobody_waits_or_the_call_is_refused(stub, kind, code, answer):
    resumer, stubber = stub(kind)
    stubber.add_client_error(CALLS[kind][0], code, "not allowed")
    (why,) = resumer.publish([waiting(ACKED, kind)]).values()
    assert (why.kind, code in why.reason) == (answer, True)
    errors = {shape.name for shape in stubber.client.meta.service_model.error_shapes}
    assert answer == "refused" or code in errors


def test_a_boto3_without_the_operation_fails_one_chain_and_not_the_batch():
    (why,) = CallbackSender("lambda", object()).publish([waiting(ACKED, "lambda")]).values()
    assert why.kind == "refused"
    assert f"no attribute '{CALLBACK}_success'" in why.reason


@pytest.mark.parametrize("code", ["KmsThrottlingException", "ThrottlingException"])
def test_a_throttled_call_is_repeated(stub, code):
    resumer, stubber = stub("step_functions")
    stubber.add_client_error("send_task_success", code)
    stubber.add_response("send_task_success", {})
    assert resumer.publish([waiting(ACKED, "step_functions")]) == {}


def test_a_lost_response_is_an_outage_whose_reason_has_no_callback_id():
    def lose(request, **_):
        raise ReadTimeoutError(endpoint_url=request.url)

    client = boto3.client("lambda", "eu-west-1")
    client.meta.events.register("before-send", lose)
    (why,) = (
        CallbackSender("lambda", client, policy=NO_WAIT)
        .publish([waiting(ACKED, "lambda")])
        .values()
    )
    assert (why.reason, why.kind) == ("ReadTimeoutError", "outage")
