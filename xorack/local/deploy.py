"""Brings the synthesised stack into the embedded AWS, as the CDK would bring it to AWS.

The template is not changed: its assets are published where it looks for them, the SSM parameters
that it names are there, and CloudFormation creates what it says.
"""

from __future__ import annotations

import io
import json
import time
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from xorack.local.embedded import Client, EmbeddedAWS
from xorack.local.errors import DeployFailed
from xorack.local.isolation import ACCOUNT, REGION

_BOOTSTRAP_VERSION = "30"
_BODY_LIMIT = 51_200
_WHOLE_SECOND = 1.0
_POLL_SECONDS = 5


@dataclass(frozen=True)
class Stack:
    """The stack as it stands in the embedded AWS.

    Attributes:
        aws: Where it stands.
        name: Its name.
        outputs: Its outputs: `TableName`, `QueueUrl`, `DeadLetterQueueUrl`, `EventBusName`, ...
        functions: Physical names of its Lambda functions, by logical id.
        log_groups: Names of its log groups, by logical id.
    """

    aws: EmbeddedAWS
    name: str
    outputs: Mapping[str, str]
    functions: Mapping[str, str] = field(default_factory=dict)
    log_groups: Mapping[str, str] = field(default_factory=dict)

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
        """URL of its dead-letter queue."""
        return self.outputs["DeadLetterQueueUrl"]

    @property
    def bus_name(self) -> str:
        """Name of the bus that events go to."""
        return self.outputs["EventBusName"]

    def client(self, service: str) -> Client:
        """Returns a boto3 client; see `EmbeddedAWS.client`.

        Args:
            service: Name of the service.

        Returns:
            The client.
        """
        return self.aws.client(service)


@dataclass(frozen=True)
class Usage:
    """What was asked of the embedded AWS, counted where it arrived.

    Attributes:
        messages: Messages that the stack's queue took.
        invocations: Invocations of the stack's functions, scheduled ones included.
        errors: Those of them that failed or timed out.
        writes: Items written to DynamoDB, as far as a condition did not refuse them.
        conflicts: Writes that were refused, nearly always by their condition.
        reads: GetItem, BatchGetItem, Query and Scan calls.
        events: PutEvents calls.
        calls: All calls that succeeded, by action.
        refused: All calls that were answered with an error, by action.
    """

    messages: int
    invocations: int
    errors: int
    writes: int
    conflicts: int
    reads: int
    events: int
    calls: Mapping[str, int]
    refused: Mapping[str, int]


