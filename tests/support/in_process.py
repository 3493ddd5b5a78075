"""moto in this process, made atomic.

moto's DynamoDB checks a condition, computes and writes without a lock: of concurrent updates it
silently loses some. AWS loses none, so a test on bare moto fails without a fault of ours, or passes
by luck. `locked_aws` puts a lock around each DynamoDB call and each operation on a queue.
"""

from __future__ import annotations

import functools
import json
import os
import pickle
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from tests.support.subscriber import arn_of, messages, subscribe
from xorack.aws import schema
from xorack.local.embedded import ClientCache
from xorack.local.isolation import REGION, isolated

_BATCHED_METHODS = ("send_message", "delete_message", "change_message_visibility")
_QUEUE_METHODS = (
    *_BATCHED_METHODS,
    *(f"{name}_batch" for name in _BATCHED_METHODS),
    "get_queue_attributes",
    "purge_queue",
)
_POLL_SECONDS = 0.05
_cached = functools.cache(functools.cache)
"""Returns a function's form with a cache, the same one at each call."""


MAX_RECEIVES = 100
"""The stack's."""


def table_definition(partition_key: str = schema.TAG) -> dict[str, Any]:
    """Return how the stack creates its table, by the names in `schema`, without a synthesis.

    tests/infrastructure/test_state.py compares it to the synthesised template.
    """
    keys = {partition_key: "S", schema.DUE_SHARD: "N", schema.DUE_AT: "N"}
    index = {
        "IndexName": schema.DUE_INDEX,
        "KeySchema": [
            {"AttributeName": schema.DUE_SHARD, "KeyType": "HASH"},
            {"AttributeName": schema.DUE_AT, "KeyType": "RANGE"},
        ],
        "Projection": {"ProjectionType": "KEYS_ONLY"},
    }
    return {
        "KeySchema": [{"AttributeName": partition_key, "KeyType": "HASH"}],
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": kind} for name, kind in keys.items()
        ],
        "GlobalSecondaryIndexes": [index],
    }


@dataclass(frozen=True)
class Resources:
    """The stack's resources.

    Attributes:
        aws: The in-process or the embedded AWS.
        events_queue_url: A queue that gets every event on the bus: a subscriber.
    """

    aws: Any
    table_name: str
    partition_key: str
    queue_url: str
    dead_letter_queue_url: str
    bus_name: str
    events_queue_url: str

    def client(self, service: str, **options: Any) -> Any:
        return self.aws.client(service, **options)

    def environ(self) -> dict[str, str]:
        """Return the variables that the stack sets for its functions."""
        return {
            "TABLE_NAME": self.table_name,
            "TABLE_ARN": f"arn:aws:dynamodb:eu-west-1:123456789012:table/{self.table_name}",
            "PARTITION_KEY": self.partition_key,
            "EVENT_BUS_NAME": self.bus_name,
            "DEAD_LETTER_QUEUE_URL": self.dead_letter_queue_url,
            "DEFAULT_TIMEOUT_SECONDS": "86400",
            "RETENTION_SECONDS": "2592000",
            "POWERTOOLS_SERVICE_NAME": "xorack",
            "POWERTOOLS_METRICS_NAMESPACE": "xorack",
            "POWERTOOLS_TRACE_DISABLED": "true",
        }

    def item(self, tag: str) -> dict[str, Any] | None:
        """Return the item of a tag, or None."""
        key = {self.partition_key: {"S": tag}}
        return self.client("dynamodb").get_item(TableName=self.table_name, Key=key).get("Item")

    def events(self) -> list[dict[str, Any]]:
        """Take the subscriber's new events, as EventBridge delivered them."""
        return [json.loads(message["Body"]) for message in self.receive_all(self.events_queue_url)]

    def dead_letters(self) -> list[dict[str, Any]]:
        """Take the new messages of the dead-letter queue, with their attributes."""
        return self.receive_all(self.dead_letter_queue_url)

    def receive_all(self, queue_url: str) -> list[dict[str, Any]]:
        """Receive and delete all visible messages of a queue."""
        return [*messages(queue_url, self.client("sqs"))]


@contextmanager
def locked_aws() -> Iterator[ClientCache]:
    """Start an empty moto in this process and hide the user's AWS; a lock makes it atomic."""
    import boto3
    from moto import mock_aws

    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, isolated(os.environ), clear=True))
        # One session for all tests: botocore reads its data once.
        stack.enter_context(patch.object(boto3, "DEFAULT_SESSION", _session()))
        _hasten(stack)
        stack.enter_context(mock_aws(config={"core": {"reset_boto3_session": False}}))
        _drop_events_without_bus(stack)
        _lock_dynamodb(stack)
        _lock_sqs(stack)
        yield _clients()


@functools.cache
def _session() -> Any:
    import boto3

    return boto3.session.Session(region_name=REGION)


@functools.cache
def _clients() -> ClientCache:
    return ClientCache(_session().client)


