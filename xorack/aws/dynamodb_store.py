"""Chains in a DynamoDB table: a `xorack.core.ports.ChainStore`.

Each chain is one item. Each write is one conditional ``UpdateItem`` that sets the changed
attributes and leaves all others alone. `xorack.aws.item` encodes and decodes items.

The table also holds buckets of spilled marks. Their keys begin with a chain's tag and a NUL, which
no tag contains.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from xorack.aws import schema
from xorack.aws.clock import milliseconds
from xorack.aws.item import decode, encode
from xorack.aws.mark_buckets import MarkBuckets
from xorack.aws.retry import RetryPolicy
from xorack.aws.table import Item, Table, projection, sdk_retried
from xorack.core.chain import END_OF_TIME, Chain, Status
from xorack.core.errors import ConflictError, NotAChainError, StateError, TagNotFound, shown
from xorack.core.ports import DEFAULT_RETENTION_MS, DueCount, DuePage, OnInvalid
from xorack.core.transitions import Retentions

_DUE_PAGE = 20
"""The chains that a sweep reads at a time: less than 80 KB each, in each of its threads."""
_WITHOUT_MARKS = tuple(sorted(schema.RESERVED - {"marks", schema.SPILLED_MARKS}))
_READERS = 8
"""The partitions of the index that an operator's search reads at a time."""
_PENDING = ("event_pending", "resume_pending", "parents_pending")
_RETENTION = "\0retention"
"""The key of the item that records the acker's retentions."""


class ScanPart(NamedTuple):
    """Chains from a part of the table, and the number of items that DynamoDB has read.

    The next part begins after the key `after`, which is empty at the end of the table.
    """

    chains: list[Chain]
    read: int
    after: str


