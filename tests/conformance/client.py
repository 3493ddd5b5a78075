"""The client of Python runs scenarios: reads them, and prints the outcome of each call.

Scenarios come from standard input. Messages of a scenario go to the
acker's queue, too, if there is a queue.
"""

import base64
import json
import logging
import os
import sys
from contextlib import suppress
from datetime import datetime
from unittest.mock import Mock

from aws_lambda_powertools.utilities.batch.exceptions import BatchProcessingError
from botocore.exceptions import ClientError

import xorack
from xorack import Tracker, fan_in, fan_out
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.retry import RetryPolicy
from xorack.aws.sqs import queue_client
from xorack.client.fan_in import step_of
from xorack.client.token import Token
from xorack.core.errors import XorAckError

# Values that JSON cannot express.
VALUES = {
    "$integer": int,
    "$float": float,
    "$bytes": base64.b64decode,
    "$moment": datetime.fromisoformat,
    "$error": OSError,
    "$absent": lambda _: None,
    "$repeated": lambda pair: pair[0] * pair[1],
    "$nested": lambda depth: {"inner": VALUES["$nested"](depth - 1)} if depth > 1 else {},
}


def decoded(value):
    if isinstance(value, list):
        return [*map(decoded, value)]
    if not isinstance(value, dict):
        return value
    kind = next(iter(value), None)
    if len(value) == 1 and kind in VALUES:
        return VALUES[kind](value[kind])
    return {name: decoded(one) for name, one in value.items()}


