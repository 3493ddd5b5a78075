"""The resources of a deployed acker, found by its stack, its SSM parameters or its queue."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from xorack.aws import schema
from xorack.aws.client import error_code
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.errors import StateError, shown
from xorack.core.ports import DEFAULT_RETENTION_MS


class StackOutputs(NamedTuple):
    """The outputs of a stack; it keeps finished chains for ``retention_ms``."""

    table_name: str
    queue_url: str
    dead_letter_queue_url: str
    bus_name: str
    retention_ms: int = DEFAULT_RETENTION_MS


def find_stack(where: str, client: Callable[[str], Any]) -> StackOutputs:
    """Find the resources of a deployed acker; raise StateError if they are not there.

    By the name of its CloudFormation stack, the prefix of its SSM parameters, which begins with
    ``/``, or its queue's URL.
    """
    if where.startswith("/"):
        return _outputs(_parameters(where, client("ssm")), f"SSM below {where}")
    if "://" in where:
        queue, tags = where, client("sqs").list_queue_tags(QueueUrl=where).get("Tags", {})
        if not (where := tags.get("aws:cloudformation:stack-name", "")):
            raise StateError(f"the queue {queue} is not CloudFormation's")
    cloudformation = client("cloudformation")
    try:
        (stack,) = cloudformation.describe_stacks(StackName=where)["Stacks"]
    except ClientError as error:
        message = error.response.get("Error", {}).get("Message", "")
        if error_code(error) == "ValidationError" and "does not exist" in message:
            region = cloudformation.meta.region_name
            raise StateError(f"there is no stack {where} in {region}") from error
        raise
    outputs = {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}
    return _outputs(outputs, f"stack {where}", f" is {stack['StackStatus']} and")


def _parameters(prefix: str, client: Any) -> dict[str, str]:
    pages = client.get_paginator("get_parameters_by_path").paginate(Path=prefix.rstrip("/"))
    found = (one for page in pages for one in page["Parameters"])
    return {one["Name"].rpartition("/")[2]: one["Value"] for one in found}


def _outputs(outputs: Mapping[str, str], source: str, state: str = "") -> StackOutputs:
    keys = ("TableName", "QueueUrl", "DeadLetterQueueUrl", "EventBusName")
    if absent := [key for key in keys if key not in outputs]:
        raise StateError(f"{source}{state} has no output {', '.join(absent)}")
    seconds = outputs.get("RetentionSeconds", str(DEFAULT_RETENTION_MS // 1000))
    if not re.fullmatch("[0-9]{1,10}", seconds):
        problem = f"{shown(seconds)}, expected whole seconds"
        raise StateError(f"output RetentionSeconds of {source}: {problem}")
    table, queue, dead_letters, bus = (outputs[key] for key in keys)
    return StackOutputs(table, queue, dead_letters, bus, int(seconds) * 1000)


def open_table(name: str, client: Any, retention_ms: int = DEFAULT_RETENTION_MS) -> DynamoDBStore:
    """Open a table of chains, whatever its partition key; raise StateError if there is none."""
    try:
        keys = client.describe_table(TableName=name)["Table"]["KeySchema"]
    except ClientError as error:
        if error_code(error) != "ResourceNotFoundException":
            raise
        raise StateError(f"there is no table {name} in {client.meta.region_name}") from error
    key = next(key["AttributeName"] for key in keys if key["KeyType"] == "HASH")
    return DynamoDBStore(name, str(key), client, retention_ms=retention_ms, attributes=schema.SHOWN)
