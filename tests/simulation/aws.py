"""Table, queues and bus as AWS promises them, behind a client as boto3 has it.

The table: conditional writes, each atomic for its item; reads that are stale unless asked to be
consistent; batches that may leave keys out; an index that lags. The queue: at least once, in no
order, out of sight for a while once received. The bus: entry by entry. Each call passes through
`Client._call`, where the faults are.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError

from tests.simulation.world import Killed, Machine, World

Item = dict[str, dict]
TABLE, QUEUE, DEAD_LETTERS, BUS = "table", "queue", "dead-letters", "bus"


def failure(code: str, operation: str, status: int = 400, **more) -> ClientError:
    return ClientError(
        {
            "Error": {"Code": code, "Message": "of the simulation"},
            "ResponseMetadata": {"HTTPStatusCode": status},
            **more,
        },
        operation,
    )


class Table:
    """A DynamoDB table.

    Attributes:
        items: What is there, by key.
        watch: Called with each write of an item: key, item before, item after.
    """

    def __init__(self, world: World, key: str, lag: int, page: int) -> None:
        self.world = world
        self.key = key
        self.lag = lag
        self.page = page
        self.items: dict[str, Item] = {}
        self.watch: Callable[[str, Item | None, Item | None], None] = lambda key, old, new: None
        self._older: dict[str, Item | None] = {}
        self._index: dict[str, tuple[int, int]] = {}
        self._coming: deque[tuple[int, str, tuple[int, int] | None]] = deque()

    def put(self, key: str, item: Item | None) -> None:
        before = self.items.get(key)
        self._older[key] = before
        if item is None:
            self.items.pop(key, None)
        else:
            self.items[key] = item
        entry = None
        if item is not None and "due_shard" in item and "due_at" in item:
            entry = (int(item["due_shard"]["N"]), int(item["due_at"]["N"]))
        at = self.world.now + self.world.random.randrange(self.lag + 1)
        if self._coming and self._coming[-1][0] > at:
            at = self._coming[-1][0]
        self._coming.append((at, key, entry))
        self.watch(key, before, item)

    def get(self, key: str, consistent: bool) -> Item | None:
        if not consistent and key in self._older and self.world.random.random() < 0.5:
            return self._older[key]
        return self.items.get(key)

    def _holds(self, item: Item | None, condition: str, names: dict, values: dict) -> bool:
        for term in condition.split(" AND "):
            if term.startswith("attribute_not_exists("):
                if item is not None and names[term[21:-1]] in item:
                    return False
            elif term.startswith("attribute_exists("):
                if item is None or names[term[17:-1]] not in item:
                    return False
            else:
                name, equals, value = term.split(" ")
                assert equals == "=", f"the simulated table cannot do: {condition}"
                if item is None or item.get(names[name]) != values[value]:
                    return False
        return True

    def update(
        self, key: str, update: str, condition: str | None, names: dict, values: dict
    ) -> None:
        """UpdateItem; raises with the item if the condition fails."""
        item = self.items.get(key)
        if condition and not self._holds(item, condition, names, values):
            more = {} if item is None else {"Item": item}
            raise failure("ConditionalCheckFailedException", "UpdateItem", **more)
        after = {self.key: {"S": key}} if item is None else dict(item)
        sets, _, removes = update.partition(" REMOVE ")
        assert sets.startswith("SET "), f"the simulated table cannot do: {update}"
        for part in sets[4:].split(", "):
            name, value = part.split(" = ")
            after[names[name]] = values[value]
        for name in removes.split(", ") if removes else ():
            after.pop(names[name], None)
        self.put(key, after)

    def query(self, shard: int, now: int, after: tuple[int, str] | None) -> dict:
        """A page of the index."""
        while self._coming and self._coming[0][0] <= self.world.now:
            _, key, entry = self._coming.popleft()
            if entry is None:
                self._index.pop(key, None)
            else:
                self._index[key] = entry
        due = sorted((at, key) for key, (s, at) in self._index.items() if s == shard and at <= now)
        if after is not None:
            due = [one for one in due if one > after]
        answer: dict = {"Items": [{self.key: {"S": key}} for _, key in due[: self.page]]}
        if len(due) > self.page:
            answer["LastEvaluatedKey"] = due[self.page - 1]
        return answer


class Message:
    """A message in a queue."""

    __slots__ = ("attributes", "body", "held_since", "id", "receives", "visible_at")

    def __init__(self, id: str, body: str, attributes: dict, visible_at: int) -> None:
        self.id = id
        self.body = body
        self.attributes = attributes
        self.visible_at = visible_at
        self.receives = 0


class Queue:
    """An SQS standard queue, with its dead-letter queue behind it.

    Attributes:
        messages: What is in it.
        dead: What was received too often; refused requests' letters are not here.
        letters: What was sent to the dead-letter queue.
    """

    def __init__(self, world: World, visibility: int, max_receives: int) -> None:
        self.world = world
        self.visibility = visibility
        self.max_receives = max_receives
        self.messages: dict[str, Message] = {}
        self.dead: list[Message] = []
        self.watch_sent: Callable[[str], None] = lambda body: None
        self.watch_letter: Callable[[str, dict], None] = lambda body, attributes: None
        self.watch_done: Callable[[str], None] = lambda body: None
        self._sent = 0

    def send(self, body: str, attributes: dict, url: str) -> None:
        if url == DEAD_LETTERS:
            self.watch_letter(body, attributes)
            return
        self._sent += 1
        id = f"m{self._sent}"
        # A message may be slow to become visible.
        delay = self.world.random.choice((0, 0, 0, 50, 2000))
        self.messages[id] = Message(id, body, attributes, self.world.now + delay)
        self.watch_sent(body)

    def wait(self) -> int | None:
        """For `World.wait_until`: None if a message can be received."""
        now = self.world.now
        if not self.messages:
            return 1500
        first = min(message.visible_at for message in self.messages.values())
        return None if first <= now else min(max(first - now, 100), 5000)

    def receive(self, machine: Machine, most: int) -> list[Message]:
        """Receive messages: some of those in sight, in no order, and one in flight by a fault."""
        now = self.world.now
        random = self.world.random
        again = self.world.fault("receive", machine) is not None
        there = [m for m in self.messages.values() if m.visible_at <= now]
        if again:
            flying = [m for m in self.messages.values() if m.visible_at > now]
            there += random.sample(flying, min(3, len(flying)))
        chosen = random.sample(there, min(random.randint(1, most), len(there)))
        received = []
        for message in chosen:
            message.receives += 1
            if message.receives > self.max_receives:
                del self.messages[message.id]
                self.dead.append(message)
                continue
            message.visible_at = now + self.visibility
            received.append(message)
        return received

    def delete(self, machine: Machine, message: Message) -> None:
        """Delete a message that was done with."""
        self.watch_done(message.body)
        if self.world.fault("delete", machine) is None:
            self.messages.pop(message.id, None)

    def redrive(self) -> None:
        """Move what was received too often back."""
        for message in self.dead:
            message.receives = 0
            message.visible_at = self.world.now
            self.messages[message.id] = message
        self.dead.clear()


class Bus:
    """An EventBridge bus."""

    def __init__(self) -> None:
        self.watch: Callable[[dict], None] = lambda entry: None

    def put(self, entry: dict) -> None:
        self.watch(entry)


class Client:
    """One machine's boto3 client of everything.

    Attributes:
        quiet: Whether its calls suffer no faults.
    """

    def __init__(self, world: World, machine: Machine, table: Table, queue: Queue, bus: Bus):
        self.world = world
        self.machine = machine
        self.table = table
        self.queue = queue
        self.bus = bus

    def _call(self, name: str, effect: Callable[[], dict], partial=None) -> dict:
        """Make a call, with what may befall it.

        Args:
            name: The operation.
            effect: Does it, and answers.
            partial: Does it in part, for the faults that leave some out.
        """
        world, machine = self.world, self.machine
        world.pause(machine, 1 + int(world.random.random() * 40))
        kind = world.fault(name, machine)
        if kind is None:
            return effect()
        if world.trace is not None:
            number = world.injected[-1]
            world.tell(machine, f"{name}: FAULT {number}: {kind}")
        if kind == "dropped":
            world.pause(machine, 3000)
            raise ConnectTimeoutError(endpoint_url=name)
        if kind == "throttled":
            raise failure("ProvisionedThroughputExceededException", name)
        if kind == "conflict":
            raise failure("TransactionConflictException", name)
        if kind == "5xx":
            raise failure("InternalServerError", name, 500)
        if kind == "denied":
            raise failure("AccessDeniedException", name)
        if kind == "killed before":
            raise Killed
        if kind == "stalled":
            world.pause(machine, world.random.choice((200, 3000, 15_000, 90_000)))
            return effect()
        if kind in ("unprocessed", "entries failed"):
            return partial()
        if kind == "no item":
            return self._without_item(effect)
        if kind == "late":
            world.later(world.random.choice((100, 5000, 60_000)), lambda: _quietly(effect))
            world.pause(machine, 10_000)
            raise ReadTimeoutError(endpoint_url=name)
        if kind == "twice":
            _quietly(effect)
            world.pause(machine, 50)
            try:
                return effect()
            except ClientError as error:
                # As botocore notes it, which is what sent the call again.
                error.response["ResponseMetadata"]["RetryAttempts"] = 1
                raise
        # What is left lands, and its answer does not come back.
        _quietly(effect)
        if kind == "killed after":
            raise Killed
        if kind == "5xx done":
            raise failure("InternalServerError", name, 500)
        world.pause(machine, 10_000)
        raise ReadTimeoutError(endpoint_url=name)

    @staticmethod
    def _without_item(effect: Callable[[], dict]) -> dict:
        try:
            return effect()
        except ClientError as error:
            error.response.pop("Item", None)
            raise

    # -- DynamoDB ------------------------------------------------------------------------------

    def _key_of(self, key: Item) -> str:
        return key[self.table.key]["S"]

    def update_item(
        self,
        *,
        TableName: str,
        Key: Item,
        UpdateExpression: str,
        ConditionExpression: str | None = None,
        ExpressionAttributeNames: dict | None = None,
        ExpressionAttributeValues: dict | None = None,
        ReturnValuesOnConditionCheckFailure: str = "NONE",
    ) -> dict:
        assert TableName == TABLE
        key = self._key_of(Key)
        world = self.world

        def effect() -> dict:
            try:
                self.table.update(
                    key,
                    UpdateExpression,
                    ConditionExpression,
                    ExpressionAttributeNames or {},
                    ExpressionAttributeValues or {},
                )
            except ClientError as error:
                world.tell(self.machine, f"update_item {key}: condition failed")
                if ReturnValuesOnConditionCheckFailure != "ALL_OLD":
                    error.response.pop("Item", None)
                raise
            return {}

        return self._call("update_item", effect)

    def delete_item(
        self,
        *,
        TableName: str,
        Key: Item,
        ConditionExpression: str | None = None,
        ExpressionAttributeNames: dict | None = None,
    ) -> dict:
        key = self._key_of(Key)

        def effect() -> dict:
            if ConditionExpression and key not in self.table.items:
                raise failure("ConditionalCheckFailedException", "DeleteItem")
            self.table.put(key, None)
            return {}

        return self._call("delete_item", effect)

    def get_item(self, *, TableName: str, Key: Item, ConsistentRead: bool = False) -> dict:
        assert TableName == TABLE

        def effect() -> dict:
            item = self.table.get(self._key_of(Key), ConsistentRead)
            return {} if item is None else {"Item": item}

        return self._call("get_item", effect)

    def batch_get_item(self, *, RequestItems: dict) -> dict:
        ((_, asked),) = RequestItems.items()
        keys = asked["Keys"]
        assert len({self._key_of(key) for key in keys}) == len(keys) <= 100
        consistent = asked.get("ConsistentRead", False)

        def some(wanted: list[Item], left: list[Item]) -> dict:
            found = [self.table.get(self._key_of(key), consistent) for key in wanted]
            answer: dict = {"Responses": {TABLE: [item for item in found if item is not None]}}
            if left:
                answer["UnprocessedKeys"] = {TABLE: {"Keys": left, "ConsistentRead": consistent}}
            return answer

        half = self.world.random.randrange(len(keys))
        return self._call(
            "batch_get_item", lambda: some(keys, []), lambda: some(keys[:half], keys[half:])
        )

    def batch_write_item(self, *, RequestItems: dict) -> dict:
        ((_, puts),) = RequestItems.items()
        assert 1 <= len(puts) <= 25

        def some(wanted: list, left: list) -> dict:
            for put in wanted:
                item = put["PutRequest"]["Item"]
                self.table.put(self._key_of(item), item)
            return {"UnprocessedItems": {TABLE: left}} if left else {}

        half = self.world.random.randrange(len(puts))
        return self._call(
            "batch_write_item", lambda: some(puts, []), lambda: some(puts[:half], puts[half:])
        )

    def query(
        self,
        *,
        TableName: str,
        IndexName: str,
        KeyConditionExpression: str,
        ExpressionAttributeNames: dict,
        ExpressionAttributeValues: dict,
        Limit: int,
        ExclusiveStartKey=None,
    ) -> dict:
        assert KeyConditionExpression == "#shard = :shard AND #at <= :now"
        shard = int(ExpressionAttributeValues[":shard"]["N"])
        now = int(ExpressionAttributeValues[":now"]["N"])
        return self._call("query", lambda: self.table.query(shard, now, ExclusiveStartKey))

    # -- SQS and EventBridge -------------------------------------------------------------------

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict]) -> dict:
        assert 1 <= len(Entries) <= 10
        random = self.world.random

        def some(wanted: list[dict]) -> dict:
            for entry in wanted:
                attributes = {k: v["StringValue"] for k, v in entry["MessageAttributes"].items()}
                self.queue.send(entry["MessageBody"], attributes, QueueUrl)
            sent = [{"Id": entry["Id"]} for entry in wanted]
            failed = [
                {"Id": entry["Id"], "Code": "InternalError", "SenderFault": False}
                for entry in Entries
                if entry not in wanted
            ]
            return {"Successful": sent, **({"Failed": failed} if failed else {})}

        return self._call(
            "send_message_batch",
            lambda: some(Entries),
            lambda: some([entry for entry in Entries if random.random() < 0.5]),
        )

    def put_events(self, *, Entries: list[dict]) -> dict:
        assert 1 <= len(Entries) <= 10
        random = self.world.random

        def some(failing: float) -> dict:
            answers: list[dict] = []
            for number, entry in enumerate(Entries):
                if random.random() < failing:
                    answers.append({"ErrorCode": "InternalFailure", "ErrorMessage": "simulated"})
                    continue
                json.loads(entry["Detail"])
                self.bus.put(entry)
                answers.append({"EventId": str(number)})
            failed = sum("ErrorCode" in answer for answer in answers)
            return {"FailedEntryCount": failed, "Entries": answers}

        return self._call("put_events", lambda: some(0), lambda: some(0.6))


def _quietly(effect: Callable[[], dict]) -> None:
    with suppress(ClientError):
        effect()