def error_of(raised):
    """Return boto3's form of an error of AWS."""
    code, status = raised["name"], raised.get("$metadata", {}).get("httpStatusCode", 400)
    metadata = {"ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError({"Error": {"Code": code, "Message": "no"}, **metadata}, "Call")


class AWS:
    """A client of SQS and DynamoDB that keeps all entries that it gets; it may refuse entries."""

    def __init__(self, queue_url):
        self.sent, self.groups, self.messages, self.answers, self.statuses = [], [], [], [], {}
        self.real = queue_client(queue_url) if queue_url != "acker" else None
        self.meta = Mock()

    def send_message_batch(self, QueueUrl, Entries):
        if self.answers:
            answer = self.answers.pop(0)
            if "raises" in answer:
                raise error_of(answer["raises"])
            pairs = zip(Entries, answer["failed"], strict=False)
            return {"Failed": [{"Id": entry["Id"], **failure} for entry, failure in pairs]}
        if QueueUrl.startswith("work"):
            self.messages += Entries
            return {}
        self.sent += [entry["MessageBody"] for entry in Entries]
        self.groups += [entry.get("MessageGroupId") for entry in Entries]
        return self.real.send_message_batch(QueueUrl=QueueUrl, Entries=Entries) if self.real else {}

    def get_item(self, Key, **_):
        status = self.statuses.get(Key["chain"]["S"])
        if isinstance(status, dict):
            raise error_of(status["raises"])
        return {"Item": {**Key, "status": {"S": status}}} if status else {}


def generator(work):
    def run(*given):
        yield work(*given)

    return run


def async_generator(work):
    async def run(*given):
        yield work(*given)

    return run


def coroutine(work):
    async def run(*given):
        return work(*given)

    return run


def returning(work):
    def run(*given):
        return work(*given)

    return run


HANDLERS = {
    "plain": lambda work: work,
    "generator": generator,
    "async_generator": async_generator,
    "returns_generator": lambda work: returning(generator(work)),
    "returns_async_generator": lambda work: returning(async_generator(work)),
    "coroutine": coroutine,
    "text": lambda work: "a text",
}


class Program:
    """The calls of scenarios."""

    def __init__(self, queue_url):
        self.queue_url, self.aws = queue_url, AWS(queue_url)
        self.tokens, self.many, self.handled = {}, [], None
        self.tracker()

    def tracker(self, options=None):
        options = {
            "token_key" if name == "keys" else name: v for name, v in (options or {}).items()
        }
        policy = RetryPolicy(attempts=8, sleep=lambda seconds: None)
        options = {"table_name": "chains", **options}
        self.current = Tracker(self.queue_url, self.aws, policy=policy, **options)
        self.current._store = DynamoDBStore("chains", "chain", self.aws, retention_ms=1)

    def start(self, tag, name, options=None):
        options = dict(options or {})
        if "parent" in options:
            given = options["parent"]
            found = self.of(given if isinstance(given, list) else [given])
            options["parent"] = found if isinstance(given, list) else found[0]
        self.tokens[name] = self.current.start(tag, *options.pop("parts", ()), **options)

    def of(self, names):
        named = [one.get("token", one) if isinstance(one, dict) else one for one in names]
        return [self.tokens.get(one, one) if isinstance(one, str) else one for one in named]

    def step(self, units, children=None, count=0, raises=False):
        with suppress(ZeroDivisionError), self.current.step(*self.of(units)) as step:
            for name, parts in (children or {}).items():
                self.tokens[name] = step.child(*parts)
            self.many = [step.child() for _ in range(count)]
            if raises:
                raise ZeroDivisionError

    def finish_all(self, by):
        for at in range(0, len(self.many), by):
            with self.current.step(*self.many[at : at + by]):
                pass

    def fan_in(
        self, event, raising, bodies=False, required=True, skip_ended=False, handler="plain"
    ):
        units, handled = [self.tokens[name].unit for name in raising], []

        def handle(record, step):
            handled.append(record)
            if step and step.tokens[0].unit in units:
                raise OSError("a bad day")

        options = {"bodies": bodies, "required": required, "skip_ended": skip_ended}
        work = HANDLERS[handler](handle)
        answer = fan_in(self.current, **options)(work)(event, None)
        self.handled = len(handled)
        return [one["itemIdentifier"] for one in answer["batchItemFailures"]]

    def step_of(self, message, child, bodies=False, required=False):
        with step_of(self.current, message, bodies=bodies, required=required) as step:
            return f"{step.child(child).unit:016x}" if step else None

    def fan_out(self, units, messages, name=(), to="work", group=None):
        pairs = [
            (tuple(child) if isinstance(child, list) else child, body) for child, body in messages
        ]
        with self.current.step(*self.of(units)) as step:
            fan_out(step, pairs, to, self.aws, group=group)
        for one, entry in zip(name, self.aws.messages[-len(name) :], strict=True):
            token = entry["MessageAttributes"]["xorack"]["StringValue"]
            self.tokens[one] = Token.from_json(token)

    def fail(self, unit, reason):
        self.current.fail(*self.of([unit]), reason)

    def note(self, unit, missing=(), **note):
        ids = [int(one, 16) if isinstance(one, str) else one for one in missing]
        self.current.note(*self.of([unit]), missing=ids, **note)

    def extend(self, unit, timeout):
        self.current.extend(*self.of([unit]), timeout)

    def state(self, tag):
        return self.current.state(tag)

    def unit_id(self, parts):
        return f"{xorack.unit_id(*parts):016x}"

    def event_tag(self, event):
        return xorack.event_tag(event)

    def names_of(self, outstanding, candidates, root=()):
        def part_of(name):
            return tuple(name) if isinstance(name, list) else name

        if isinstance(candidates, list):
            paths = ([*map(part_of, one)] if isinstance(one, list) else one for one in candidates)
            return xorack.names_of(outstanding, paths, *root)
        return xorack.names_of(outstanding, candidates, *root)


def outcome_of(program, call, queue=(), statuses=None, **given):
    """Return a call's result, or the field of an invalid argument, or another error's name."""
    program.aws.answers, program.aws.statuses = [*queue], statuses or {}
    arguments = {"name" if key == "as" else key: value for key, value in given.items()}
    try:
        return {"answer": getattr(program, call)(**arguments)}
    except BatchProcessingError:
        return {"error": "BatchError"}
    except XorAckError as error:
        return {"error": getattr(error, "field", error.code)}


class Lines(logging.Handler):
    """Keeps the messages of log lines."""

    def __init__(self):
        super().__init__()
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage().partition(":")[0])


given = json.load(sys.stdin)
results = []
for scenario in given["scenarios"]:
    lines = Lines()
    logging.getLogger("xorack").addHandler(lines)
    program = Program(given.get("queue_url", "acker"))
    os.environ.update(scenario.get("environ", {}))
    outcomes = [outcome_of(program, **call) for call in decoded(scenario["calls"])]
    results.append(
        {
            "sent": program.aws.sent,
            "tokens": {name: token.to_json() for name, token in program.tokens.items()},
            "outcomes": outcomes,
            "messages": program.aws.messages,
            "groups": program.aws.groups,
            "entries": [
                [one.get("MessageGroupId"), one.get("MessageDeduplicationId")]
                for one in program.aws.messages
            ],
            "logged": lines.messages,
            "handled": program.handled,
        }
    )
    logging.getLogger("xorack").removeHandler(lines)
    for name in scenario.get("environ", {}):
        del os.environ[name]
print(json.dumps(results))
