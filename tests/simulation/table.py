"""A DynamoDB table with the sparse index `due` and TTL."""

from collections import deque
from dataclasses import dataclass
from math import inf

from botocore.exceptions import ClientError

from tests.simulation.model import Item, number
from tests.simulation.options import Options
from tests.simulation.oracle import Oracle
from tests.simulation.world import World
from tests.support.expressions import holds, updated

KEY = "tag"
_TTL_DELAYS = (1, 3_600_000, 2 * 86_400_000)


def failure(code: str, operation: str, status: int = 400, **more) -> ClientError:
    metadata = {"HTTPStatusCode": status}
    error = {"Code": code, "Message": "of the simulation"}
    return ClientError({"Error": error, "ResponseMetadata": metadata, **more}, operation)


@dataclass
class Table:
    """The table: conditional writes, each atomic for its item; stale reads unless consistent."""

    world: World
    options: Options
    oracle: Oracle

    def __post_init__(self) -> None:
        self.items: dict[str, Item] = {}
        self._older: dict[str, Item | None] = {}
        self._index: dict[str, tuple[int, int]] = {}
        self._index_updates: deque[tuple[int, str, tuple[int, int] | None]] = deque()

    def put(self, key: str, item: Item | None, by: str = "code") -> None:
        """Write an item; None deletes it. Writers are `code`, `TTL` and `future`."""
        before = self._older[key] = self.items.pop(key, None)
        entry = None
        if item is not None:
            self.items[key] = item
            if "due_shard" in item and "due_at" in item:
                entry = (int(item["due_shard"]["N"]), int(item["due_at"]["N"]))
            expires_at = number(item, "expires_at")
            if expires_at is not None and expires_at != number(before, "expires_at"):
                delay = self.world.random.choice(_TTL_DELAYS)
                self.world.later(
                    expires_at * 1000 - self.world.now + delay, lambda: self._expire(key)
                )
        at = self.world.now + self.world.random.randrange(self.options.index_lag + 1)
        if self._index_updates:
            at = max(at, self._index_updates[-1][0])
        self._index_updates.append((at, key, entry))
        self.world.wake()
        self.oracle.wrote(key, before, item, by)

    def _expire(self, key: str) -> None:
        """Delete an item whose TTL has passed."""
        expires_at = number(self.items.get(key), "expires_at")
        if expires_at is not None and expires_at * 1000 < self.world.now:
            self.put(key, None, "TTL")

    def get(self, key: str, consistent: bool) -> Item | None:
        stale = not consistent and self.world.random.random() < self.options.stale_read
        return self._older[key] if stale and key in self._older else self.items.get(key)

    def check(self, key: str, operation: str, call: dict) -> None:
        """Raise ConditionalCheckFailedException, with the item, if a call's condition fails."""
        item = self.items.get(key)
        if not holds(call.get("ConditionExpression"), item, call):
            more = {} if item is None else {"Item": item}
            raise failure("ConditionalCheckFailedException", operation, **more)

    def update(self, key: str, call: dict) -> dict:
        self.check(key, "UpdateItem", call)
        self.put(key, updated({KEY: {"S": key}, **self.items.get(key, {})}, call))
        return {}

    def query(self, shard: int, now: int, after: tuple[int, str] | None, limit: float) -> dict:
        """Return a page of the index."""
        while self._index_updates and self._index_updates[0][0] <= self.world.now:
            _, key, entry = self._index_updates.popleft()
            self._index.pop(key, None)
            if entry is not None:
                self._index[key] = entry
        due = sorted((at, key) for key, (s, at) in self._index.items() if s == shard and at <= now)
        due = [entry for entry in due if after is None or entry > after]
        page = due[: int(min(limit, self.options.index_page))]
        response: dict = {"Items": [{KEY: {"S": key}, "due_at": {"N": at}} for at, key in page]}
        if len(page) < len(due):
            response["LastEvaluatedKey"] = page[-1]
        return response

    def idle_time(self) -> float:
        """Return the milliseconds until the first chain is due; infinite for none."""
        due = (number(item, "due_at") for item in self.items.values())
        return max(0, min((at for at in due if at is not None), default=inf) - self.world.now)
