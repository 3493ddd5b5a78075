"""Finds the resources of a deployed acker by its stack or its queue."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from xorack.aws import schema
from xorack.aws.client import error_code, is_transient
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.errors import StateError, UnavailableError, shown
from xorack.core.ports import DEFAULT_RETENTION_MS


class StackOutputs(NamedTuple):
    """The outputs of a stack. It keeps ended chains for ``retention_ms`` milliseconds."""

    table_name: str
    queue_url: str
    dead_letter_queue_url: str
    bus_name: str
    retention_ms: int = DEFAULT_RETENTION_MS


class DescribedStack(NamedTuple):
    """A CloudFormation stack with its name, status and outputs."""

    name: str
    status: str
    outputs: dict[str, str]


def describe_stack(where: str, client: Callable[[str], Any]) -> DescribedStack:
    """Describe a stack, given its name or its queue's URL; raise StateError if there is none.

    If a stack has several ackers, the outputs of each have a prefix. The prefix follows the stack's
    name after a slash, or comes from the queue's tags. The returned names have no prefix.
    """
    queue, prefix = "", ""
    if "/" in where and ":" not in where:
        where, _, prefix = where.partition("/")
    if "://" in where:
        queue, tags = where, client("sqs").list_queue_tags(QueueUrl=where).get("Tags", {})
        if not (where := tags.get("aws:cloudformation:stack-name", "")):
            text = "was not created by CloudFormation; pass the stack's name"
            raise StateError(f"the queue {queue} {text}")
    if not where:  # CloudFormation would describe all stacks
        raise StateError("the name of the stack before the prefix is missing")
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
    prefixes = (name.removesuffix("QueueUrl") for name, url in outputs.items() if url == queue)
    prefix = next(prefixes, prefix)
    own = {name[len(prefix) :]: value for name, value in outputs.items() if name.startswith(prefix)}
    return DescribedStack(where, stack["StackStatus"], own)


def find_stack(where: str, client: Callable[[str], Any]) -> StackOutputs:
    """Find a deployed acker by its stack's name or queue's URL; raise StateError if none exists."""
    stack, state, outputs = describe_stack(where, client)
    keys = ("TableName", "QueueUrl", "DeadLetterQueueUrl", "EventBusName")
    if absent := [key for key in keys if key not in outputs]:
        raise StateError(f"stack {stack} is {state} and has no output {', '.join(absent)}")
    seconds = outputs.get("RetentionSeconds", str(DEFAULT_RETENTION_MS // 1000))
    if not re.fullmatch("[0-9]{1,10}", seconds):
        problem = f"{shown(seconds)}, expected whole seconds"
        raise StateError(f"output RetentionSeconds of stack {stack}: {problem}")
    table, queue, dead_letters, bus = (outputs[key] for key in keys)
    return StackOutputs(table, queue, dead_letters, bus, int(seconds) * 1000)


def open_table(name: str, client: Any, retention_ms: int = DEFAULT_RETENTION_MS) -> DynamoDBStore:
    """Open a table of chains with any partition key; raise StateError if it does not exist."""
    try:
        keys = client.describe_table(TableName=name)["Table"]["KeySchema"]
    except (ClientError, BotoCoreError) as error:
        if is_transient(error):
            raise UnavailableError(error) from error
        if error_code(error) != "ResourceNotFoundException":
            raise
        raise StateError(f"there is no table {name} in {client.meta.region_name}") from error
    key = next(key["AttributeName"] for key in keys if key["KeyType"] == "HASH")
    return DynamoDBStore(name, str(key), client, retention_ms=retention_ms, attributes=schema.SHOWN)
