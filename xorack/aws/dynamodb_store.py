"""Chains in a DynamoDB table: a `xorack.core.ports.ChainStore`.

One item a chain. Each write is one conditional ``UpdateItem`` that sets what changed and leaves
every other attribute alone. `xorack.aws.item` is the codec.

Spilled marks are items of the same table. Their key is the chain's tag, a NUL (which no tag
holds), the time when the chain was first seen, and the mark's key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from xorack.aws import schema
from xorack.aws.client import error_code, is_transient, make_client
from xorack.aws.item import Item, decode, encode
from xorack.core.chain import Chain
from xorack.core.errors import InvalidRequest, NotAChain, TagNotFound
from xorack.core.marks import MARK_BYTES, MARK_KEY_BYTES
from xorack.core.ports import DEFAULT_RETENTION_MS, Conflict, Unavailable

__all__ = ["DynamoDBStore"]

_READ_BATCH = 100
_WRITE_BATCH = 25
_UNPROCESSED_ROUNDS = 4
_CONDITION_FAILED = "ConditionalCheckFailedException"
_NO_INDEX = ("ValidationException", "ResourceNotFoundException")


class DynamoDBStore:
    """A `xorack.core.ports.ChainStore` over a DynamoDB table."""

    def __init__(
        self,
        table_name: str,
        partition_key: str = schema.TAG,
        client: Any = None,
        *,
        retention: int = DEFAULT_RETENTION_MS,
    ) -> None:
        """Use a table.

        Args:
            table_name: The name of the table.
            partition_key: The name of its partition key, a string attribute.
            client: A boto3 DynamoDB client; by default one of the default credential chain.
            retention: Milliseconds that the tombstone of a finished chain is kept.

        Raises:
            InvalidRequest: The table name is empty, or the partition key is an attribute of chains.
        """
        if not isinstance(table_name, str) or not table_name:
            raise InvalidRequest("table_name", table_name, "the name of a DynamoDB table")
        if not isinstance(partition_key, str) or not partition_key:
            raise InvalidRequest("partition_key", partition_key, "the name of the partition key")
        if partition_key in schema.RESERVED:
            expected = "a name that is not an attribute of a chain"
            raise InvalidRequest("partition_key", partition_key, expected)
        self.table_name = table_name
        self.partition_key = partition_key
        self.client = make_client("dynamodb") if client is None else client
        self.retention = retention

    # -- chains --------------------------------------------------------------------------------

    def read(self, tags: Sequence[str]) -> dict[str, Chain]:
        """See `xorack.core.ports.ChainStore.read`."""
        chains = (self._decode(item) for item in self._batch_get(list(tags)))
        return {chain.tag: chain for chain in chains}

    def write(self, before: Chain | None, after: Chain) -> None:
        """See `xorack.core.ports.ChainStore.write`."""
        new = self._encode(after)
        old = self._encode(before) if before is not None else {}
        names = {"#key": self.partition_key}
        values: Item = {}
        update = _update_expression(old, new, names, values, self.partition_key)
        condition = _condition_expression(before, names, values)
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
            if error_code(error) != _CONDITION_FAILED:
                raise _wrapped(error) from error
            item = error.response.get("Item")
            # No item: the chain does not exist, or the engine does not return it.
            stored = self._decode(item) if item else self.read([after.tag]).get(after.tag)
            raise Conflict(stored, maybe_ours=_retried(error)) from error
        except BotoCoreError as error:
            raise _wrapped(error) from error

    def delete(self, tag: str) -> None:
        """Delete a chain.

        Raises:
            TagNotFound: The chain does not exist.
        """
        try:
            self._call(
                "delete_item",
                Key=self._key(tag),
                ConditionExpression="attribute_exists(#key)",
                ExpressionAttributeNames={"#key": self.partition_key},
            )
        except ClientError as error:
            if error_code(error) != _CONDITION_FAILED:
                raise
            if not _retried(error):
                raise TagNotFound(tag) from error

    # -- spilled marks -------------------------------------------------------------------------

    def get_spilled_marks(self, chain: Chain, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """See `xorack.core.ports.ChainStore.get_spilled_marks`."""
        items = self._batch_get([_mark_item_key(chain, key) for key in keys])
        marks = [bytes(item[schema.MARK]["B"]) for item in items]
        return {mark[:MARK_KEY_BYTES]: mark[MARK_KEY_BYTES:] for mark in marks}

    def put_spilled_marks(self, chain: Chain, marks: bytes, until: int) -> None:
        """See `xorack.core.ports.ChainStore.put_spilled_marks`."""
        expires_at = {"N": str(until // 1000 + 1)}
        puts = []
        for at in range(0, len(marks), MARK_BYTES):
            mark = marks[at : at + MARK_BYTES]
            key = self._key(_mark_item_key(chain, mark[:MARK_KEY_BYTES]))
            item = {**key, schema.MARK: {"B": mark}, schema.EXPIRES_AT: expires_at}
            puts.append({"PutRequest": {"Item": item}})
        for at in range(0, len(puts), _WRITE_BATCH):
            left: Any = {self.table_name: puts[at : at + _WRITE_BATCH]}
            for _ in range(_UNPROCESSED_ROUNDS):
                left = self._call("batch_write_item", RequestItems=left).get("UnprocessedItems")
                if not left:
                    break
            else:
                raise Unavailable(_unprocessed("BatchWriteItem", len(puts) - at))

    # -- for the sweeper and for operators -----------------------------------------------------

    def due_pages(self, now: int) -> Iterator[list[str]]:
        """See `xorack.core.ports.ChainStore.due_pages`.

        Reads a sparse index, so chains that are not due cost nothing. A table without the index
        (created by hand, or for xor-ack-dynamodb) is scanned instead.

        Args:
            now: Milliseconds since the epoch.

        Yields:
            At most 100 tags at a time. The index lags behind the table: read the chains.
        """
        values = {":now": {"N": str(now)}}
        # Each minute another shard is first, so none always waits for the others.
        first = now // 60_000
        try:
            for offset in range(schema.DUE_SHARDS):
                shard = {"N": str((first + offset) % schema.DUE_SHARDS)}
                for page in self._pages(
                    "query",
                    IndexName=schema.DUE_INDEX,
                    KeyConditionExpression="#shard = :shard AND #at <= :now",
                    ExpressionAttributeNames={"#shard": schema.DUE_SHARD, "#at": schema.DUE_AT},
                    ExpressionAttributeValues={":shard": shard, **values},
                    Limit=_READ_BATCH,
                ):
                    yield self._tags(page)
        except ClientError as error:
            message = error.response.get("Error", {}).get("Message", "")
            if error_code(error) not in _NO_INDEX or "index" not in message:
                raise
            for page in self._pages(
                "scan",
                FilterExpression="#at <= :now",
                ProjectionExpression="#key",
                ExpressionAttributeNames={"#at": schema.DUE_AT, "#key": self.partition_key},
                ExpressionAttributeValues=values,
            ):
                yield self._tags(page)

    def first_due(self, limit: int) -> tuple[list[str], bool]:
        """Return the unfinished chains with the earliest deadlines, from the sparse index.

        Args:
            limit: Most tags, at least 1. One query a shard reads that many keys.

        Returns:
            Tags, the earliest first; and True if there are more. The index lags behind the table:
            read the chains.
        """
        due: list[tuple[int, str]] = []
        more = False
        for shard in range(schema.DUE_SHARDS):
            page = self._call(
                "query",
                IndexName=schema.DUE_INDEX,
                KeyConditionExpression="#shard = :shard",
                ExpressionAttributeNames={"#shard": schema.DUE_SHARD},
                ExpressionAttributeValues={":shard": {"N": str(shard)}},
                Limit=limit,
            )
            times = [int(item[schema.DUE_AT]["N"]) for item in page["Items"]]
            due += zip(times, self._tags(page), strict=True)
            more = more or "LastEvaluatedKey" in page
        due.sort()
        return [tag for _, tag in due[:limit]], more or len(due) > limit

    def scan(self, on_invalid: Callable[[NotAChain], None] | None = None) -> Iterator[Chain]:
        """Scan the whole table, eventually consistent.

        Args:
            on_invalid: Called for each item that is not a chain; the scan goes on.

        Yields:
            The chains, in no order.

        Raises:
            NotAChain: An item is not a chain and ``on_invalid`` is None.
            Unavailable: A retry may help.
        """
        for page in self._pages(
            "scan",
            FilterExpression="attribute_not_exists(#mark)",
            ExpressionAttributeNames={"#mark": schema.MARK},
        ):
            for item in page["Items"]:
                try:
                    yield self._decode(item)
                except NotAChain as error:
                    if on_invalid is None:
                        raise
                    on_invalid(error)

    # -- calls ---------------------------------------------------------------------------------

    def _encode(self, chain: Chain) -> Item:
        return encode(chain, self.partition_key, self.retention)

    def _decode(self, item: Item) -> Chain:
        return decode(item, self.partition_key)

    def _key(self, value: str) -> Item:
        return {self.partition_key: {"S": value}}

    def _tags(self, page: dict[str, Any]) -> list[str]:
        return [item[self.partition_key]["S"] for item in page["Items"]]

    def _pages(self, operation: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        start: dict[str, Any] = {}
        while True:
            page = self._call(operation, **arguments, **start)
            if page["Items"]:
                yield page
            if "LastEvaluatedKey" not in page:
                return
            start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    def _batch_get(self, keys: list[str]) -> Iterator[Item]:
        """Read items by key, consistently."""
        if len(keys) == 1:
            response = self._call("get_item", Key=self._key(keys[0]), ConsistentRead=True)
            if item := response.get("Item"):
                yield item
            return
        for at in range(0, len(keys), _READ_BATCH):
            wanted = [self._key(key) for key in keys[at : at + _READ_BATCH]]
            rounds = 0
            while wanted:
                request = {self.table_name: {"Keys": wanted, "ConsistentRead": True}}
                response = self._call("batch_get_item", RequestItems=request)
                yield from response["Responses"].get(self.table_name, [])
                unprocessed = response.get("UnprocessedKeys", {}).get(self.table_name, {})
                left = unprocessed.get("Keys", [])
                # A response ends at 16 MB: continue as long as each brings some items.
                rounds = rounds + 1 if len(left) == len(wanted) else 0
                if rounds >= _UNPROCESSED_ROUNDS:
                    raise Unavailable(_unprocessed("BatchGetItem", len(left)))
                wanted = left

    def _call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        if "RequestItems" not in arguments:
            arguments["TableName"] = self.table_name
        try:
            response: dict[str, Any] = getattr(self.client, operation)(**arguments)
        except (ClientError, BotoCoreError) as error:
            raise _wrapped(error) from error
        return response


def _update_expression(
    old: Item, new: Item, names: dict[str, str], values: Item, partition_key: str
) -> str:
    """Return the update from one item to another; add what it needs to names and values."""
    changed = [name for name in new if name != partition_key and old.get(name) != new[name]]
    removed = [name for name in old if name not in new]
    names.update({f"#{name}": name for name in (*changed, *removed)})
    values.update({f":{name}": new[name] for name in changed})
    update = "SET " + ", ".join(f"#{name} = :{name}" for name in changed)
    if removed:
        update += " REMOVE " + ", ".join(f"#{name}" for name in removed)
    return update


def _condition_expression(before: Chain | None, names: dict[str, str], values: Item) -> str:
    """Return the condition that an item is unchanged; add what it needs to names and values."""
    if before is None:
        return "attribute_not_exists(#key)"
    names["#version"] = "version"
    condition = "attribute_exists(#key)"
    if before.version:
        condition += " AND #version = :old_version"
        values[":old_version"] = {"N": str(before.version)}
    else:
        condition += " AND attribute_not_exists(#version)"
    if before.stamp:
        # xor-ack-dynamodb changes the stamp and not the version.
        condition += " AND #stamp = :old_stamp"
        names["#stamp"] = schema.STAMP
        values[":old_stamp"] = {"B": before.stamp}
    return condition


def _mark_item_key(chain: Chain, mark_key: bytes) -> str:
    return f"{chain.tag}\0{chain.first_seen_at}\0{mark_key.hex()}"


def _wrapped(error: Exception) -> Exception:
    """Wrap a retryable AWS error in Unavailable."""
    return Unavailable(error) if is_transient(error) else error


def _retried(error: ClientError) -> bool:
    """Return True if the SDK retried the call: the first attempt may have succeeded."""
    return bool(error.response.get("ResponseMetadata", {}).get("RetryAttempts"))


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
