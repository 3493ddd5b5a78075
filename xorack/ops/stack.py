"""The resources of a deployed stack, found by its outputs."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from xorack.aws.client import error_code
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.errors import StateError, shown
from xorack.core.ports import DEFAULT_RETENTION_MS

__all__ = ["StackOutputs", "find_stack", "open_table"]


class StackOutputs(NamedTuple):
    """The outputs of a stack.

    Attributes:
        retention_ms: Milliseconds for which it keeps finished chains.
    """

    table_name: str
    queue_url: str
    dead_letter_queue_url: str
    bus_name: str
    retention_ms: int = DEFAULT_RETENTION_MS


def find_stack(name: str, client: Any) -> StackOutputs:
    """Find the resources of a CloudFormation stack by its outputs.

    Raises:
        StateError: The account and region have no such stack, or it has other outputs.
    """
    try:
        (stack,) = client.describe_stacks(StackName=name)["Stacks"]
    except ClientError as error:
        message = error.response.get("Error", {}).get("Message", "")
        if error_code(error) == "ValidationError" and "does not exist" in message:
            region = client.meta.region_name
            raise StateError(f"there is no stack {name} in {region}") from error
        raise
    outputs = {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}
    keys = ("TableName", "QueueUrl", "DeadLetterQueueUrl", "EventBusName")
    if absent := [key for key in keys if key not in outputs]:
        status = stack["StackStatus"]
        raise StateError(f"stack {name} is {status} and has no output {', '.join(absent)}")
    seconds = outputs.get("RetentionSeconds", str(DEFAULT_RETENTION_MS // 1000))
    if not re.fullmatch("[0-9]{1,10}", seconds):
        problem = f"{shown(seconds)}, expected whole seconds"
        raise StateError(f"output RetentionSeconds of {name}: {problem}")
    table, queue, dead_letters, bus = (outputs[key] for key in keys)
    return StackOutputs(table, queue, dead_letters, bus, int(seconds) * 1000)


def open_table(name: str, client: Any, retention_ms: int = DEFAULT_RETENTION_MS) -> DynamoDBStore:
    """Open a table of chains, whatever the name of its partition key.

    A chain that ends here is kept for `retention_ms` milliseconds.

    Raises:
        StateError: The account and region have no such table.
    """
    try:
        schema = client.describe_table(TableName=name)["Table"]["KeySchema"]
    except ClientError as error:
        if error_code(error) != "ResourceNotFoundException":
            raise
        raise StateError(f"there is no table {name} in {client.meta.region_name}") from error
    key = next(key["AttributeName"] for key in schema if key["KeyType"] == "HASH")
    return DynamoDBStore(name, str(key), client, retention_ms=retention_ms)
