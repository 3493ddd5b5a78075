"""The method of the npm package xor-ack-dynamodb, to compare with."""

from __future__ import annotations

from typing import Any

from xorack.aws import schema
from xorack.aws.retry import RetryPolicy
from xorack.core.stamp import xor

_PATIENT = RetryPolicy(attempts=1_000_000)


class Peer:
    """The method of xor-ack-dynamodb: consistent read, conditional put, the caller retries."""

    def __init__(self, client: Any, table: str) -> None:
        self.client, self.table = client, table

    def stamp(self, tag: str, stamp: bytes) -> bytes:
        """XOR a stamp; retry with back-off while other writers are faster."""
        key, retry = {schema.TAG: {"S": tag}}, _PATIENT.start()
        while True:
            response = self.client.get_item(TableName=self.table, Key=key, ConsistentRead=True)
            before = bytes(response["Item"]["stamp"]["B"])
            after = xor(before, stamp)
            condition = {
                "TableName": self.table,
                "ConditionExpression": "#s = :s",
                "ExpressionAttributeNames": {"#s": "stamp"},
                "ExpressionAttributeValues": {":s": {"B": before}},
            }
            try:
                if any(after):
                    self.client.put_item(Item={**key, "stamp": {"B": after}}, **condition)
                else:
                    self.client.delete_item(Key=key, **condition)
            except self.client.exceptions.ConditionalCheckFailedException:
                if not retry.again():
                    raise
            else:
                return after
