"""A state machine and a durable function wait for a chain; the embedded AWS resumes them."""

import io
import json
import zipfile

import pytest

from tests.e2e.conftest import item_of
from tests.support.events import eventually
from tests.support.functions import chain
from xorack.aws.sqs import send
from xorack.core.request import Request

ROLE = "arn:aws:iam::000000000000:role/any"
DURABLE = '''
import json, os
import boto3

def handler(event, context):
    """Ask for a callback, send the chain's create with its id, and wait."""
    operations = event["InitialExecutionState"]["Operations"]
    callback = next((update for update in operations if update["Type"] == "CALLBACK"), None)
    if callback is None:
        made = boto3.client("lambda").checkpoint_durable_execution(
            DurableExecutionArn=event["DurableExecutionArn"],
            CheckpointToken=event["CheckpointToken"],
            Updates=[{"Id": "wait", "Type": "CALLBACK", "Action": "START"}],
        )
        operations = made["NewExecutionState"]["Operations"]
        (callback,) = [update for update in operations if update["Type"] == "CALLBACK"]
        work = json.loads(operations[0]["ExecutionDetails"]["InputPayload"])
        resume = {"lambda": callback["CallbackDetails"]["CallbackId"]}
        body = {"version": 1, "requests": [{**work["create"], "resume": resume}]}
        boto3.client("sqs").send_message(QueueUrl=work["queue"], MessageBody=json.dumps(body))
        return {"Status": "PENDING"}
    details = callback["CallbackDetails"]
    if callback["Status"] == "SUCCEEDED":
        return {"Status": "SUCCEEDED", "Result": details["Result"]}
    return {"Status": "FAILED", "Error": details["Error"]}
'''


def outcome_of(stack, tag):
    """Wait until the table says that whoever waits was resumed; return the chain's status."""

    def resumed():
        item = item_of(stack, tag) or {}
        return item.get("ended_at") and "resume_pending" not in item and item

    return eventually(resumed)["status"]["S"]


@pytest.fixture(scope="module")
def state_machine(stack):
    """A state machine whose only task sends a create with its token, and waits."""
    request = {
        "op": "create",
        "tag.$": "$.tag",
        "id": "create",
        "stamp.$": "$.stamp",
        "started": 1,
        "resume": {"step_functions.$": "$$.Task.Token"},
    }
    wait = {
        "Type": "Task",
        "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken",
        "Parameters": {
            "QueueUrl": stack.queue_url,
            "MessageBody": {"version": 1, "requests": [request]},
        },
        "End": True,
    }
    definition = json.dumps({"StartAt": "Wait", "States": {"Wait": wait}})
    client = stack.client("stepfunctions")
    return client.create_state_machine(name="waits", definition=definition, roleArn=ROLE)


def test_a_state_machine_waits_for_a_chain_that_fails(stack, state_machine):
    client, tag = stack.client("stepfunctions"), "machine/1"
    create = next(chain(tag, 3)).to_json()
    values = json.dumps({name: create[name] for name in ("tag", "stamp")})
    arn = state_machine["stateMachineArn"]
    execution = client.start_execution(stateMachineArn=arn, input=values)["executionArn"]
    assert eventually(lambda: item_of(stack, tag))
    assert client.describe_execution(executionArn=execution)["status"] == "RUNNING"
    send(stack.queue_url, [Request.fail(tag, "why", "no disk")], stack.client("sqs"))
    assert outcome_of(stack, tag) == "failed"
    ended = ended_execution(client.describe_execution, executionArn=execution)
    assert (ended["status"], ended["error"]) == ("FAILED", "ChainFailed")
    assert json.loads(ended["cause"])["reason"] == "no disk"


def ended_execution(describe, **names):
    """Wait for the end of an execution; return its description."""

    def ended():
        found = describe(**names)
        return found.get("status", found.get("Status")) != "RUNNING" and found

    return eventually(ended)


def enable(params, **_):
    """Add a field that the embedded AWS needs, and Lambda does not have, for durable functions."""
    body = json.loads(params["body"])
    if "DurableConfig" in body:
        body["DurableConfig"]["Enabled"] = True
    params["body"] = json.dumps(body).encode()


@pytest.fixture(scope="module")
def durable_function(stack):
    """A durable function that waits for a callback."""
    code = io.BytesIO()
    with zipfile.ZipFile(code, "w") as archive:
        archive.writestr("waits.py", DURABLE)
    client = stack.client("lambda")
    client.meta.events.register("before-call.lambda.CreateFunction", enable)
    client.create_function(
        FunctionName="waits",
        Runtime="python3.13",
        Role=ROLE,
        Handler="waits.handler",
        Code={"ZipFile": code.getvalue()},
        Timeout=30,
        DurableConfig={"ExecutionTimeout": 300, "RetentionPeriodInDays": 1},
    )
    return client.publish_version(FunctionName="waits")["FunctionArn"]


def test_a_durable_function_waits_for_a_chain_that_is_acked(stack, durable_function):
    client, tag = stack.client("lambda"), "durable/1"
    create, *others = chain(tag, 3)
    started = client.invoke(
        FunctionName=durable_function,
        Payload=json.dumps({"queue": stack.queue_url, "create": create.to_json()}),
    )
    assert eventually(lambda: item_of(stack, tag))
    send(stack.queue_url, others, stack.client("sqs"))
    assert outcome_of(stack, tag) == "acked"
    arn = started["DurableExecutionArn"]
    ended = ended_execution(client.get_durable_execution, DurableExecutionArn=arn)
    assert ended["Status"] == "SUCCEEDED"
    assert json.loads(ended["Result"])["tag"] == tag
