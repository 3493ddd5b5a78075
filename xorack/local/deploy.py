"""Deploys a synthesised template into the embedded AWS, without changing the template.

This module uploads the assets to the places that the template names, creates the template's SSM
parameters, and lets CloudFormation create the resources.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from xorack.core.event import SOURCE
from xorack.errors import LocalError
from xorack.local.embedded import Client, EmbeddedAWS
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
        outputs: Its outputs, such as `TableName` and `QueueUrl`.
        functions: The physical names of its Lambda functions by logical id.
    """

    aws: EmbeddedAWS
    name: str
    outputs: Mapping[str, str]
    functions: Mapping[str, str]

    @property
    def table_name(self) -> str:
        return self.outputs["TableName"]

    @property
    def queue_url(self) -> str:
        return self.outputs["QueueUrl"]

    @property
    def dead_letter_queue_url(self) -> str:
        return self.outputs["DeadLetterQueueUrl"]

    @property
    def bus_name(self) -> str:
        return self.outputs["EventBusName"]

    def client(self, service: str) -> Client:
        return self.aws.client(service)

    def events(self, position: int = 0) -> tuple[list[dict[str, Any]], int]:
        """Return the chains' events from a position on, and the position after the last event.

        The events have the form in which EventBridge delivers them. The first position is 0.
        """
        events = json.loads(self.aws.fetch(f"/_xorack/events/{position}"))
        chains = [e for e in events if (e["EventBusName"], e["Source"]) == (self.bus_name, SOURCE)]
        return [_delivered(event) for event in chains], position + len(events)


def _delivered(event: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "version": "0",
        "id": event["EventId"],
        "detail-type": event["DetailType"],
        **{name.lower(): event[name] for name in ("Source", "Account", "Region", "Resources")},
        "time": iso_time(event["Time"]),
        "detail": json.loads(event["Detail"]),
    }


def iso_time(seconds: float) -> str:
    """Format seconds since the epoch as a time in UTC."""
    time_ = datetime.fromtimestamp(seconds, timezone.utc)
    return time_.isoformat(timespec="seconds").replace("+00:00", "Z")


def deploy(aws: EmbeddedAWS, template: Path, *, name: str = "xorack") -> Stack:
    """Deploy a synthesised template and wait until its resources exist.

    The template must be in a cloud assembly with its `*.assets.json`.
    """
    try:
        content = json.loads(template.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LocalError(f"cannot read the template: {error}") from error
    bucket = _upload_assets(aws, template.parent)
    key = f"{name}.template.json"
    aws.client("s3").put_object(Bucket=bucket, Key=key, Body=template.read_bytes())
    for parameter in content.get("Parameters", {}).values():
        if (path := str(parameter.get("Default"))).startswith(_BOOTSTRAP):
            aws.client("ssm").put_parameter(
                Name=path, Value=_BOOTSTRAP_VERSION, Type="String", Overwrite=True
            )
    stack = _create(aws, name, f"{aws.endpoint_url}/{bucket}/{key}")
    resources = aws.client("cloudformation").describe_stack_resources(StackName=name)
    functions = {
        resource["LogicalResourceId"]: resource["PhysicalResourceId"]
        for resource in resources["StackResources"]
        if resource["ResourceType"] == "AWS::Lambda::Function"
    }
    outputs = {o["OutputKey"]: o["OutputValue"] for o in stack.get("Outputs", [])}
    return Stack(aws, name, outputs, functions)


def _upload_assets(aws: EmbeddedAWS, assembly: Path) -> str:
    """Upload the assembly's files to their destinations, and return the name of a bucket."""
    manifests = sorted(assembly.glob("*.assets.json"))
    if not manifests:
        raise LocalError(
            f"{assembly} is not a cloud assembly, as it has no *.assets.json: synthesise the stack"
        )
    s3, bucket = aws.client("s3"), ""
    for manifest in manifests:
        for file in json.loads(manifest.read_text(encoding="utf-8"))["files"].values():
            source = assembly / file["source"]["path"]
            if not source.exists():
                raise LocalError(f"the asset {source} is missing: synthesise the stack again")
            content = zip_folder(source) if source.is_dir() else source.read_bytes()
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


def zip_folder(folder: Path) -> bytes:
    """Pack a folder into a ZIP file. The same files make the same bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                entry = zipfile.ZipInfo(path.relative_to(folder).as_posix())
                entry.external_attr = 0o644 << 16  # Lambda's user does not own the file
                archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _create(aws: EmbeddedAWS, name: str, template_url: str) -> Mapping[str, Any]:
    from botocore.exceptions import ClientError, WaiterError

    cloudformation = aws.client("cloudformation")
    try:
        cloudformation.create_stack(
            StackName=name,
            TemplateURL=template_url,
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
