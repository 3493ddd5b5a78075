"""Spilled marks in DynamoDB: bucket items, each with a set of marks and a TTL.

The key of a bucket is the chain's tag, a NUL, the chain's generation, a NUL, the bucket's level, a
NUL and its number (`xorack.core.marks`). Adding to a set is safe to repeat, and safe among writers
that spill at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from botocore.exceptions import ClientError

from xorack.aws import schema
from xorack.aws.table import Item, Table, condition_failed, ttl
from xorack.core.chain import Chain
from xorack.core.marks import (
    MARK_BYTES,
    MARK_KEY_BYTES,
    Bucket,
    all_buckets,
    bucket_for,
    buckets_of,
)

_NAMES = {"#marks": schema.SPILLED_MARKS, "#until": schema.EXPIRES_AT}


class MarkBuckets:
    """The part of a `xorack.core.ports.ChainStore` that keeps spilled marks in a table."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def get_spilled_marks(self, chain: Chain, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        buckets = {bucket for key in keys for bucket in buckets_of(chain.spilled, key)}
        items = self.table.read([_key(chain, bucket) for bucket in sorted(buckets)])
        marks = [bytes(mark) for item in items for mark in item[schema.SPILLED_MARKS]["BS"]]
        wanted = set(keys)
        return {
            mark[:MARK_KEY_BYTES]: mark[MARK_KEY_BYTES:]
            for mark in marks
            if mark[:MARK_KEY_BYTES] in wanted
        }

    def put_spilled_marks(self, chain: Chain, marks: bytes, until: int) -> None:
        by_bucket: dict[Bucket, set[bytes]] = {}
        for at in range(0, len(marks), MARK_BYTES):
            mark = marks[at : at + MARK_BYTES]
            by_bucket.setdefault(bucket_for(chain.spilled, mark), set()).add(mark)
        for bucket, some in sorted(by_bucket.items()):
            values: Item = {":marks": {"BS": sorted(some)}, ":until": ttl(until)}
            update = "SET #until = :until ADD #marks :marks"
            condition = "attribute_not_exists(#until) OR #until <= :until"
            if not self._update(chain, bucket, update, condition, values):
                # The bucket is kept for longer than that.
                del values[":until"]
                self._update(chain, bucket, "ADD #marks :marks", None, values)

    def keep_spilled_marks(self, chain: Chain, until: int) -> None:
        for bucket in all_buckets(chain.spilled):
            # The condition does not hold either for a bucket that does not exist.
            values = {":until": ttl(until)}
            self._update(chain, bucket, "SET #until = :until", "#until < :until", values)

    def _update(
        self, chain: Chain, bucket: Bucket, update: str, condition: str | None, values: Item
    ) -> bool:
        """Update a bucket; return False if the condition does not hold."""
        text = f"{update} {condition or ''}"
        arguments: dict[str, Any] = {"ConditionExpression": condition} if condition else {}
        try:
            self.table.call(
                "update_item",
                Key=self.table.key(_key(chain, bucket)),
                UpdateExpression=update,
                ExpressionAttributeNames={n: _NAMES[n] for n in _NAMES if n in text},
                ExpressionAttributeValues=values,
                **arguments,
            )
        except ClientError as error:
            if not condition_failed(error):
                raise
            return False
        return True


def _key(chain: Chain, bucket: Bucket) -> str:
    generation = ".".join(str(part) for part in chain.generation if part is not None)
    return f"{chain.tag}\0{generation}\0{bucket.level}\0{bucket.number}"