class DynamoDBStore(MarkBuckets):
    """A `xorack.core.ports.ChainStore` over a DynamoDB table."""

    def __init__(
        self,
        table_name: str,
        partition_key: str = schema.TAG,
        client: Any = None,
        *,
        retention_ms: int = DEFAULT_RETENTION_MS,
        policy: RetryPolicy | None = None,
        attributes: Sequence[str] = (),
    ) -> None:
        """Open a table; `Table` describes the other arguments.

        Ended chains expire after twice ``retention_ms``: see `xorack.aws.item.encode`.
        ``attributes`` may be `schema.SHOWN`.
        """
        super().__init__(Table(table_name, partition_key, client, policy, attributes))
        self.retention_ms = retention_ms

    def with_all_attributes(self) -> DynamoDBStore:
        """Return the same table with all attributes, which are necessary to write a chain."""
        where = self.table.name, self.table.partition_key, self.table.client
        return DynamoDBStore(*where, retention_ms=self.retention_ms)

    def read(
        self, tags: Sequence[str], on_invalid: OnInvalid | None = None, *, marks: bool = True
    ) -> dict[str, Chain]:
        items = self.table.read(tags, () if marks else _WITHOUT_MARKS)
        chains = {chain.tag: chain for chain in self._valid(items, on_invalid)}
        return {tag: chains[tag] for tag in tags if tag in chains}

    def status(self, tag: str) -> Status | None:
        """Read the status of a chain, eventually consistently; None if the chain does not exist."""
        projected = projection(self.table.partition_key, (schema.STATUS,))
        item = self.table.call("get_item", Key=self.table.key(tag), **projected).get("Item")
        return self._decode(item).status if item else None

    def write(self, before: Chain | None, after: Chain) -> None:
        new = self._encode(after)
        old = self._encode(before) if before is not None else {}
        # Another writer may have ended the chain under another retention.
        old.pop(schema.EXPIRES_AT, None)
        # An older version may have written the item. This write must set its own format.
        old.pop(schema.FORMAT_NAME, None)
        names = {"#key": self.table.partition_key}
        values: Item = {}
        refusal = self.table.refusal(
            "update_item",
            Key=self.table.key(after.tag),
            UpdateExpression=_update_expression(old, new, names, values),
            ConditionExpression=_condition_expression(before, names, values),
            ExpressionAttributeNames=names,
            ExpressionAttributeValues=values,
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        if refusal is not None:
            item = refusal.response.get("Item")
            # The error has no item if the chain does not exist, or if the database does not return
            # items.
            stored = self._decode(item) if item else self.read([after.tag]).get(after.tag)
            raise ConflictError(stored, maybe_ours=sdk_retried(refusal)) from refusal

    def delete(self, tag: str, *, force: bool = False) -> None:
        """Delete a chain.

        Args:
            tag: The chain.
            force: Delete it even if a report is pending. The report is then lost.

        Raises:
            TagNotFound: The chain does not exist.
            StateError: A report is pending.
        """
        guards = () if force else _PENDING
        names = {"#key": self.table.partition_key, **{f"#{name}": name for name in guards}}
        condition = "attribute_exists(#key)"
        condition += "".join(f" AND attribute_not_exists(#{name})" for name in guards)
        refusal = self.table.refusal(
            "delete_item",
            Key=self.table.key(tag),
            ConditionExpression=condition,
            ExpressionAttributeNames=names,
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        if refusal is None:
            return
        stored = refusal.response.get("Item") or next(self.table.read([tag]), {})
        if any(name in stored for name in guards):
            raise StateError(
                f"tag: {shown(tag)} has ended and its event is not published, so it was not "
                "deleted. The sweeper publishes the event within two minutes; retry then"
            ) from refusal
        if sdk_retried(refusal):
            return  # the first attempt has deleted the chain
        if not stored:
            raise TagNotFound(tag) from refusal
        self.delete(tag, force=force)  # the report was made after the first attempt

    def earlier_retentions(self, *, record: bool = False) -> tuple[Retentions, bool]:
        """Return `Limits.earlier_retentions`, and whether the table knows the current retention.

        With ``record``, the current retention is recorded if the table does not know it.
        """
        values: Item = {":retention": {"N": str(self.retention_ms)}}
        condition = "attribute_not_exists(#retention)"
        earlier: Retentions = ()
        if item := next(self.table.read([_RETENTION]), None):
            before = int(item["retention"]["N"])
            earlier = tuple((until, ms) for until, ms in json.loads(item["earlier"]["S"]))
            if before == self.retention_ms:
                return earlier, True
            # A message that was sent under the earlier retention may belong to a chain that ended
            # then.
            earlier = (*earlier, (milliseconds() + before, before))
            condition, values[":before"] = "#retention = :before", item["retention"]
        if not record:
            return earlier, False
        values[":earlier"] = {"S": json.dumps(earlier)}
        refusal = self.table.refusal(
            "update_item",
            Key=self.table.key(_RETENTION),
            UpdateExpression="SET #retention = :retention, #earlier = :earlier",
            ConditionExpression=condition,
            ExpressionAttributeNames={"#retention": "retention", "#earlier": "earlier"},
            ExpressionAttributeValues=values,
        )
        if refusal is not None:
            # Another instance has recorded the retention first.
            return self.earlier_retentions(record=True)
        return earlier, True

    def due_page(self, now: int, shard: int, after: Any = None) -> DuePage:
        page = self._query_due(now, shard, after, Limit=_DUE_PAGE)
        return DuePage(self._tags(page), page.get("LastEvaluatedKey"))

    def count_due(self, now: int, shard: int, after: Any = None) -> DueCount:
        page = self._query_due(now, shard, after, Limit=1)
        if not page["Items"]:
            return DueCount(0, None)
        chains, first_due_at = 1, int(page["Items"][0][schema.DUE_AT]["N"])
        while after := page.get("LastEvaluatedKey"):
            page = self._query_due(now, shard, after, Select="COUNT")
            chains += page["Count"]
        return DueCount(chains, first_due_at)

    def _query_due(self, now: int, shard: int, after: Any, **more: Any) -> dict[str, Any]:
        """Query one page of the index with retries, so that a sweep need not start again."""
        more |= {"ExclusiveStartKey": after} if after else {}
        return self.table.retried(
            "query",
            IndexName=schema.DUE_INDEX,
            KeyConditionExpression="#shard = :shard AND #at <= :now",
            ExpressionAttributeNames={"#shard": schema.DUE_SHARD, "#at": schema.DUE_AT},
            ExpressionAttributeValues={":shard": {"N": str(shard)}, ":now": {"N": str(now)}},
            **more,
        )

    def first_due(self, limit: int) -> list[str]:
        """Return tags of due chains, the earliest first."""

        def read(shard: int) -> list[tuple[int, str]]:
            page = self._query_due(END_OF_TIME, shard, None, Limit=limit)
            times = [int(item[schema.DUE_AT]["N"]) for item in page["Items"]]
            return [*zip(times, self._tags(page), strict=True)]

        with ThreadPoolExecutor(_READERS) as readers:
            shards = list(readers.map(read, range(schema.DUE_SHARDS)))
        return [tag for _, tag in sorted(entry for due in shards for entry in due)[:limit]]

    def scan(
        self,
        on_invalid: OnInvalid | None = None,
        *,
        prefix: str = "",
        attributes: Sequence[str] = (),
    ) -> Iterator[Chain]:
        """Yield all chains of the table, eventually consistently and in no order.

        An item that is not a chain is an error. ``on_invalid`` gets it, or else it ends the scan.
        """
        arguments = self._scan_arguments(prefix, attributes or self.table.attributes)
        for page in self.table.pages("scan", **arguments):
            yield from self._valid(page["Items"], on_invalid)

    def scan_part(
        self, most: int, on_invalid: OnInvalid, *, prefix: str = "", after: str = ""
    ) -> ScanPart:
        """Scan the table from the key `after` on, until DynamoDB has read `most` items."""
        arguments = self._scan_arguments(prefix, self.table.attributes)
        chains: list[Chain] = []
        read = 0
        while read < most:
            start = {"ExclusiveStartKey": self.table.key(after)} if after else {}
            page = self.table.call("scan", Limit=most - read, **start, **arguments)
            chains += self._valid(page["Items"], on_invalid)
            read += page["ScannedCount"]
            last = page.get("LastEvaluatedKey")
            after = self.table.key_of(last) if last else ""
            if not after:
                break
        return ScanPart(chains, read, after)

    def _scan_arguments(self, prefix: str, attributes: Sequence[str]) -> dict[str, Any]:
        """Return the arguments of a scan that skips buckets of marks and other records."""
        key = self.table.partition_key
        values: Item = {":nul": {"S": "\0"}, **({":prefix": {"S": prefix}} if prefix else {})}
        prefix_filter = " AND begins_with(#key, :prefix)" if prefix else ""
        return {
            "FilterExpression": f"NOT contains(#key, :nul){prefix_filter}",
            "ExpressionAttributeNames": {"#key": key},
            "ExpressionAttributeValues": values,
            **projection(key, attributes),
        }

    def _valid(self, items: Iterable[Item], on_invalid: OnInvalid | None) -> Iterator[Chain]:
        for item in items:
            try:
                yield self._decode(item)
            except NotAChainError as error:
                if on_invalid is None:
                    raise
                on_invalid(error)

    def _encode(self, chain: Chain) -> Item:
        return encode(chain, self.table.partition_key, self.retention_ms)

    def _decode(self, item: Item) -> Chain:
        return decode(item, self.table.partition_key)

    def _tags(self, page: dict[str, Any]) -> list[str]:
        return [self.table.key_of(item) for item in page["Items"]]


def _update_expression(old: Item, new: Item, names: dict[str, str], values: Item) -> str:
    """Return the update from one item to another. Add its names and values to the arguments."""
    changed = [name for name in new if name != names["#key"] and old.get(name) != new[name]]
    removed = [name for name in old if name not in new]
    names.update({f"#{name}": name for name in (*changed, *removed)})
    values.update({f":{name}": new[name] for name in changed})
    update = "SET " + ", ".join(f"#{name} = :{name}" for name in changed)
    if removed:
        update += " REMOVE " + ", ".join(f"#{name}" for name in removed)
    return update


def _condition_expression(before: Chain | None, names: dict[str, str], values: Item) -> str:
    """Return the condition that an item is unchanged. Add its names and values to the arguments."""
    if before is None:
        return "attribute_not_exists(#key)"
    first_seen_at, nonce = before.generation
    old = {"first_seen_at": first_seen_at, "nonce": nonce, "version": before.version or None}
    condition = "attribute_exists(#key)"
    for name, value in old.items():
        names[f"#{name}"] = name
        if value is None:
            condition += f" AND attribute_not_exists(#{name})"
        else:
            condition += f" AND #{name} = :old_{name}"
            values[f":old_{name}"] = {"N": str(value)}
    if before.stamp and not before.version:
        # The first write adopts an item of xor-ack-dynamodb, whose version number never changes.
        condition += " AND #stamp = :old_stamp"
        names["#stamp"] = schema.STAMP
        values[":old_stamp"] = {"B": before.stamp}
    return condition
