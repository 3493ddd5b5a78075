"""A DynamoDB client over a dictionary, which counts units of calls as DynamoDB bills them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from math import ceil
from typing import Any

from botocore.exceptions import ClientError

from tests.support.expressions import Item, holds, updated
from xorack.aws import schema

_PAGE = 10_000
"""The index entries of a query without a limit, about 1 MB."""


def failure(code: str, **more: Any) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": code}, **more}, "Call")


def item_bytes(item: Item | None) -> int:
    """Return an item's size: names and values. A number takes half as many bytes as digits."""
    size = 0
    for name, value in (item or {}).items():
        ((kind, data),) = value.items()
        size += len(name)
        if kind == "N":
            size += len(data) // 2 + 2
        else:
            size += sum(map(len, data)) if kind == "BS" else len(data)
    return size


class WeighedTable:
    """A table whose calls take some time. Threads may share it.

    Attributes:
        writes: Write units, for the KB of an item and the changes of the index.
        reads: Read units, each for 4 KB of an item.
        calls: The number of calls by operation.
        throttles: A function that returns whether a key is throttled now.
    """

    def __init__(
        self,
        seconds: float = 0.0,
        sleep: Callable[[float], None] = time.sleep,
        throttles: Callable[[str], bool] = lambda key: False,
    ) -> None:
        self.items: dict[str, Item] = {}
        self.writes = self.reads = 0
        self.calls: Counter[str] = Counter()
        self.throttles = throttles
        self._seconds, self._sleep = seconds, sleep
        self._index: dict[str, dict[str, int]] | None = None
        self._guard = threading.Lock()

    def _take_time(self, operation: str) -> None:
        self.calls[operation] += 1
        if self._seconds:
            self._sleep(self._seconds)

    def update_item(self, **call: Any) -> dict[str, Any]:
        self._take_time("update_item")
        key = call["Key"][schema.TAG]["S"]
        if self.throttles(key):
            raise failure("ThrottlingException")
        with self._guard:
            before = self.items.get(key)
            if not holds(call.get("ConditionExpression"), before, call):
                self.writes += max(1, ceil(item_bytes(before) / 1024))
                raise failure(
                    "ConditionalCheckFailedException", **({"Item": before} if before else {})
                )
            after = self.items[key] = updated({**call["Key"], **(before or {})}, call)
            self.writes += ceil(max(item_bytes(before), item_bytes(after)) / 1024)
            was, now = (item and item.get(schema.DUE_AT) for item in (before, after))
            if was != now:
                self.writes += bool(was) + bool(now)
            if self._index is not None:
                if before and schema.DUE_SHARD in before:
                    self._index.get(before[schema.DUE_SHARD]["N"], {}).pop(key, None)
                self._add_to_index(key, after)
        return {}

    def _read(self, keys: list[Item]) -> list[Item]:
        with self._guard:
            items = [self.items.get(key[schema.TAG]["S"]) for key in keys]
            self.reads += sum(max(1, ceil(item_bytes(item) / 4096)) for item in items)
        return [item for item in items if item is not None]

    def query(
        self, *, ExpressionAttributeValues: Item, Limit: int = _PAGE, **call: Any
    ) -> dict[str, Any]:
        """Return a page of the index of deadlines."""
        self._take_time("query")
        shard, now = (ExpressionAttributeValues[name] for name in (":shard", ":now"))
        after = call.get("ExclusiveStartKey", (0, ""))
        with self._guard:
            if self._index is None:
                self._index = {}
                for key, item in self.items.items():
                    self._add_to_index(key, item)
            due = [(at, key) for key, at in self._index.get(shard["N"], {}).items()]
        page = sorted(entry for entry in due if after < entry and entry[0] <= int(now["N"]))[:Limit]
        more = {"LastEvaluatedKey": page[-1]} if len(page) == Limit else {}
        items = [{schema.TAG: {"S": key}, schema.DUE_AT: {"N": str(at)}} for at, key in page]
        return {"Items": items, "Count": len(items), **more}

    def _add_to_index(self, key: str, item: Item) -> None:
        if self._index is not None and schema.DUE_AT in item:
            shard = self._index.setdefault(item[schema.DUE_SHARD]["N"], {})
            shard[key] = int(item[schema.DUE_AT]["N"])

    def get_item(self, *, Key: Item, **_: Any) -> dict[str, Any]:
        self._take_time("get_item")
        items = self._read([Key])
        return {"Item": items[0]} if items else {}

    def batch_get_item(self, *, RequestItems: dict[str, Any]) -> dict[str, Any]:
        self._take_time("batch_get_item")
        ((name, request),) = RequestItems.items()
        existing = self._read(request["Keys"])
        if names := request.get("ExpressionAttributeNames"):
            existing = [
                {name: item[name] for name in item.keys() & names.values()} for item in existing
            ]
        return {"Responses": {name: existing}}