def deploy(
    aws: EmbeddedAWS,
    template: Path | Mapping[str, Any],
    assets: Path | None = None,
    *,
    name: str = "xorack",
    parameters: Mapping[str, str] | None = None,
    deadline_seconds: float = 120.0,
) -> Stack:
    """Deploys a synthesised template and waits until it stands.

    Args:
        aws: The embedded AWS, started.
        template: The template, or the path of its file in a cloud assembly.
        assets: The directory with the `*.assets.json` and the assets; default: beside the template.
        name: Name of the stack.
        parameters: Values of SSM parameters that the template names, by their paths. The ones that
            `cdk bootstrap` and the Powertools layer bring are there without.
        deadline_seconds: How long it may take.

    Returns:
        The stack.

    Raises:
        DeployFailed: It could not be deployed; the message has the reasons from its events.
    """
    if isinstance(template, Path):
        assets = assets or template.parent
        try:
            content: Mapping[str, Any] = json.loads(template.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DeployFailed(f"cannot read the template: {error}") from error
    else:
        content = template
    if assets is None:
        raise DeployFailed("a template that is not a file needs the directory of its assets")
    bucket = _publish(aws, assets)
    values = _put_parameters(aws, content, parameters or {})
    _create(aws, name, content, bucket, values)
    stack = _wait(aws, name, time.monotonic() + deadline_seconds)
    _expire(aws, content, stack)
    return stack


def _publish(aws: EmbeddedAWS, assets: Path) -> str:
    """Puts the assembly's files where the template looks for them; returns the bucket's name."""
    manifests = sorted(assets.glob("*.assets.json"))
    if not manifests:
        raise DeployFailed(f"no *.assets.json in {assets}: not a cloud assembly")
    s3, buckets = aws.client("s3"), set()
    for manifest in manifests:
        for file in json.loads(manifest.read_text(encoding="utf-8"))["files"].values():
            source = assets / file["source"]["path"]
            if not source.exists():
                raise DeployFailed(f"the asset {source} is missing")
            content = _zip(source) if file["source"]["packaging"] == "zip" else source.read_bytes()
            for destination in file["destinations"].values():
                bucket, key = (_resolve(destination[k]) for k in ("bucketName", "objectKey"))
                if bucket not in buckets:
                    with suppress(s3.exceptions.BucketAlreadyOwnedByYou):
                        s3.create_bucket(Bucket=bucket)
                    buckets.add(bucket)
                s3.put_object(Bucket=bucket, Key=key, Body=content)
    return str(sorted(buckets)[0])


def _resolve(text: str) -> str:
    known = {"AccountId": ACCOUNT, "Region": REGION, "Partition": "aws"}
    for name, value in known.items():
        text = text.replace(f"${{AWS::{name}}}", value)
    return text


def _zip(directory: Path) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(directory.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(directory))
    return packed.getvalue()


def _put_parameters(
    aws: EmbeddedAWS, template: Mapping[str, Any], given: Mapping[str, str]
) -> dict[str, str]:
    """Puts the SSM parameters that the template names; returns where the moved ones are."""
    ssm, moved = aws.client("ssm"), {}
    for key, parameter in template.get("Parameters", {}).items():
        if not parameter["Type"].startswith("AWS::SSM::Parameter::Value"):
            continue
        path = parameter.get("Default", "")
        if path in given:
            value = given[path]
        elif path.startswith("/cdk-bootstrap/"):
            value = _BOOTSTRAP_VERSION
        elif path.startswith("/aws/service/powertools/"):
            value = _empty_layer(aws)
        else:
            raise DeployFailed(f"the template wants the SSM parameter {path}: give its value")
        if path.startswith("/aws/"):
            # Only AWS may write there, here too. The stack is told to look elsewhere.
            path = moved[key] = f"/local{path}"
        ssm.put_parameter(Name=path, Value=value, Type="String", Overwrite=True)
    return moved


def _empty_layer(aws: EmbeddedAWS) -> str:
    """Returns the ARN of a layer that stands for Powertools.

    It is empty: the functions run in ministack's environment, and Powertools is in there.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("python/README", "Powertools is in the environment already.\n")
    answer = aws.client("lambda").publish_layer_version(
        LayerName="AWSLambdaPowertoolsPython", Content={"ZipFile": packed.getvalue()}
    )
    return str(answer["LayerVersionArn"])


def _create(
    aws: EmbeddedAWS,
    name: str,
    template: Mapping[str, Any],
    bucket: str,
    values: Mapping[str, str],
) -> None:
    body = json.dumps(template, separators=(",", ":"))
    source: dict[str, str] = {"TemplateBody": body}
    if len(body.encode()) > _BODY_LIMIT:
        key = f"{name}.template.json"
        aws.client("s3").put_object(Bucket=bucket, Key=key, Body=body.encode())
        source = {"TemplateURL": f"{aws.endpoint_url}/{bucket}/{key}"}
    cloudformation = aws.client("cloudformation")
    from botocore.exceptions import ClientError

    try:
        cloudformation.create_stack(
            StackName=name,
            Parameters=[{"ParameterKey": k, "ParameterValue": v} for k, v in values.items()],
            Capabilities=["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"],
            **source,
        )
    except ClientError as error:
        raise DeployFailed(f"stack {name}: {error.response['Error']['Message']}") from error


def _wait(aws: EmbeddedAWS, name: str, deadline: float) -> Stack:
    cloudformation = aws.client("cloudformation")
    pause = 0.1
    while True:
        (stack,) = cloudformation.describe_stacks(StackName=name)["Stacks"]
        status = stack["StackStatus"]
        if not status.endswith("_IN_PROGRESS"):
            break
        if time.monotonic() > deadline:
            raise DeployFailed(f"stack {name} is still {status}{_reasons(cloudformation, name)}")
        time.sleep(pause)
        pause = min(pause * 1.5, _WHOLE_SECOND)
    if status not in ("CREATE_COMPLETE", "UPDATE_COMPLETE"):
        raise DeployFailed(f"stack {name} ended {status}{_reasons(cloudformation, name)}")
    outputs = {o["OutputKey"]: o["OutputValue"] for o in stack.get("Outputs", [])}
    resources = cloudformation.describe_stack_resources(StackName=name)["StackResources"]

    def named(kind: str) -> dict[str, str]:
        return {
            r["LogicalResourceId"]: r["PhysicalResourceId"]
            for r in resources
            if r["ResourceType"] == kind
        }

    return Stack(aws, name, outputs, named("AWS::Lambda::Function"), named("AWS::Logs::LogGroup"))


def _reasons(cloudformation: Client, name: str) -> str:
    events = cloudformation.describe_stack_events(StackName=name)["StackEvents"]
    failed = [
        f"\n  {e['LogicalResourceId']} ({e['ResourceType']}): {e['ResourceStatusReason']}"
        for e in reversed(events)
        if e["ResourceStatus"].endswith("_FAILED") and e.get("ResourceStatusReason")
    ]
    return "".join(failed)


def _expire(aws: EmbeddedAWS, template: Mapping[str, Any], stack: Stack) -> None:
    """Switches the tables' TTL on: the template says so, and ministack does not listen."""
    dynamodb = aws.client("dynamodb")
    resources = aws.client("cloudformation").describe_stack_resources(StackName=stack.name)
    for resource in resources["StackResources"]:
        said = template["Resources"].get(resource["LogicalResourceId"], {}).get("Properties", {})
        if "TimeToLiveSpecification" not in said or "DynamoDB" not in resource["ResourceType"]:
            continue
        table = resource["PhysicalResourceId"]
        stands = dynamodb.describe_time_to_live(TableName=table)["TimeToLiveDescription"]
        if stands["TimeToLiveStatus"] == "DISABLED":
            dynamodb.update_time_to_live(
                TableName=table, TimeToLiveSpecification=said["TimeToLiveSpecification"]
            )


def subscribe(stack: Stack, detail_types: Sequence[str] = ("acked", "failed")) -> str:
    """Subscribes to the stack's events as any downstream system would: a rule, and a queue.

    Args:
        stack: The stack.
        detail_types: Which events.

    Returns:
        URL of the queue that they come to, from now on.
    """
    sqs, events = stack.client("sqs"), stack.client("events")
    name = f"subscriber-{uuid4().hex[:8]}"
    url = sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "60"})["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"][
        "QueueArn"
    ]
    rule = events.put_rule(
        Name=name,
        EventBusName=stack.bus_name,
        EventPattern=json.dumps({"source": ["xorack"], "detail-type": list(detail_types)}),
    )
    allowed = {
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": rule["RuleArn"]}},
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
    answer = events.put_targets(
        Rule=name, EventBusName=stack.bus_name, Targets=[{"Id": "queue", "Arn": arn}]
    )
    if answer.get("FailedEntryCount"):
        raise DeployFailed(f"cannot subscribe: {answer['FailedEntries'][0]['ErrorMessage']}")
    return str(url)


def drain(
    queue_url: str,
    client: Client,
    *,
    wait_seconds: float = 0.0,
    until: Callable[[], bool] = lambda: False,
) -> Iterator[dict[str, Any]]:
    """Takes events off a subscriber's queue.

    Args:
        queue_url: The queue, from `subscribe`.
        client: An SQS client.
        wait_seconds: How long to wait for another event once there is none.
        until: Asked before each look, so every five seconds at least; True ends it.

    Yields:
        The events as EventBridge delivers them: `detail-type`, `source`, `detail`, ... Each is off
        the queue once the next one is asked for.
    """
    quiet_since = time.monotonic()
    while not until():
        left = wait_seconds - (time.monotonic() - quiet_since)
        answer = client.receive_message(
            QueueUrl=queue_url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=max(0, min(_POLL_SECONDS, round(left))),
        )
        messages = answer.get("Messages", [])
        for message in messages:
            yield json.loads(message["Body"])
            client.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
        if messages:
            quiet_since = time.monotonic()
        elif left <= 0:
            return
        elif left < _WHOLE_SECOND:
            time.sleep(left)  # SQS waits in whole seconds; this is the rest


def usage(stack: Stack) -> Usage:
    """Counts what the stack has been asked so far, as the embedded AWS saw it arrive.

    Args:
        stack: The stack.

    Returns:
        The counts since the embedded AWS started.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{stack.aws.endpoint_url}/_xorack/usage", timeout=30) as answer:
        told: dict[str, dict[str, int]] = json.load(answer)
    calls, refused = told["calls"], told["rejected"]
    single = ("UpdateItem", "PutItem", "DeleteItem")
    own = set(stack.functions.values())
    return Usage(
        messages=told["messages"].get(stack.queue_url.rpartition("/")[2], 0),
        invocations=sum(n for name, n in told["invocations"].items() if name in own),
        errors=sum(n for name, n in told["errors"].items() if name in own),
        writes=sum(calls.get(action, 0) for action in (*single, "BatchWriteItem.items")),
        conflicts=sum(refused.get(action, 0) for action in single),
        reads=sum(calls.get(a, 0) for a in ("GetItem", "BatchGetItem", "Query", "Scan")),
        events=calls.get("PutEvents", 0),
        calls=calls,
        refused=refused,
    )


def logs(stack: Stack) -> Iterator[str]:
    """Reads what the stack's functions have logged, oldest first.

    Args:
        stack: The stack.

    Yields:
        The lines: the functions' own JSON, and Lambda's START, END and REPORT.
    """
    client = stack.client("logs")
    for group in stack.log_groups.values():
        for page in client.get_paginator("filter_log_events").paginate(logGroupName=group):
            for event in page["events"]:
                yield event["message"]
