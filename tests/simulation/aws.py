"""Queues, a bus and a table with the guarantees of AWS and no more, behind a boto3-like client.

The queue delivers at least once, in any order, with a visibility time-out. Entries to the bus fail
one by one. The table is in `table`; a batch read may return a part. `Client` injects the faults.
"""

import json
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf

from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError

from tests.simulation.model import Item
from tests.simulation.options import DAY_SECONDS, RETENTION, Options
from tests.simulation.oracle import Oracle
from tests.simulation.table import KEY, Table, failure
from tests.simulation.world import Crash, Machine, World
from tests.support.fault_kinds import CRASHES, ERRORS, PUBLISHING
from xorack.aws.client import CONFIG
from xorack.core.budget import TimeOuts

_REFUSED_FOR = 2 * DAY_SECONDS * 1000
"""Most milliseconds after a chain's end for which the bus refuses its event."""
_BUS_IS_MISSING_FOR = 30 * 60_000
"""Milliseconds from the beginning until a late bus is created."""
RETENTION_KEY = "\0retention"
TABLE, QUEUE, DEAD_LETTERS, BUS = "table", "queue", "dead-letters", "bus"


@dataclass(eq=False)
class Message:
    """A message in a queue; `sent_at` is the time of its first send."""

    id: str
    body: str
    visible_at: int
    sent_at: int
    receives: int = 0


@dataclass
class Queue:
    """An SQS standard queue, and its dead-letter queue."""

    world: World
    options: Options
    oracle: Oracle
    messages: dict[str, Message] = field(default_factory=dict)
    dead: dict[str, Message] = field(default_factory=dict)
    sent: int = 0

    def send(self, body: str, sent_at: int | None = None) -> None:
        self.sent += 1
        id = f"m{self.sent}"
        delay = self.world.random.choice((0, 0, 0, 50, 2000))
        self.messages[id] = Message(id, body, self.world.now + delay, sent_at or self.world.now)
        self.oracle.queued(body, sent_at or self.world.now)
        self.world.wake()

    def idle_time(self) -> float | None:
        """Return the milliseconds to the next poll; None if a message is visible."""
        if not self.messages:
            return inf
        wait = min(message.visible_at for message in self.messages.values()) - self.world.now
        return None if wait <= 0 else min(max(wait, 100), 5000)

    def receive(self, machine: Machine) -> list[Message]:
        """Receive visible messages in any order; after a fault, also messages in flight."""
        now, random = self.world.now, self.world.random
        messages = self.messages.values()
        available = [message for message in messages if message.visible_at <= now]
        if self.world.fault("receive", machine) is not None:
            in_flight = [message for message in messages if message.visible_at > now]
            available += random.sample(in_flight, min(3, len(in_flight)))
        number = min(random.randint(1, self.options.batch_size), len(available))
        received = []
        for message in random.sample(available, number):
            message.receives += 1
            if message.receives > self.options.max_receives:
                self.dead[message.id] = self.messages.pop(message.id)
                self.world.wake()
                continue
            message.visible_at = now + self.options.visibility_timeout
            received.append(message)
        return received

    def delete(self, machine: Machine, message: Message) -> None:
        """Delete a processed message; after a fault, the message stays."""
        self.oracle.deleted(message.body)
        if self.world.fault("delete", machine) is None:
            self.messages.pop(message.id, None)

    def abandon_expired(self) -> None:
        """Drop dead messages that are too old to be redriven."""
        for message in list(self.dead.values()):
            if self.world.now - message.sent_at > RETENTION:
                del self.dead[message.id]
                self.oracle.abandoned(message.body)


