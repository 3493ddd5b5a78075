"""Deployment of a synthesised template into the embedded AWS, without changes to the template.

Its assets are uploaded where it looks for them, the SSM parameters that it names exist, and
CloudFormation creates its resources.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from xorack.core.errors import LocalError
from xorack.local.embedded import Client, EmbeddedAWS, fetch
from xorack.local.isolation import ACCOUNT, REGION

_PSEUDO_PARAMETERS = {"AccountId": ACCOUNT, "Region": REGION, "Partition": "aws"}
_BOOTSTRAP, _BOOTSTRAP_VERSION = "/cdk-bootstrap/", "30"
"""The SSM parameters of `cdk bootstrap`: the beginning of their paths, and their value."""
_CREATE_SECONDS = 120
_POLL_SECONDS = 0.25


@dataclass(frozen=True)
class Stack:
    """A stack in the embedded AWS.

    Attributes:
        aws: The embedded AWS.
        name: The stack's name.
        outputs: Its outputs: `TableName`, `QueueUrl`, `DeadLetterQueueUrl`, `EventBusName`, ...
        functions: Physical names of its Lambda functions, by logical id.
    """

    aws: EmbeddedAWS
    name: str
    outputs: Mapping[str, str]
    functions: Mapping[str, str]

    @property
    def table_name(self) -> str:
        """Name of the chains' table."""
        return self.outputs["TableName"]

    @property
    def queue_url(self) -> str:
        """URL of the queue of requests."""
        return self.outputs["QueueUrl"]

    @property
    def dead_letter_queue_url(self) -> str:
        """URL of the dead-letter queue."""
        return self.outputs["DeadLetterQueueUrl"]

    @property
    def bus_name(self) -> str:
        """Name of the event bus."""
        return self.outputs["EventBusName"]

    def client(self, service: str) -> Client:
        """Return a boto3 client; see `ClientCache.client`."""
        return self.aws.client(service)


@dataclass(frozen=True)
class Usage:
    """Counters of a stack, taken where calls arrive.

    Attributes:
        messages: Messages sent to the stack's queue.
        invocations: Invocations of its functions, scheduled ones included.
        errors: Invocations that failed or timed out.
        writes: Items written to its table; rejected conditional writes do not count.
    """

    messages: int
    invocations: int
    errors: int
    writes: int


