"""A table, a queue and a bus with the guarantees of AWS and no more, behind a boto3-like client.

The table: conditional writes, each atomic for its item; stale reads unless a consistent one is
requested; partial batches; an index that lags. The queue: at-least-once delivery in any order, with
a visibility time-out. The bus: entries fail one by one. `Client` injects the faults.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError

from tests.simulation.model import Item
from tests.simulation.options import CRASHES, Options
from tests.simulation.oracle import Oracle
from tests.simulation.world import Crash, Machine, World

KEY = "tag"
TABLE, QUEUE, DEAD_LETTERS, BUS = "table", "queue", "dead-letters", "bus"
_ERRORS = {
    "throttled": ("ProvisionedThroughputExceededException", 400),
    "conflict": ("TransactionConflictException", 400),
    "denied": ("AccessDeniedException", 400),
    "5xx": ("InternalServerError", 500),
    "5xx applied": ("InternalServerError", 500),
}
"""Faults that return an error -> its code and HTTP status."""


def failure(code: str, operation: str, status: int = 400, **more) -> ClientError:
    metadata = {"HTTPStatusCode": status}
    error = {"Code": code, "Message": "of the simulation"}
    return ClientError({"Error": error, "ResponseMetadata": metadata, **more}, operation)


@dataclass
class Table:
    """A DynamoDB table with the sparse index `due`."""

    world: World
    options: Options
    oracle: Oracle

    def __post_init__(self) -> None:
        self.items: dict[str, Item] = {}
        self._older: dict[str, Item | None] = {}
        self._index: dict[str, tuple[int, int]] = {}
        self._index_updates: deque[tuple[int, str, tuple[int, int] | None]] = deque()

    def put(self, key: str, item: Item | None) -> None:
        """Write an item; None deletes it."""
        before = self._older[key] = self.items.pop(key, None)
        entry = None
        if item is not None:
            self.items[key] = item
            if "due_shard" in item and "due_at" in item:
                entry = (int(item["due_shard"]["N"]), int(item["due_at"]["N"]))
        at = self.world.now + self.world.random.randrange(self.options.index_lag + 1)
        if self._index_updates:
            at = max(at, self._index_updates[-1][0])
        self._index_updates.append((at, key, entry))
        self.oracle.wrote(key, before, item)

    def get(self, key: str, consistent: bool) -> Item | None:
        stale = not consistent and self.world.random.random() < self.options.stale_read
        return self._older[key] if stale and key in self._older else self.items.get(key)

    def check(self, key: str, operation: str, call: dict) -> None:
        """Raise ConditionalCheckFailedException, with the item, if a call's condition fails."""
        item = self.items.get(key)
        names = call.get("ExpressionAttributeNames", {})
        for term in filter(None, (call.get("ConditionExpression") or "").split(" AND ")):
            function, _, argument = term.removesuffix(")").partition("(")
            if argument:
                exists = item is not None and names[argument] in item
                holds = {"attribute_exists": exists, "attribute_not_exists": not exists}[function]
            else:
                name, equals, value = term.split(" ")
                assert equals == "=", f"the simulated table does not support {term}"
                wanted = call["ExpressionAttributeValues"][value]
                holds = item is not None and item.get(names[name]) == wanted
            if not holds:
                more = {} if item is None else {"Item": item}
                raise failure("ConditionalCheckFailedException", operation, **more)

    def update(self, key: str, call: dict) -> None:
        self.check(key, "UpdateItem", call)
        names, values = call["ExpressionAttributeNames"], call["ExpressionAttributeValues"]
        item = {KEY: {"S": key}, **self.items.get(key, {})}
        sets, _, removes = call["UpdateExpression"].partition(" REMOVE ")
        assert sets.startswith("SET "), "the simulated table supports SET and REMOVE only"
        for part in sets[4:].split(", "):
            name, value = part.split(" = ")
            item[names[name]] = values[value]
        for name in removes.split(", ") if removes else ():
            item.pop(names[name], None)
        self.put(key, item)

    def query(self, shard: int, now: int, after: tuple[int, str] | None) -> dict:
        """Return a page of the index."""
        while self._index_updates and self._index_updates[0][0] <= self.world.now:
            _, key, entry = self._index_updates.popleft()
            self._index.pop(key, None)
            if entry is not None:
                self._index[key] = entry
        due = sorted((at, key) for key, (s, at) in self._index.items() if s == shard and at <= now)
        due = [entry for entry in due if after is None or entry > after]
        page = due[: self.options.index_page]
        response: dict = {"Items": [{KEY: {"S": key}} for _, key in page]}
        if len(page) < len(due):
            response["LastEvaluatedKey"] = page[-1]
        return response


@dataclass(eq=False)
class Message:
    """A message in a queue."""

    id: str
    body: str
    visible_at: int
    receives: int = 0


@dataclass
class Queue:
    """An SQS standard queue.

    Attributes:
        dead: Messages that exceeded the maximum number of receives.
    """

    world: World
    options: Options
    oracle: Oracle
    messages: dict[str, Message] = field(default_factory=dict)
    dead: list[Message] = field(default_factory=list)
    sent: int = 0

    def send(self, body: str) -> None:
        self.sent += 1
        id = f"m{self.sent}"
        delay = self.world.random.choice((0, 0, 0, 50, 2000))
        self.messages[id] = Message(id, body, self.world.now + delay)
        self.oracle.queued(body)

    def idle_time(self) -> int | None:
        """Return the milliseconds to the next poll; None if a message is visible."""
        if not self.messages:
            return 20_000 if self.world.faultless else 3000
        wait = min(message.visible_at for message in self.messages.values()) - self.world.now
        return None if wait <= 0 else min(max(wait, 100), 5000)

    def receive(self, machine: Machine) -> list[Message]:
        """Receive some visible messages in any order; by a fault also some in flight."""
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
                self.dead.append(self.messages.pop(message.id))
                continue
            message.visible_at = now + self.options.visibility_timeout
            received.append(message)
        return received

    def delete(self, machine: Machine, message: Message) -> None:
        """Delete a processed message; by a fault it stays."""
        self.oracle.deleted(message.body)
        if self.world.fault("delete", machine) is None:
            self.messages.pop(message.id, None)

    def redrive(self) -> None:
        """Move dead messages back."""
        for message in self.dead:
            message.receives = 0
            message.visible_at = self.world.now
            self.messages[message.id] = message
        self.dead.clear()