class AWS:
    """Table, queues and bus: a method for each operation. A degraded call processes only a part."""

    def __init__(self, world: World, options: Options, oracle: Oracle, *, refuses: bool) -> None:
        self.random = world.random
        self.failed_entry = options.failed_entry
        self.oracle = oracle
        self.closed_tasks: set[str] = set()
        self.refuses = refuses
        self.bus_begins_at = world.now + _BUS_IS_MISSING_FOR * options.late_bus
        self.table = Table(world, options, oracle)
        self.queue = Queue(world, options, oracle)

    def update_item(self, degraded: bool, **call) -> dict:
        assert call["TableName"] == TABLE
        try:
            return self.table.update(call["Key"][KEY]["S"], call)
        except ClientError as error:
            if degraded or call.get("ReturnValuesOnConditionCheckFailure") != "ALL_OLD":
                error.response.pop("Item", None)
            raise

    def describe_table(self, degraded: bool, **call) -> dict:
        return {"Table": {"GlobalSecondaryIndexes": [{"IndexName": "due"}]}}

    def delete_item(self, degraded: bool, **call) -> dict:
        key = call["Key"][KEY]["S"]
        self.table.check(key, "DeleteItem", call)
        self.table.put(key, None)
        return {}

    def get_item(self, degraded: bool, **call) -> dict:
        item = self.table.get(call["Key"][KEY]["S"], call.get("ConsistentRead", False))
        return {} if item is None else {"Item": _projected(item, call)}

    def batch_get_item(self, degraded: bool, *, RequestItems: dict) -> dict:
        batch = RequestItems[TABLE]
        keys, consistent = batch["Keys"], batch.get("ConsistentRead", False)
        assert len({key[KEY]["S"] for key in keys}) == len(keys) <= 100
        at = self.random.randrange(len(keys)) if degraded else len(keys)
        items = [self.table.get(key[KEY]["S"], consistent) for key in keys[:at]]
        left = keys[at:]
        return {
            "Responses": {TABLE: [_projected(item, batch) for item in items if item is not None]},
            "UnprocessedKeys": {TABLE: {**batch, "Keys": left}} if left else {},
        }

    def query(self, degraded: bool, **call) -> dict:
        assert call["KeyConditionExpression"] == "#shard = :shard AND #at <= :now"
        values = call["ExpressionAttributeValues"]
        shard, now = (int(values[name]["N"]) for name in (":shard", ":now"))
        page = self.table.query(shard, now, call.get("ExclusiveStartKey"), call.get("Limit", inf))
        return {**page, "Count": len(page["Items"])}

    def send_message_batch(self, degraded: bool, *, QueueUrl: str, Entries: list) -> dict:
        def send(entry: dict) -> None:
            attributes = entry["MessageAttributes"]
            if QueueUrl == QUEUE:
                sent_at = attributes.get("sent_at", {"StringValue": "0"})
                self.queue.send(entry["MessageBody"], int(sent_at["StringValue"]))
            else:
                error = attributes.get("error", {"StringValue": ""})
                self.oracle.rejected(entry["MessageBody"], error["StringValue"])

        failed = self._take(Entries, send, degraded)
        sent = [{"Id": entry["Id"]} for entry in Entries if entry["Id"] not in failed]
        error = {"Code": "InternalError", "SenderFault": False}
        return {"Successful": sent, "Failed": [{"Id": id, **error} for id in failed]}

    # The dead-letter queue, for redriving.

    def receive_message(self, degraded: bool, **call) -> dict:
        assert call["QueueUrl"] == DEAD_LETTERS
        now = self.table.world.now
        visible = [one for one in self.queue.dead.values() if one.visible_at <= now]
        for message in visible[:10]:
            message.visible_at = now + call["VisibilityTimeout"] * 1000
        return {"Messages": [_received(message) for message in visible[:10]]}

    def delete_message_batch(self, degraded: bool, *, QueueUrl: str, Entries: list) -> dict:
        for entry in Entries:
            self.queue.dead.pop(entry["ReceiptHandle"], None)
        return {}

    def change_message_visibility_batch(self, degraded: bool, *, QueueUrl, Entries: list) -> dict:
        for entry in Entries:
            if entry["ReceiptHandle"] in self.queue.dead:
                self.queue.dead[entry["ReceiptHandle"]].visible_at = self.table.world.now
        return {}

    def get_queue_attributes(self, degraded: bool, **call) -> dict:
        return {}

    @property
    def has_bus(self) -> bool:
        world = self.table.world
        return world.faultless or world.now >= self.bus_begins_at

    def describe_event_bus(self) -> dict:
        """Describe the bus, without faults: only the cache decides how often this is called."""
        if not self.has_bus:
            raise failure("ResourceNotFoundException", "describe_event_bus", 400)
        return {}

    def put_events(self, degraded: bool, *, Entries: list) -> dict:
        if not self.has_bus:  # AWS answers success, and drops the events
            return {"FailedEntryCount": 0, "Entries": [{"EventId": "id"} for _ in Entries]}
        entries = [{"Id": number, **entry} for number, entry in enumerate(Entries)]
        codes: dict[int, str] = {}

        def take(entry: dict) -> None:
            # Not until TTL removes the chain.
            long_ago = self.table.world.now - entry["Time"].timestamp() * 1000 > _REFUSED_FOR
            detail, status = json.loads(entry["Detail"]), entry["DetailType"]
            key = f"{detail['tag']} {detail['ended_at']}"  # its id holds a nonce
            if not long_ago and self._refuses("event", key, detail, status):
                codes[entry["Id"]] = "MalformedDetail"
            else:
                self.oracle.published(entry)

        codes |= dict.fromkeys(self._take(entries, take, degraded), "InternalFailure")
        done = {"EventId": "id"}
        results = [{"ErrorCode": codes[n]} if n in codes else done for n in range(len(entries))]
        return {"FailedEntryCount": len(codes), "Entries": results}

    def send_task_success(self, degraded: bool, *, taskToken: str, output: str) -> dict:
        return self._close_task("send_task_success", taskToken, output, "acked")

    def send_task_failure(self, degraded: bool, *, taskToken: str, error: str, cause: str) -> dict:
        return self._close_task("send_task_failure", taskToken, cause, "failed")

    def _close_task(self, operation: str, token: str, detail: str, status: str) -> dict:
        if token in self.closed_tasks or token in self.oracle.over:
            raise failure("TaskTimedOut", operation, 400)
        event = json.loads(detail)
        if self._refuses("step_functions", token, event, status):
            raise failure("AccessDeniedException", operation, 400)
        self.closed_tasks.add(token)
        self.oracle.resumed(token, event, status)
        return {}

    def _refuses(self, report: str, key: str, detail: dict, status: str) -> bool:
        """Return whether a service refuses a report until faults end: a quarter of the keys."""
        world = self.table.world
        if world.faultless or not self.refuses or zlib.crc32(key.encode()) % 4:
            return False
        world.fault_counts["refused"] += 1
        self.oracle.reported(report, detail, status)
        return True

    def _take(self, entries: list, take: Callable[[dict], None], degraded: bool) -> list:
        """Process entries; return the ids of those that fail."""
        assert 1 <= len(entries) <= 10
        failed = []
        for entry in entries:
            if degraded and self.random.random() < self.failed_entry:
                failed.append(entry["Id"])
            else:
                take(entry)
        return failed


