"""An acker is found by its stack, its SSM parameters or its queue."""

import boto3
import pytest
from botocore.stub import Stubber

from xorack import Tracker
from xorack.aws.stack import find_stack
from xorack.errors import StateError

QUEUE = "https://sqs.eu-west-1.amazonaws.com/123456789012/stamps"
OUTPUTS = {"TableName": "chains", "QueueUrl": QUEUE, "DeadLetterQueueUrl": f"{QUEUE}-dead",
           "EventBusName": "bus", "RetentionSeconds": "60"}  # fmt: skip


def answers(service, operation, response, **expected):
    client = boto3.client(service, region_name="eu-west-1")
    stubber = Stubber(client)
    stubber.add_response(operation, response, expected)
    stubber.activate()
    return client


def parameters(values):
    found = [{"Name": f"/xorack/prod/{name}", "Value": value} for name, value in values.items()]
    return answers("ssm", "get_parameters_by_path", {"Parameters": found}, Path="/xorack/prod")


def stack(values):
    outputs = [{"OutputKey": name, "OutputValue": value} for name, value in values.items()]
    made = {"StackName": "shop", "CreationTime": 0, "StackStatus": "CREATE_COMPLETE"}
    answer = {"Stacks": [{**made, "Outputs": outputs}]}
    return answers("cloudformation", "describe_stacks", answer, StackName="shop")


def queue(tags):
    return answers("sqs", "list_queue_tags", {"Tags": tags}, QueueUrl=QUEUE)


@pytest.mark.parametrize("where", ["shop", "/xorack/prod/", QUEUE])
def test_it_is_found_by(where):
    clients = {
        "ssm": parameters(OUTPUTS),
        "cloudformation": stack(OUTPUTS),
        "sqs": queue({"aws:cloudformation:stack-name": "shop"}),
    }
    found = find_stack(where, clients.get)
    assert (found.table_name, found.queue_url, found.retention_ms) == ("chains", QUEUE, 60_000)


@pytest.mark.parametrize(
    ("where", "clients", "line"),
    [
        ("/xorack/prod", {"ssm": parameters({"TableName": "chains"})},
         "SSM below /xorack/prod has no output QueueUrl, DeadLetterQueueUrl, EventBusName"),
        (QUEUE, {"sqs": queue({})}, f"the queue {QUEUE} is not CloudFormation's"),
        ("shop", {"cloudformation": stack({**OUTPUTS, "RetentionSeconds": "a day"})},
         "output RetentionSeconds of stack shop: 'a day', expected whole seconds"),
    ],
)  # fmt: skip
def test_an_error_says_what_was_read(where, clients, line):
    with pytest.raises(StateError) as caught:
        find_stack(where, clients.get)
    assert str(caught.value).startswith(line)


def test_a_tracker_finds_its_queue_and_asks_nobody_for_a_url(monkeypatch):
    monkeypatch.setattr("xorack.client.tracker.make_client", {"cloudformation": stack(OUTPUTS)}.get)
    assert Tracker.find("shop", stamps="plain").queue_url == QUEUE
    assert Tracker.find(QUEUE, group="a").group == "a"