def create_resources(
    aws: Any,
    *,
    partition_key: str = schema.TAG,
    ttl_attribute: str = schema.EXPIRES_AT,
    visibility_seconds: int = 30,
    max_receives: int = MAX_RECEIVES,
) -> Resources:
    """Create the stack's resources under new names."""
    name = f"xorack-{uuid.uuid4().hex[:8]}"
    dynamodb, sqs = aws.client("dynamodb"), aws.client("sqs")
    table = table_definition(partition_key)
    dynamodb.create_table(TableName=name, BillingMode="PAY_PER_REQUEST", **table)
    if ttl_attribute:
        ttl = {"Enabled": True, "AttributeName": ttl_attribute}
        dynamodb.update_time_to_live(TableName=name, TimeToLiveSpecification=ttl)
    dead_url = sqs.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
    redrive = {"deadLetterTargetArn": arn_of(dead_url), "maxReceiveCount": max_receives}
    attributes = {
        "VisibilityTimeout": str(visibility_seconds),
        "RedrivePolicy": json.dumps(redrive),
    }
    queue = sqs.create_queue(QueueName=f"{name}-requests", Attributes=attributes)
    aws.client("events").create_event_bus(Name=name)
    created = Resources(aws, name, partition_key, queue["QueueUrl"], dead_url, name, "")
    return replace(created, events_queue_url=subscribe(created))


def _drop_events_without_bus(stack: ExitStack) -> None:
    """Answer success for events on a bus that does not exist, and drop them, as AWS does."""
    from moto.events.models import EventsBackend

    original = EventsBackend.put_events

    def put_events(backend: Any, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        def exists(event: dict[str, Any]) -> bool:
            name = backend._normalize_event_bus_arn(event.get("EventBusName"))
            return name in backend.event_buses

        taken = iter(original(backend, [event for event in events if exists(event)]))
        return [next(taken) if exists(event) else {"EventId": uuid.uuid4().hex} for event in events]

    stack.enter_context(patch.object(EventsBackend, "put_events", put_events))


def _lock_dynamodb(stack: ExitStack) -> None:
    from moto.dynamodb.responses import DynamoHandler

    lock, original = threading.RLock(), DynamoHandler.call_action

    def call_action(handler: Any) -> Any:
        with lock:  # moto serialises the response in here as well
            return original(handler)

    stack.enter_context(patch.object(DynamoHandler, "call_action", call_action))


def _hasten(stack: ExitStack) -> None:
    """Skip work of moto and botocore that tests do not need: a third of the time of a call."""
    from botocore import signers, useragent
    from moto.core import models, responses, serialize
    from moto.dynamodb.parsing import validators
    from moto.sqs import models as sqs

    get_value = serialize.ResponseSerializer.get_value
    copied = lambda tree: pickle.loads(pickle.dumps(tree))  # noqa: E731

    def value_of(serializer: Any, value: Any, key: str, shape: Any) -> Any:
        # S, N, BOOL, ...: moto looks for each of ten types under many names.
        if type(value) is dict and key.isupper():
            return value.get(key)
        return get_value(serializer, value, key, shape)

    stack.enter_context(patch.object(serialize.ResponseSerializer, "get_value", value_of))
    stack.enter_context(patch.object(models, "RESPONSES_METHODS", []))  # of the library `requests`
    stack.enter_context(patch.object(signers.RequestSigner, "sign", lambda *_, **__: None))
    stack.enter_context(patch.object(useragent.UserAgentString, "to_string", lambda _: "tests"))
    # What holds for an expression needs no check at each of its nodes.
    for validator, check in (
        (validators.ActionCountValidator, "verify_action_counts"),
        (validators.OverlappingPathsValidator, "check_for_overlapping_paths"),
    ):
        stack.enter_context(patch.object(validator, "traverse", getattr(validator, check)))
    stack.enter_context(patch.object(validators, "deepcopy", copied))
    for module, function in (
        (responses, responses.method_names_from_class),
        (responses, responses.camelcase_to_underscores),
        (sqs, sqs.camelcase_to_underscores),
    ):
        stack.enter_context(patch.object(module, function.__name__, _cached(function)))


def _lock_sqs(stack: ExitStack) -> None:
    from moto.sqs.models import SQSBackend

    arrived = threading.Condition(threading.RLock())
    receive = SQSBackend.receive_message

    def locked(original: Any) -> Any:
        @functools.wraps(original)
        def method(*args: Any, **kwargs: Any) -> Any:
            with arrived:
                result = original(*args, **kwargs)
                arrived.notify_all()
                return result

        return method

    def receive_message(
        backend: Any, queue_name: str, count: int, wait: int, *args: Any, **kwargs: Any
    ) -> Any:
        # A long poll is many short ones: between them the lock is free for senders.
        deadline = time.monotonic() + wait
        with arrived:
            while True:
                messages = receive(backend, queue_name, count, 0, *args, **kwargs)
                left = deadline - time.monotonic()
                if messages or left <= 0:
                    return messages
                arrived.wait(min(left, _POLL_SECONDS))  # one may become visible

    # To compare a message's age, moto counts the entire queue.
    expires = "is_message_valid_based_on_retention_period"
    stack.enter_context(patch.object(SQSBackend, expires, lambda *_: True))
    for name in _QUEUE_METHODS:
        patched = locked(getattr(SQSBackend, name))
        stack.enter_context(patch.object(SQSBackend, name, patched))
    stack.enter_context(patch.object(SQSBackend, "receive_message", receive_message))