class AWS:
    """Table, queues and bus: a method for each operation.

    A degraded call leaves out a part: of the batch, of its effects or of the response.
    """

    def __init__(self, world: World, options: Options, oracle: Oracle) -> None:
        self.random = world.random
        self.failed_entry = options.failed_entry
        self.oracle = oracle
        self.table = Table(world, options, oracle)
        self.queue = Queue(world, options, oracle)

    def update_item(self, degraded: bool, **call) -> dict:
        assert call["TableName"] == TABLE
        try:
            self.table.update(call["Key"][KEY]["S"], call)
        except ClientError as error:
            if degraded or call.get("ReturnValuesOnConditionCheckFailure") != "ALL_OLD":
                error.response.pop("Item", None)
            raise
        return {}

    def delete_item(self, degraded: bool, **call) -> dict:
        key = call["Key"][KEY]["S"]
        self.table.check(key, "DeleteItem", call)
        self.table.put(key, None)
        return {}

    def get_item(self, degraded: bool, *, TableName: str, Key: Item, ConsistentRead=False) -> dict:
        item = self.table.get(Key[KEY]["S"], ConsistentRead)
        return {} if item is None else {"Item": item}

    def batch_get_item(self, degraded: bool, *, RequestItems: dict) -> dict:
        batch = RequestItems[TABLE]
        keys, consistent = batch["Keys"], batch.get("ConsistentRead", False)
        assert len({key[KEY]["S"] for key in keys}) == len(keys) <= 100
        keys, left = self._split(keys, degraded)
        items = [self.table.get(key[KEY]["S"], consistent) for key in keys]
        return {
            "Responses": {TABLE: [item for item in items if item is not None]},
            "UnprocessedKeys": {TABLE: {**batch, "Keys": left}} if left else {},
        }

    def batch_write_item(self, degraded: bool, *, RequestItems: dict) -> dict:
        assert len(RequestItems[TABLE]) <= 25
        puts, left = self._split(RequestItems[TABLE], degraded)
        for put in puts:
            item = put["PutRequest"]["Item"]
            self.table.put(item[KEY]["S"], item)
        return {"UnprocessedItems": {TABLE: left} if left else {}}

    def _split(self, items: list, degraded: bool) -> tuple[list, list]:
        """Divide a batch into what is processed and what is left."""
        at = self.random.randrange(len(items)) if degraded else len(items)
        return items[:at], items[at:]

    def query(self, degraded: bool, **call) -> dict:
        assert call["KeyConditionExpression"] == "#shard = :shard AND #at <= :now"
        values = call["ExpressionAttributeValues"]
        shard, now = (int(values[name]["N"]) for name in (":shard", ":now"))
        return self.table.query(shard, now, call.get("ExclusiveStartKey"))

    def send_message_batch(self, degraded: bool, *, QueueUrl: str, Entries: list) -> dict:
        def send(entry: dict) -> None:
            if QueueUrl == QUEUE:
                self.queue.send(entry["MessageBody"])
            else:
                error = entry["MessageAttributes"].get("error", {"StringValue": ""})
                self.oracle.rejected(entry["MessageBody"], error["StringValue"])

        failed = self._take(Entries, send, degraded)
        sent = [{"Id": entry["Id"]} for entry in Entries if entry["Id"] not in failed]
        error = {"Code": "InternalError", "SenderFault": False}
        return {"Successful": sent, "Failed": [{"Id": id, **error} for id in failed]}

    def put_events(self, degraded: bool, *, Entries: list) -> dict:
        entries = [{"Id": number, **entry} for number, entry in enumerate(Entries)]
        failed = self._take(entries, self.oracle.published, degraded)
        error = {"ErrorCode": "InternalFailure", "ErrorMessage": "simulated"}
        results = [error if entry["Id"] in failed else {"EventId": "id"} for entry in entries]
        return {"FailedEntryCount": len(failed), "Entries": results}

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


@dataclass(frozen=True)
class Client:
    """A boto3-like client of one machine for all services: injects the faults."""

    machine: Machine
    aws: AWS

    def __getattr__(self, operation: str) -> Callable[..., dict]:
        return partial(self._call, operation)

    def _call(self, operation: str, **call) -> dict:
        world, machine = self.machine.world, self.machine
        effect = partial(getattr(self.aws, operation), **call)
        world.pause(machine, 1 + int(world.random.random() * 40))
        fault = world.fault(operation, machine)
        if fault is None:
            return effect(False)
        world.log(f"{operation}: FAULT {world.injected[-1]}: {fault}")
        if fault in ("unprocessed", "entries failed", "no item"):
            return effect(True)
        if fault == "stalled":
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
        if fault in _ERRORS:
            code, status = _ERRORS[fault]
            raise failure(code, operation, status)
        if fault in CRASHES:
            raise Crash
        dropped = fault == "dropped"
        machine.pause(3000 if dropped else 10_000)
        raise (ConnectTimeoutError if dropped else ReadTimeoutError)(endpoint_url=operation)


def _ignore_error(effect: Callable[[bool], dict]) -> None:
    with suppress(ClientError):
        effect(False)
