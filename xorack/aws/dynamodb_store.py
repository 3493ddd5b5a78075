"""Chains in a DynamoDB table: `DynamoDBStore`, which services drive.

One item a chain, by the partition key. Each write is one conditional ``UpdateItem`` that sets
what changed and leaves every other attribute of the item alone. An item that holds nothing but
key and ``stamp``, as xor-ack-dynamodb writes it, is an open chain.

Marks that were moved out of a chain are items of the same table, their key the chain's tag, a NUL
(which no tag has), when the chain was born and the mark's key.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args

from botocore.exceptions import BotoCoreError, ClientError

from xorack.aws.client import error_code, is_transient, make_client
from xorack.core.chain import MARK_BYTES, MARK_KEY_BYTES, Chain, Status
from xorack.core.errors import InvalidRequest, NotAChain, TagNotFound, shown
from xorack.core.ports import DEFAULT_RETENTION_MS, Conflict, Unavailable

__all__ = ["DUE_INDEX", "DUE_SHARDS", "DynamoDBStore", "due_shard"]

DUE_INDEX = "due"
"""Sparse index on what is to be looked at, and when: ``due_shard`` and ``due_at``."""
DUE_SHARDS = 8
"""Partitions of that index: each takes a thousand writes a second."""

_READ_BATCH = 100
_WRITE_BATCH = 25
_UNPROCESSED_ROUNDS = 4

_NUMBERS = (
    "started",
    "finished",
    "version",
    "first_seen_at",
    "created_at",
    "last_stamp_at",
    "ended_at",
    "deadline",
    "idle_timeout",
    "due_at",
    "spilled",
)
_TIMES = ("first_seen_at", "created_at", "last_stamp_at", "ended_at", "deadline", "due_at")
_LAST_TIME = 253_402_300_799_999
"""The end of the year 9999, in milliseconds since 1970."""
_STRINGS = ("status", "detail", "failing", "reason")
_STATUSES: tuple[str, ...] = get_args(Status)
_BINARIES = ("stamp", "marks")
_FLAGS = ("event_pending", "extended")
_DERIVED = ("due_shard", "expires_at")
_ATTRIBUTES = frozenset((*_NUMBERS, *_STRINGS, *_BINARIES, *_FLAGS, *_DERIVED, "mark"))

_NO_INDEX = ("ValidationException", "ResourceNotFoundException")

Item = dict[str, dict[str, Any]]


def due_shard(tag: str) -> int:
    """The partition of the index that holds a chain: 0 to ``DUE_SHARDS`` - 1."""
    return zlib.crc32(tag.encode()) % DUE_SHARDS


class DynamoDBStore:
    """A `xorack.core.ports.ChainStore` over a DynamoDB table."""

    def __init__(
        self,
        table_name: str,
        partition_key: str = "tag",
        client: Any = None,
        *,
        retention: int = DEFAULT_RETENTION_MS,
    ) -> None:
        """Use a table.

        Args:
            table_name: The table.
            partition_key: The name of its partition key, a string attribute.
            client: A boto3 DynamoDB client; one of the default chain if None.
            retention: How long the tombstone of a finished chain is kept, milliseconds.

        Raises:
            InvalidRequest: No table name, or a partition key of a name that chains use themselves.
        """
        if not isinstance(table_name, str) or not table_name:
            raise InvalidRequest("table_name", table_name, "the name of a DynamoDB table")
        if not isinstance(partition_key, str) or not partition_key:
            raise InvalidRequest("partition_key", partition_key, "the name of the partition key")
        if partition_key in _ATTRIBUTES:
            raise InvalidRequest(
                "partition_key", partition_key, "a name that is no attribute of a chain"
            )
        self.table_name = table_name
        self.partition_key = partition_key
        self.client = make_client("dynamodb") if client is None else client
        self.retention = retention

    # -- items ---------------------------------------------------------------------------------

    def to_item(self, chain: Chain) -> Item:
        """A chain as an item, in DynamoDB's JSON; what is at its default is left out."""
        item: Item = {self.partition_key: {"S": chain.tag}}
        for name in _STRINGS:
            if (text := getattr(chain, name)) is not None:
                item[name] = {"S": text}
        for name in _BINARIES:
            if data := getattr(chain, name):
                item[name] = {"B": data}
        for name in _NUMBERS:
            if (number := getattr(chain, name)) is not None:
                item[name] = {"N": str(number)}
        for name in _FLAGS:
            if getattr(chain, name):
                item[name] = {"N": "1"}
        if chain.due_at is not None:
            item["due_shard"] = {"N": str(due_shard(chain.tag))}
        if chain.ended_at is not None:
            # DynamoDB's TTL counts seconds. Only finished chains have one: an open chain that
            # disappeared would be a loss.
            item["expires_at"] = {"N": str((chain.ended_at + self.retention) // 1000 + 1)}
        return item

    def from_item(self, item: Item) -> Chain:
        """Read a chain out of an item, of ours or of xor-ack-dynamodb.

        Raises:
            NotAChain: Some other program's item.
        """
        fields: dict[str, Any] = {"tag": item[self.partition_key]["S"], "status": "open"}
        try:
            for name in _STRINGS:
                if name in item:
                    fields[name] = item[name]["S"]
            for name in _BINARIES:
                if name in item:
                    fields[name] = bytes(item[name]["B"])
            for name in _NUMBERS:
                if name in item:
                    fields[name] = int(item[name]["N"])
        except (KeyError, ValueError) as error:
            raise NotAChain(fields["tag"], _strange(name, item[name])) from error
        for name in _TIMES:
            if not 0 <= (fields.get(name) or 0) <= _LAST_TIME:
                why = f"its {name} is {fields[name]}, expected milliseconds since 1970"
                raise NotAChain(fields["tag"], why)
        if (status := fields["status"]) not in _STATUSES:
            why = f"its status is {shown(status)}, expected {' or '.join(_STATUSES)}"
            raise NotAChain(fields["tag"], why)
        for name in _FLAGS:
            fields[name] = name in item
        return Chain(**fields)

    def _key(self, value: str) -> Item:
        return {self.partition_key: {"S": value}}

    def _mark_item_keys(self, chain: Chain, keys: Sequence[bytes]) -> list[str]:
        before = f"{chain.tag}\0{chain.first_seen_at}\0"
        return [before + key.hex() for key in keys]

    # -- the port ------------------------------------------------------------------------------

    def read(self, tags: Sequence[str]) -> dict[str, Chain]:
        """See `xorack.core.ports.ChainStore.read`."""
        return {
            chain.tag: chain
            for item in self._batch_get(list(tags))
            for chain in (self.from_item(item),)
        }

    def write(self, before: Chain | None, after: Chain) -> None:
        """See `xorack.core.ports.ChainStore.write`."""
        item = self.to_item(after)
        old = {} if before is None else self.to_item(before)
        names = {"#key": self.partition_key}
        values: dict[str, dict[str, Any]] = {}
        sets, removes = [], []
        for name, value in item.items():
            if name != self.partition_key and old.get(name) != value:
                names[f"#{name}"] = name
                values[f":{name}"] = value
                sets.append(f"#{name} = :{name}")
        for name in old:
            if name not in item:
                names[f"#{name}"] = name
                removes.append(f"#{name}")
        if before is None:
            condition = "attribute_not_exists(#key)"
        else:
            condition = "attribute_exists(#key)"
            names["#version"] = "version"
            if before.version:
                condition += " AND #version = :old_version"
                values[":old_version"] = {"N": str(before.version)}
            else:
                condition += " AND attribute_not_exists(#version)"
            if before.stamp:
                # Beside version, as xor-ack-dynamodb changes the stamp and knows nothing of version.
                condition += " AND #stamp = :old_stamp"
                names["#stamp"] = "stamp"
                values[":old_stamp"] = {"B": before.stamp}
        update = "SET " + ", ".join(sets)
        if removes:
            update += " REMOVE " + ", ".join(removes)
        try:
            self.client.update_item(
                TableName=self.table_name,
                Key=self._key(after.tag),
                UpdateExpression=update,
                ConditionExpression=condition,
                ExpressionAttributeNames=names,
                ExpressionAttributeValues=values,
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ClientError as error:
            if error_code(error) != "ConditionalCheckFailedException":
                raise _sorted_out(error) from error
            # boto3 tried again by itself: then the write it lost the answer of may have landed.
            retried = error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0) > 0
            item = error.response.get("Item")
            # Without one: nothing there; or an engine that does not send it. A read tells.
            there = self.from_item(item) if item else self.read([after.tag]).get(after.tag)
            raise Conflict(there, perhaps_ours=retried) from error
        except BotoCoreError as error:
            raise _sorted_out(error) from error

    def get_spilled_marks(self, chain: Chain, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """See `xorack.core.ports.ChainStore.get_spilled_marks`."""
        marks = [
            bytes(item["mark"]["B"]) for item in self._batch_get(self._mark_item_keys(chain, keys))
        ]
        return {mark[:MARK_KEY_BYTES]: mark[MARK_KEY_BYTES:] for mark in marks}

    def put_spilled_marks(self, chain: Chain, marks: bytes, until: int) -> None:
        """See `xorack.core.ports.ChainStore.put_spilled_marks`."""
        held = [marks[at : at + MARK_BYTES] for at in range(0, len(marks), MARK_BYTES)]
        keys = self._mark_item_keys(chain, [mark[:MARK_KEY_BYTES] for mark in held])
        expires_at = {"N": str(until // 1000 + 1)}
        for at in range(0, len(held), _WRITE_BATCH):
            puts = [
                {
                    "PutRequest": {
                        "Item": {**self._key(key), "mark": {"B": mark}, "expires_at": expires_at}
                    }
                }
                for key, mark in zip(
                    keys[at : at + _WRITE_BATCH], held[at : at + _WRITE_BATCH], strict=True
                )
            ]
            left: dict[str, Any] | None = {self.table_name: puts}
            for _ in range(_UNPROCESSED_ROUNDS):
                left = self._call("batch_write_item", RequestItems=left).get("UnprocessedItems")
                if not left:
                    break
            else:
                raise Unavailable(_unprocessed("BatchWriteItem", len(held) - at))

    # -- for the sweeper and for people --------------------------------------------------------

    def due_pages(self, now: int) -> Iterator[list[str]]:
        """The chains whose time to be looked at has come: to be ended, or their event owed.

        Reads a sparse index, so chains that are not due cost nothing. A table that has no such
        index (made by hand, or for xor-ack-dynamodb) is scanned instead.

        Args:
            now: Milliseconds since 1970.

        Yields:
            Tags, at most 100 at a time. The index lags behind the table: look at the chains.

        Raises:
            Unavailable: Try again.
        """
        # Another shard first each minute: none waits for the others for ever.
        first = now // 60_000
        values = {":now": {"N": str(now)}}
        try:
            for offset in range(DUE_SHARDS):
                shard = (first + offset) % DUE_SHARDS
                yield from self._pages(
                    "query",
                    IndexName=DUE_INDEX,
                    KeyConditionExpression="#shard = :shard AND #at <= :now",
                    ExpressionAttributeNames={"#shard": "due_shard", "#at": "due_at"},
                    ExpressionAttributeValues={":shard": {"N": str(shard)}, **values},
                    Limit=_READ_BATCH,
                )
        except ClientError as error:
            message = error.response.get("Error", {}).get("Message", "")
            if error_code(error) not in _NO_INDEX or "index" not in message:
                raise
            yield from self._pages(
                "scan",
                FilterExpression="#at <= :now",
                ProjectionExpression="#key",
                ExpressionAttributeNames={"#at": "due_at", "#key": self.partition_key},
                ExpressionAttributeValues=values,
            )

    def first_due(self, limit: int) -> tuple[list[str], bool]:
        """The chains that are due first, by the sparse index: those that nobody is done with.

        One query a shard, of as many keys as are asked for; since each shard is in order, the first
        of all are among them.

        Args:
            limit: How many at most, at least 1.

        Returns:
            Tags, the one that is due first first; and whether there are more. The index lags behind
            the table: look at the chains.

        Raises:
            Unavailable: Try again.
        """
        due: list[tuple[int, str]] = []
        more = False
        for shard in range(DUE_SHARDS):
            page = self._call(
                "query",
                IndexName=DUE_INDEX,
                KeyConditionExpression="#shard = :shard",
                ExpressionAttributeNames={"#shard": "due_shard"},
                ExpressionAttributeValues={":shard": {"N": str(shard)}},
                Limit=limit,
            )
            due += [(int(i["due_at"]["N"]), i[self.partition_key]["S"]) for i in page["Items"]]
            more = more or "LastEvaluatedKey" in page
        due.sort()
        return [tag for _, tag in due[:limit]], more or len(due) > limit

    def _pages(self, operation: str, **arguments: Any) -> Iterator[list[str]]:
        more: dict[str, Any] = {}
        while True:
            page = self._call(operation, **arguments, **more)
            if tags := [item[self.partition_key]["S"] for item in page["Items"]]:
                yield tags
            if "LastEvaluatedKey" not in page:
                return
            more = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    def scan(self, strange: Callable[[NotAChain], None] | None = None) -> Iterator[Chain]:
        """All chains, in no order, page by page: reads the whole table, eventually consistent.

        Args:
            strange: Is told of items that are no chains, and the others are read all the same.

        Yields:
            The chains.

        Raises:
            NotAChain: There is such an item, and nobody to tell.
            Unavailable: Try again.
        """
        more: dict[str, Any] = {}
        while True:
            page = self._call(
                "scan",
                FilterExpression="attribute_not_exists(#mark)",
                ExpressionAttributeNames={"#mark": "mark"},
                **more,
            )
            for item in page["Items"]:
                try:
                    chain = self.from_item(item)
                except NotAChain as error:
                    if strange is None:
                        raise
                    strange(error)
                else:
                    yield chain
            if "LastEvaluatedKey" not in page:
                return
            more = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    def delete(self, tag: str) -> None:
        """Delete a chain.

        Raises:
            TagNotFound: There is none.
        """
        try:
            self._call(
                "delete_item",
                Key=self._key(tag),
                ConditionExpression="attribute_exists(#key)",
                ExpressionAttributeNames={"#key": self.partition_key},
            )
        except ClientError as error:
            if error_code(error) != "ConditionalCheckFailedException":
                raise
            raise TagNotFound(tag) from error

    # -- calls ---------------------------------------------------------------------------------

    def _call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        if "RequestItems" not in arguments:
            arguments["TableName"] = self.table_name
        try:
            answer: dict[str, Any] = getattr(self.client, operation)(**arguments)
        except (ClientError, BotoCoreError) as error:
            raise _sorted_out(error) from error
        return answer

    def _batch_get(self, keys: list[str]) -> Iterator[Item]:
        """Items by key, read consistently."""
        if len(keys) == 1:
            answer = self._call("get_item", Key=self._key(keys[0]), ConsistentRead=True)
            if item := answer.get("Item"):
                yield item
            return
        for at in range(0, len(keys), _READ_BATCH):
            wanted = [self._key(key) for key in keys[at : at + _READ_BATCH]]
            rounds = 0
            while wanted:
                asked = {self.table_name: {"Keys": wanted, "ConsistentRead": True}}
                answer = self._call("batch_get_item", RequestItems=asked)
                yield from answer["Responses"].get(self.table_name, [])
                left = answer.get("UnprocessedKeys", {}).get(self.table_name, {})
                still = left.get("Keys", [])
                # An answer stops at 16 MB: as long as some come, go on.
                rounds = rounds + 1 if len(still) == len(wanted) else 0
                if rounds >= _UNPROCESSED_ROUNDS:
                    raise Unavailable(_unprocessed("BatchGetItem", len(still)))
                wanted = still


def _strange(name: str, value: dict[str, Any]) -> str:
    """What is wrong with an attribute that is not what a chain has under its name."""
    (kind,) = value
    told = f"of type {kind}" if kind != "N" else f"{value[kind]}"
    wanted = (
        "a String" if name in _STRINGS else "a Binary" if name in _BINARIES else "a whole number"
    )
    return f"its {name} is {told}, expected {wanted}"


def _sorted_out(error: Exception) -> Exception:
    """What a failed call raises: whether another try may help."""
    return Unavailable(error) if is_transient(error) else error


def _unprocessed(operation: str, count: int) -> ClientError:
    return ClientError(
        {
            "Error": {
                "Code": "ProvisionedThroughputExceededException",
                "Message": f"{count} keys were not processed",
            }
        },
        operation,
    )
