"""A state machine and a durable function wait for a chain; the embedded AWS resumes them."""

import json

import pytest

from tests.e2e.conftest import item_of
from tests.support.events import eventually
from tests.support.functions import chain
from xorack.aws.sqs import send
from xorack.core.request import Request

ROLE = "arn:aws:iam::000000000000:role/any"


def outcome_of(stack, tag):
    """Wait until the table says that the waiting task was resumed; return the chain's status."""

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