def deploy(aws: EmbeddedAWS, template: Path, *, name: str = "xorack") -> Stack:
    """Deploy a synthesised template and wait until its resources exist.

    The template lies in a cloud assembly, with its `*.assets.json`.

    Raises:
        LocalError: The deployment failed; the message has the reasons from the stack's events.
    """
    try:
        content = json.loads(template.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LocalError(f"cannot read the template: {error}") from error
    bucket = _upload_assets(aws, template.parent)
    key = f"{name}.template.json"
    aws.client("s3").put_object(Bucket=bucket, Key=key, Body=template.read_bytes())
    values = _put_parameters(aws, content.get("Parameters", {}))
    stack = _create(aws, name, f"{aws.endpoint_url}/{bucket}/{key}", values)
    resources = aws.client("cloudformation").describe_stack_resources(StackName=name)
    physical: dict[str, dict[str, str]] = {}
    for one in resources["StackResources"]:
        of_type = physical.setdefault(one["ResourceType"], {})
        of_type[one["LogicalResourceId"]] = one["PhysicalResourceId"]
    # ministack ignores the template's time to live.
    for table_type in ("AWS::DynamoDB::Table", "AWS::DynamoDB::GlobalTable"):
        for logical_id, table in physical.get(table_type, {}).items():
            properties = content["Resources"][logical_id]["Properties"]
            if ttl := properties.get("TimeToLiveSpecification"):
                aws.client("dynamodb").update_time_to_live(
                    TableName=table, TimeToLiveSpecification=ttl
                )
    outputs = {o["OutputKey"]: o["OutputValue"] for o in stack.get("Outputs", [])}
    return Stack(aws, name, outputs, physical.get("AWS::Lambda::Function", {}))


def _upload_assets(aws: EmbeddedAWS, assembly: Path) -> str:
    """Upload the assembly's files to their destinations and return a bucket's name."""
    manifests = sorted(assembly.glob("*.assets.json"))
    if not manifests:
        raise LocalError(f"no *.assets.json in {assembly}: not a cloud assembly")
    s3, bucket = aws.client("s3"), ""
    for manifest in manifests:
        for file in json.loads(manifest.read_text(encoding="utf-8"))["files"].values():
            source = assembly / file["source"]["path"]
            if not source.exists():
                raise LocalError(f"the asset {source} is missing")
            content = _zip(source) if file["source"]["packaging"] == "zip" else source.read_bytes()
            for destination in file["destinations"].values():
                bucket = _resolve(destination["bucketName"])
                with suppress(s3.exceptions.BucketAlreadyOwnedByYou):
                    s3.create_bucket(Bucket=bucket)
                s3.put_object(Bucket=bucket, Key=_resolve(destination["objectKey"]), Body=content)
    return bucket


def _resolve(text: str) -> str:
    for name, value in _PSEUDO_PARAMETERS.items():
        text = text.replace(f"${{AWS::{name}}}", value)
    return text


def _zip(folder: Path) -> bytes:
    with TemporaryDirectory() as target:
        return Path(shutil.make_archive(f"{target}/asset", "zip", folder)).read_bytes()


def _put_parameters(aws: EmbeddedAWS, parameters: Mapping[str, Any]) -> dict[str, str]:
    """Put the template's SSM parameters and return their paths, by the template's names."""
    paths = {}
    for name, parameter in parameters.items():
        if not parameter["Type"].startswith("AWS::SSM::Parameter::Value"):
            continue
        path = parameter.get("Default", "")
        if not path.startswith(_BOOTSTRAP):
            raise LocalError(f"the template names the SSM parameter {path}, which does not exist")
        # Nobody but AWS may write below /aws.
        paths[name] = f"/local{path}"
        aws.client("ssm").put_parameter(
            Name=paths[name], Value=_BOOTSTRAP_VERSION, Type="String", Overwrite=True
        )
    return paths


def _create(
    aws: EmbeddedAWS, name: str, template_url: str, values: Mapping[str, str]
) -> Mapping[str, Any]:
    """Create a stack, wait for it and return its description."""
    from botocore.exceptions import ClientError, WaiterError

    cloudformation = aws.client("cloudformation")
    try:
        cloudformation.create_stack(
            StackName=name,
            TemplateURL=template_url,
            Parameters=[{"ParameterKey": k, "ParameterValue": v} for k, v in values.items()],
            Capabilities=["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"],
        )
        attempts = int(_CREATE_SECONDS / _POLL_SECONDS)
        cloudformation.get_waiter("stack_create_complete").wait(
            StackName=name, WaiterConfig={"Delay": _POLL_SECONDS, "MaxAttempts": attempts}
        )
    except ClientError as error:
        raise LocalError(f"stack {name}: {error.response['Error']['Message']}") from error
    except WaiterError as error:
        events = cloudformation.describe_stack_events(StackName=name)["StackEvents"]
        reasons = "".join(
            f"\n  {e['LogicalResourceId']} ({e['ResourceType']}): {e['ResourceStatusReason']}"
            for e in reversed(events)
            if e["ResourceStatus"].endswith("_FAILED") and e.get("ResourceStatusReason")
        )
        (stack,) = cloudformation.describe_stacks(StackName=name)["Stacks"]
        raise LocalError(f"stack {name} is {stack['StackStatus']}{reasons}") from error
    (created,) = cloudformation.describe_stacks(StackName=name)["Stacks"]
    return dict(created)


def subscribe(stack: Stack, detail_types: Sequence[str] = ("acked", "failed")) -> str:
    """Subscribe to the stack's events as any other system would: with a rule and a queue.

    Returns:
        URL of the queue that gets the events from now on.
    """
    sqs, events = stack.client("sqs"), stack.client("events")
    name = f"subscriber-{uuid4().hex[:8]}"
    url = sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "60"})["QueueUrl"]
    queue = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    events.put_rule(
        Name=name,
        EventBusName=stack.bus_name,
        EventPattern=json.dumps({"source": ["xorack"], "detail-type": list(detail_types)}),
    )
    target = {"Id": "queue", "Arn": queue["QueueArn"]}
    answer = events.put_targets(Rule=name, EventBusName=stack.bus_name, Targets=[target])
    if answer.get("FailedEntryCount"):
        raise LocalError(f"cannot subscribe: {answer['FailedEntries'][0]['ErrorMessage']}")
    return str(url)


def drain(
    queue_url: str,
    client: Client,
    *,
    wait_seconds: float = 0.0,
    until: Callable[[], bool] = lambda: False,
) -> Iterator[dict[str, Any]]:
    """Receive events from a subscriber's queue, and delete each batch after its last event.

    Ends after `wait_seconds` without an event, or once `until` returns True. `until` is called
    before each poll, about once a second.

    Yields:
        The events as EventBridge delivers them: `detail-type`, `source`, `detail`, ...
    """
    deadline = time.monotonic() + wait_seconds
    while not until():
        answer = client.receive_message(
            QueueUrl=queue_url, MaxNumberOfMessages=10, WaitTimeSeconds=1 if wait_seconds else 0
        )
        messages = answer.get("Messages", [])
        for message in messages:
            yield json.loads(message["Body"])
        if messages:
            entries = [
                {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
                for number, message in enumerate(messages)
            ]
            client.delete_message_batch(QueueUrl=queue_url, Entries=entries)
            deadline = time.monotonic() + wait_seconds
        elif time.monotonic() >= deadline:
            return


def usage(stack: Stack) -> Usage:
    """Return the stack's counters since the embedded AWS started."""
    counters = json.loads(fetch(f"{stack.aws.endpoint_url}/_xorack/usage", timeout_seconds=30))
    functions = stack.functions.values()
    return Usage(
        messages=counters["messages"].get(stack.queue_url.rpartition("/")[2], 0),
        invocations=sum(counters["invocations"].get(name, 0) for name in functions),
        errors=sum(counters["errors"].get(name, 0) for name in functions),
        writes=counters["writes"].get(stack.table_name, 0),
    )
