"""moto in this process, made atomic.

moto's DynamoDB checks a condition, computes and writes with no lock around the three: among
concurrent writers some updates are lost, silently. AWS loses none, so a test on bare moto either
fails for no fault of ours or, with back-off in the code, passes by luck. `locked_aws` puts one lock
around each DynamoDB call and one around each thing done to a queue; what runs here is then as
atomic as AWS. (tests/functional/test_moto_lock.py fails without the lock.)
"""

from __future__ import annotations

import functools
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias
from unittest.mock import patch

from xorack.local.isolation import REGION, isolation

Client: TypeAlias = Any  # boto3 makes its clients at run time and has no types for them
Option: TypeAlias = Any
Moto: TypeAlias = Any  # neither has moto for its insides

_QUEUE_METHODS = (
    "send_message",
    "send_message_batch",
    "delete_message",
    "delete_message_batch",
    "change_message_visibility",
    "change_message_visibility_batch",
    "get_queue_attributes",
    "purge_queue",
)
_TABLE_TYPES = ("AWS::DynamoDB::Table", "AWS::DynamoDB::GlobalTable")
_NAP_SECONDS = 0.05


@dataclass(frozen=True)
class Definitions:
    """What the stack's resources are, as far as they matter to code that runs against them.

    Attributes:
        table: `KeySchema`, `AttributeDefinitions` and `GlobalSecondaryIndexes` of CreateTable.
        ttl_attribute: The attribute that holds an item's expiry.
        queue: Attributes of the queue, as CreateQueue takes them, without its redrive policy.
        dead_letter_queue: Attributes of its dead-letter queue.
        max_receive_count: How often a message is received before it goes there.
    """

    table: dict[str, Any]
    ttl_attribute: str = "expires_at"
    queue: dict[str, str] = field(default_factory=dict)
    dead_letter_queue: dict[str, str] = field(default_factory=dict)
    max_receive_count: int = 5


def definitions(partition_key: str = "tag") -> Definitions:
    """Returns the stack's resources written down by hand, for tests that cannot wait for a synth.

    That they are what the synthesised template says is a test of its own.

    Args:
        partition_key: Name of the table's partition key.

    Returns:
        The definitions.
    """
    return Definitions(
        table={
            "KeySchema": [{"AttributeName": partition_key, "KeyType": "HASH"}],
            "AttributeDefinitions": [
                {"AttributeName": partition_key, "AttributeType": "S"},
                {"AttributeName": "due_shard", "AttributeType": "N"},
                {"AttributeName": "due_at", "AttributeType": "N"},
            ],
            "GlobalSecondaryIndexes": [
                {
                    "IndexName": "due",
                    "KeySchema": [
                        {"AttributeName": "due_shard", "KeyType": "HASH"},
                        {"AttributeName": "due_at", "KeyType": "RANGE"},
                    ],
                    "Projection": {"ProjectionType": "KEYS_ONLY"},
                }
            ],
        },
    )


def definitions_of(template: Mapping[str, Any]) -> Definitions:
    """Reads the resources' definitions from a synthesised template.

    moto cannot load the template itself (global tables, the bootstrap parameters); what code sees
    of the resources can be read from it all the same.

    Args:
        template: A CloudFormation template with one table and one queue that has a redrive policy.

    Returns:
        The definitions.

    Raises:
        ValueError: The template has no such table or no such queue, or more than one.
    """
    resources: Mapping[str, Any] = template["Resources"]
    table = _only(
        "DynamoDB table",
        [r["Properties"] for r in resources.values() if r["Type"] in _TABLE_TYPES],
    )
    queue = _only(
        "queue with a redrive policy",
        [
            r["Properties"]
            for r in resources.values()
            if r["Type"] == "AWS::SQS::Queue" and "RedrivePolicy" in r["Properties"]
        ],
    )
    redrive = queue["RedrivePolicy"]
    target = redrive["deadLetterTargetArn"]["Fn::GetAtt"][0]
    kept = ("KeySchema", "AttributeDefinitions", "GlobalSecondaryIndexes")
    return Definitions(
        table={name: table[name] for name in kept if name in table},
        ttl_attribute=table["TimeToLiveSpecification"]["AttributeName"],
        queue=_queue_attributes(queue),
        dead_letter_queue=_queue_attributes(resources[target]["Properties"]),
        max_receive_count=int(redrive["maxReceiveCount"]),
    )


