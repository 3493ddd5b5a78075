"""Spilled marks in DynamoDB. A bucket is an item with a set of marks and a TTL.

Adding marks to a set is safe to repeat, even late, and safe if several writers spill at once.
docs/protocol.md describes the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from xorack.aws import schema
from xorack.aws.table import Item, Table, ttl
from xorack.core.chain import Chain
from xorack.core.marks import (
    MARK_KEY_BYTES,
    Bucket,
    all_buckets,
    buckets_of,
    changes_of,
    marks_in,
)

_NAMES = {"#marks": schema.SPILLED_MARKS, "#until": schema.EXPIRES_AT}
_MOST_END_MARKS = 2048
"""A bucket of ends with this many marks, 32 KB, is full. Each write is billed by the size of the
bucket, and more children of a parent may end at the same time than one item can hold."""
_WRITERS = 16
"""The number of a chain's buckets that are written at a time."""


class MarkBuckets:
    """The part of a `xorack.core.ports.ChainStore` that stores spilled marks."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def get_spilled_marks(self, chain: Chain, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        where = chain.spilled, chain.end_levels
        buckets = {bucket for key in keys for bucket in buckets_of(*where, key)}
        wanted = set(keys)
        return {
            mark[:MARK_KEY_BYTES]: mark[MARK_KEY_BYTES:]
            for mark in self._read(chain, buckets)
            if mark[:MARK_KEY_BYTES] in wanted
        }

    def put_end_marks(
        self, chain: Chain, by_bucket: Mapping[Bucket, Sequence[bytes]], until: int
    ) -> list[bytes]:
        left: list[bytes] = []
        condition = "attribute_not_exists(#marks) OR size(#marks) < :most"
        update = "SET #until = :until ADD #marks :marks"

        def add(bucket: Bucket) -> None:
            values: Item = {":marks": {"BS": sorted(by_bucket[bucket])}, ":until": ttl(until)}
            values[":most"] = {"N": str(_MOST_END_MARKS)}
            if not self._update(chain, bucket, update, condition, values):
                left.extend(by_bucket[bucket])

        _each(add, by_bucket)
        return left

    def put_spilled_marks(self, chain: Chain, marks: bytes, until: int) -> None:
        new = marks_in(marks)
        ended, grown = changes_of(chain.spilled, len(new))
        older = self._read(chain, [bucket for run in ended for bucket in run.buckets])
        by_bucket: dict[Bucket, set[bytes]] = {}
        at = 0
        for run in grown:
            since, at = at, run.end - chain.spilled
            for mark in (*older, *new[since:at]):
                by_bucket.setdefault(run.bucket_for(mark), set()).add(mark)
            older = []
        condition = "attribute_not_exists(#until) OR #until <= :until"

        def add(bucket: Bucket) -> None:
            values: Item = {":marks": {"BS": sorted(by_bucket[bucket])}, ":until": ttl(until)}
            update = "SET #until = :until ADD #marks :marks"
            if not self._update(chain, bucket, update, condition, values):
                # The bucket already has a later TTL, so only the marks are added.
                del values[":until"]
                self._update(chain, bucket, "ADD #marks :marks", None, values)

        _each(add, by_bucket)

    def keep_spilled_marks(self, chain: Chain, until: int) -> None:
        # If a bucket does not exist, the condition is false, so the update does not create the
        # bucket.
        update, condition, values = "SET #until = :until", "#until < :until", {":until": ttl(until)}
        _each(
            lambda bucket: self._update(chain, bucket, update, condition, values),
            all_buckets(chain.spilled),
        )

    def _read(self, chain: Chain, buckets: Iterable[Bucket]) -> list[bytes]:
        """Return the marks in these buckets."""
        items = self.table.read([_key(chain, bucket) for bucket in sorted(buckets)])
        return [bytes(mark) for item in items for mark in item[schema.SPILLED_MARKS]["BS"]]

    def _update(
        self, chain: Chain, bucket: Bucket, update: str, condition: str | None, values: Item
    ) -> bool:
        """Update a bucket; return whether the condition was true."""
        text = f"{update} {condition or ''}"
        arguments: dict[str, Any] = {"ConditionExpression": condition} if condition else {}
        refusal = self.table.refusal(
            "update_item",
            Key=self.table.key(_key(chain, bucket)),
            UpdateExpression=update,
            ExpressionAttributeNames={n: _NAMES[n] for n in _NAMES if n in text},
            ExpressionAttributeValues=values,
            **arguments,
        )
        return refusal is None


def _each(write: Callable[[Bucket], object], buckets: Iterable[Bucket]) -> None:
    """Write all buckets, several at a time, and then raise the first error."""
    ordered = sorted(buckets)
    if len(ordered) == 1:
        write(ordered[0])
        return
    with ThreadPoolExecutor(_WRITERS) as writers:
        list(writers.map(write, ordered))


def _key(chain: Chain, bucket: Bucket) -> str:
    generation = ".".join(str(part) for part in chain.generation if part is not None)
    return "\0".join(map(str, (chain.tag, generation, *bucket)))