def _projected(item: Item, call: dict) -> Item:
    names = call.get("ExpressionAttributeNames")
    return {name: item[name] for name in item.keys() & names.values()} if names else item


def _received(message: Message) -> dict:
    sent_at = str(message.sent_at)
    return {
        "MessageId": message.id,
        "ReceiptHandle": message.id,
        "Body": message.body,
        "Attributes": {"SentTimestamp": sent_at},
        "MessageAttributes": {"sent_at": {"DataType": "Number", "StringValue": sent_at}},
    }


@dataclass
class Client:
    """A boto3-like client of one machine for all services: injects the faults."""

    machine: Machine
    aws: AWS
    time_outs: TimeOuts = field(
        default_factory=lambda: TimeOuts(CONFIG.connect_timeout, CONFIG.read_timeout)
    )

    def __getattr__(self, operation: str) -> Callable[..., dict]:
        return partial(self._call, operation)

    def _call(self, operation: str, **call) -> dict:
        machine = self.machine
        if operation == "describe_event_bus":
            return self.aws.describe_event_bus()
        begin = machine.world.now
        of_retention = call.get("Key", {}).get(KEY, {}).get("S") == RETENTION_KEY
        machine.guesses_retention |= of_retention
        try:
            result = self._faulty_call(operation, partial(getattr(self.aws, operation), **call))
            machine.guesses_retention &= not of_retention
            return result
        except ClientError:
            machine.faults[operation] += 1  # also a failed condition: contention takes time
            raise
        finally:
            if operation in PUBLISHING:
                machine.publishing += machine.world.now - begin

    def _faulty_call(self, operation: str, effect: Callable[[bool], dict]) -> dict:
        world, machine = self.machine.world, self.machine
        world.pause(machine, 1 + int(world.random.random() * 40))
        if (fault := world.outage(operation, machine)) is not None:
            world.log(f"{operation}: {fault}")
        elif (fault := world.fault(operation, machine)) is not None:
            world.log(f"{operation}: FAULT: {fault}")
        if fault is None:
            return effect(False)
        if fault in ("unprocessed", "entries failed", "no item"):
            return effect(True)
        if fault in ("slow", "slow service"):
            return self._slow_call(operation, effect)
        if fault == "stalled":
            machine.stalled = True
            machine.pause(world.random.choice((200, 3000, 15_000, 90_000)))
            return effect(False)
        if fault == "twice":
            _ignore_error(effect)
            machine.pause(50)
            try:
                return effect(False)
            except ClientError as error:
                # botocore reports its own retries here.
                error.response["ResponseMetadata"]["RetryAttempts"] = 1
                raise
        if fault == "late":
            delay = world.random.choice((100, 5000, 60_000))
            world.later(delay, lambda: _ignore_error(effect))
        elif fault in ("lost", "5xx applied", "crash after"):
            _ignore_error(effect)
        if fault in ERRORS:
            code, status = ERRORS[fault]
            raise failure(code, operation, status)
        if fault in CRASHES:
            raise Crash
        if fault == "dropped":
            machine.sleep(self.time_outs.connect)
            raise ConnectTimeoutError(endpoint_url=operation)
        machine.sleep(self.time_outs.read)
        raise ReadTimeoutError(endpoint_url=operation)

    def _slow_call(self, operation: str, effect: Callable[[bool], dict]) -> dict:
        """Take effect after a while; the caller may have stopped waiting by then."""
        world = self.machine.world
        duration, read = world.random.randint(1000, 4000), int(self.time_outs.read * 1000)
        self.machine.pause(min(duration, read))
        if duration > read:
            world.later(duration - read, lambda: _ignore_error(effect))
            raise ReadTimeoutError(endpoint_url=operation)
        self.machine.faults[operation] -= 1
        return effect(False)


def _ignore_error(effect: Callable[[bool], dict]) -> None:
    with suppress(ClientError):
        effect(False)
