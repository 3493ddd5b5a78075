"""Chains in the table of a test, as operators find them."""

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from botocore.exceptions import ClientError
from jsonschema import Draft202012Validator

from tests.support.services import Message, consume
from xorack import traced, unit_id
from xorack.aws.client import make_client
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.eventbridge import EventBus
from xorack.aws.sqs import send_rejected
from xorack.core.message import pack
from xorack.core.request import Request
from xorack.core.stamp import xor
from xorack.local.isolation import REGION

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/commands.schema.json").read_text("utf-8"))
"""What each command prints with --json: every field, no other."""
TAG = "books/moby.txt"
FILE, *WORDS = (unit_id(TAG, n) for n in range(6))


class Stacks(dict):
    """Outputs by the name of a stack, and the client for them.

    moto's CloudFormation imports all its other services: more than a second in each process.
    """

    meta = SimpleNamespace(region_name=REGION)

    def describe_stacks(self, StackName):
        if StackName not in self:
            message = f"Stack with id {StackName} does not exist"
            error = {"Code": "ValidationError", "Message": message}
            raise ClientError({"Error": error}, "DescribeStacks")
        outputs = [{"OutputKey": k, "OutputValue": v} for k, v in self[StackName].items()]
        return {"Stacks": [{"StackStatus": "CREATE_COMPLETE", "Outputs": outputs}]}

    def make_client(self, service, **options):
        return self if service == "cloudformation" else make_client(service, **options)


def outputs_of(aws):
    """Return the outputs of a stack of these resources."""
    return {
        "TableName": aws.table_name,
        "QueueUrl": aws.queue_url,
        "DeadLetterQueueUrl": aws.dead_letter_queue_url,
        "EventBusName": aws.bus_name,
    }


def store(aws):
    return DynamoDBStore(aws.table_name, aws.partition_key, aws.client("dynamodb"))


def deliver(aws, messages):
    """Hand messages to a consumer over the resources of a test; return its result."""
    bus = EventBus(aws.bus_name, aws.client("events"))
    dead_letters = partial(send_rejected, aws.dead_letter_queue_url, aws.client("sqs"))
    return consume(messages, store(aws), bus, dead_letters, default_timeout_ms=86_400_000)


def apply(aws, *requests):
    result = deliver(aws, [Message(str(n), body) for n, body in enumerate(pack(requests))])
    assert not result.failed
    assert result.outcomes["rejected"] == 0


def start(aws, tag=TAG, **options):
    """Create a chain of a file with five words, three finished; return the ids of the others."""
    words = xor(*(traced(word) for word in WORDS))
    apply(
        aws,
        Request("create", tag, "c", traced(FILE), 1, **options),
        Request("stamp", tag, "s", xor(traced(FILE), words), 5, 1),
        Request("stamp", tag, "t", xor(*(traced(word) for word in WORDS[:3])), 0, 3),
    )
    return [f"{word:016x}" for word in WORDS[3:]]


def finish(aws, tag=TAG):
    apply(aws, Request("stamp", tag, "u", xor(traced(WORDS[3]), traced(WORDS[4])), 0, 2))


def put_invalid_item(aws, tag="foreign", **attributes):
    """Write an item that is not a chain, as another program may."""
    item = {"tag": {"S": tag}, "stamp": {"S": "text"}, **attributes}
    aws.client("dynamodb").put_item(TableName=aws.table_name, Item=item)


def commands_of(group, *, deep=True):
    """Yield the path and the object of each command of a click group, in groups of it, too."""
    for name, command in group.commands.items():
        yield (name,), command
        if deep and hasattr(command, "commands"):
            yield from (((name, *path), inner) for path, inner in commands_of(command))


def named_lines(lines):
    """Return the lines that a command prints: for each name at the beginning of a line, a list."""
    values, name = {}, ""
    for line in lines:
        name = line[:12].strip() or name
        values.setdefault(name, []).append(line[13:].strip())
    return values


def assert_error(result, status, start):
    """Assert that a command printed one line on stderr alone: `start`, all of it with a newline."""
    ended, out, (line,) = result
    assert (ended, out) == (status, [])
    assert f"{line}\n".startswith(f"error: {start}")


def check_schema(name, value):
    """Check a value that a command has printed with --json."""
    validator = Draft202012Validator({**SCHEMA, "$ref": f"#/$defs/{name}"})
    assert [error.message for error in validator.iter_errors(value)] == [], name