def _only(what: str, found: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    if len(found) != 1:
        raise ValueError(f"the template should have one {what}, and has {len(found)}")
    return found[0]


def _queue_attributes(properties: Mapping[str, Any]) -> dict[str, str]:
    names = ("VisibilityTimeout", "MessageRetentionPeriod", "ReceiveMessageWaitTimeSeconds")
    return {name: str(properties[name]) for name in names if name in properties}


class AnAWS(Protocol):
    """An AWS that resources can be made in: the in-process one, or the embedded one."""

    def client(self, service: str, **options: Option) -> Client:
        """Returns a boto3 client for it."""
        ...


class InProcessAWS:
    """The in-process AWS while it lasts: makes clients for it."""

    def __init__(self) -> None:
        import boto3

        self._session = boto3.session.Session(region_name=REGION)
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()

    def client(self, service: str, **options: Option) -> Client:
        """Returns a boto3 client; safe to call, and its result to use, from many threads.

        Args:
            service: Name of the service, for example `dynamodb`.
            **options: What `boto3.client` takes; a client with options is made anew each time, so
                that a test may register its faults on it.

        Returns:
            The client.
        """
        with self._lock:  # making clients is what boto3 does not allow in two threads at once
            if options:
                return self._session.client(service, **options)
            if service not in self._clients:
                self._clients[service] = self._session.client(service)
                # Made when first looked at, by two threads twice: an `except` then catches nothing.
                _ = self._clients[service].exceptions
            return self._clients[service]


@dataclass(frozen=True)
class Resources:
    """The stack's resources.

    Attributes:
        aws: Where they are.
        table_name: Name of the chains' table.
        partition_key: Name of its partition key.
        queue_url: The queue of requests.
        dead_letter_queue_url: Its dead-letter queue.
        bus_name: The bus that events go to.
        events_queue_url: A queue that a rule on the bus sends every event to: a subscriber.
    """

    aws: AnAWS
    table_name: str
    partition_key: str
    queue_url: str
    dead_letter_queue_url: str
    bus_name: str
    events_queue_url: str

    def client(self, service: str, **options: Option) -> Client:
        """Returns a boto3 client; see the AWS's own `client`.

        Args:
            service: Name of the service.
            **options: What `boto3.client` takes.

        Returns:
            The client.
        """
        return self.aws.client(service, **options)

    def environ(self) -> dict[str, str]:
        """Returns what the stack sets in the functions' environment.

        Returns:
            Names and values of the variables.
        """
        return {
            "TABLE_NAME": self.table_name,
            "PARTITION_KEY": self.partition_key,
            "EVENT_BUS_NAME": self.bus_name,
            "DEAD_LETTER_QUEUE_URL": self.dead_letter_queue_url,
            "DEFAULT_TIMEOUT_SECONDS": "86400",
            "RETENTION_SECONDS": "2592000",
            "POWERTOOLS_SERVICE_NAME": "xorack",
            "POWERTOOLS_METRICS_NAMESPACE": "xorack",
            "POWERTOOLS_TRACE_DISABLED": "true",
        }

    def events(self) -> list[dict[str, Any]]:
        """Takes the events that have come since the last call off the subscriber's queue.

        Returns:
            The events as EventBridge delivered them: `detail-type`, `source`, `detail`, ...
        """
        return [json.loads(body) for body in self._take(self.events_queue_url)]

    def dead_letters(self) -> list[dict[str, Any]]:
        """Takes what has come into the dead-letter queue since the last call.

        Returns:
            The messages as ReceiveMessage gives them, with their message attributes.
        """
        return self._take_messages(self.dead_letter_queue_url)

    def _take(self, queue_url: str) -> list[str]:
        return [message["Body"] for message in self._take_messages(queue_url)]

    def _take_messages(self, queue_url: str) -> list[dict[str, Any]]:
        sqs = self.client("sqs")
        taken: list[dict[str, Any]] = []
        while True:
            answer = sqs.receive_message(
                QueueUrl=queue_url,
                MaxNumberOfMessages=10,
                WaitTimeSeconds=0,
                MessageAttributeNames=["All"],
                MessageSystemAttributeNames=["All"],
            )
            messages = answer.get("Messages", [])
            if not messages:
                return taken
            for message in messages:
                sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
            taken.extend(messages)


@contextmanager
def locked_aws(*, lock: bool = True) -> Iterator[InProcessAWS]:
    """Starts moto in this process, atomic, with nothing in it.

    The user's AWS configuration is out of sight while it lasts.

    Args:
        lock: Whether to lock; the canary test alone asks for moto as it comes.

    Yields:
        The in-process AWS.
    """
    from moto import mock_aws

    with ExitStack() as stack:
        stack.enter_context(isolation())
        stack.enter_context(mock_aws())
        if lock:
            _lock_dynamodb(stack)
            _lock_sqs(stack)
        yield InProcessAWS()


def create_resources(
    aws: AnAWS,
    described: Definitions | None = None,
    *,
    partition_key: str = "tag",
) -> Resources:
    """Creates what the stack creates, under names of their own each time.

    Args:
        aws: Where to create them.
        described: What to create, for example `definitions_of(template)`; default `definitions()`.
        partition_key: Name of the table's partition key, where `described` is not given.

    Returns:
        The resources.
    """
    described = described or definitions(partition_key)
    unique = uuid.uuid4().hex[:8]
    dynamodb, sqs, events = aws.client("dynamodb"), aws.client("sqs"), aws.client("events")
    table_name, bus_name = f"xorack-{unique}", f"xorack-{unique}"

    dynamodb.create_table(TableName=table_name, BillingMode="PAY_PER_REQUEST", **described.table)
    dynamodb.update_time_to_live(
        TableName=table_name,
        TimeToLiveSpecification={"Enabled": True, "AttributeName": described.ttl_attribute},
    )

    def create_queue(name: str, attributes: Mapping[str, str]) -> tuple[str, str]:
        url = sqs.create_queue(QueueName=f"xorack-{unique}-{name}", Attributes=attributes)
        answer = sqs.get_queue_attributes(QueueUrl=url["QueueUrl"], AttributeNames=["QueueArn"])
        return url["QueueUrl"], answer["Attributes"]["QueueArn"]

    dead_letter_url, dead_letter_arn = create_queue("dead", described.dead_letter_queue)
    redrive = {
        "deadLetterTargetArn": dead_letter_arn,
        "maxReceiveCount": described.max_receive_count,
    }
    queue_url, _ = create_queue(
        "requests", {**described.queue, "RedrivePolicy": json.dumps(redrive)}
    )

    events.create_event_bus(Name=bus_name)
    events_url, events_arn = create_queue("events", {})
    events.put_rule(
        Name="everything",
        EventBusName=bus_name,
        EventPattern=json.dumps({"source": ["xorack"]}),
    )
    events.put_targets(
        Rule="everything", EventBusName=bus_name, Targets=[{"Id": "queue", "Arn": events_arn}]
    )
    return Resources(
        aws=aws,
        table_name=table_name,
        partition_key=described.table["KeySchema"][0]["AttributeName"],
        queue_url=queue_url,
        dead_letter_queue_url=dead_letter_url,
        bus_name=bus_name,
        events_queue_url=events_url,
    )


def _lock_dynamodb(stack: ExitStack) -> None:
    from moto.dynamodb.responses import DynamoHandler

    lock, original = threading.RLock(), DynamoHandler.call_action

    @functools.wraps(original)
    def call_action(handler: Moto) -> Moto:
        with lock:  # the answer is serialised in here as well, so it cannot tear
            return original(handler)

    stack.enter_context(patch.object(DynamoHandler, "call_action", call_action))


def _lock_sqs(stack: ExitStack) -> None:
    from moto.sqs.models import Queue, SQSBackend

    arrived = threading.Condition(threading.RLock())
    receive = SQSBackend.receive_message

    def locked(original: Callable[..., Moto], *, wakes: bool) -> Callable[..., Moto]:
        @functools.wraps(original)
        def method(*args: Moto, **kwargs: Moto) -> Moto:
            with arrived:
                answer = original(*args, **kwargs)
                if wakes:
                    arrived.notify_all()
                return answer

        return method

    @functools.wraps(receive)
    def receive_message(
        backend: Moto, queue_name: str, count: int, wait: int, *args: Moto, **kwargs: Moto
    ) -> Moto:
        # A long poll is many short ones: the lock is free between them, or nobody could send.
        deadline = time.monotonic() + wait
        with arrived:
            while True:
                found = receive(backend, queue_name, count, 0, *args, **kwargs)
                left = deadline - time.monotonic()
                if found or left <= 0:
                    return found
                arrived.wait(min(left, _NAP_SECONDS))  # a nap: visibility may end meanwhile

    for name in _QUEUE_METHODS:
        original = getattr(SQSBackend, name)
        wakes = name.startswith(("send", "change"))
        stack.enter_context(patch.object(SQSBackend, name, locked(original, wakes=wakes)))
    stack.enter_context(patch.object(SQSBackend, "receive_message", receive_message))

    # Of every message sent and received, moto asks all the queue's attributes to look at one, and
    # among them are three counts of the whole queue: quadratic. These two look at the one.
    def retained(backend: Moto, queue_name: str, message: Moto) -> bool:
        until = (
            message.sent_timestamp / 1000 + backend.get_queue(queue_name).message_retention_period
        )
        return bool(until > time.time())

    stack.enter_context(
        patch.object(SQSBackend, "is_message_valid_based_on_retention_period", retained)
    )
    sending = threading.local()
    whole: Moto = Queue.attributes
    send = SQSBackend.send_message

    def attributes(queue: Moto) -> Moto:
        if getattr(sending, "now", False):
            return {"ContentBasedDeduplication": str(queue.content_based_deduplication).lower()}
        return whole.fget(queue)

    def send_message(*args: Moto, **kwargs: Moto) -> Moto:
        sending.now = True
        try:
            return send(*args, **kwargs)
        finally:
            sending.now = False

    stack.enter_context(patch.object(SQSBackend, "send_message", send_message))
    stack.enter_context(patch.object(Queue, "attributes", property(attributes)))
