"""Checks whether a table that xorack did not create can hold chains.

The stack checks the table in its template. The functions check the table in DynamoDB. Both
descriptions have the field names of `CreateTable`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from xorack.aws import schema
from xorack.core.errors import ArgumentError

_Entries = Iterable[Mapping[str, str]]
_USABLE = ("ACTIVE", "UPDATING")


def check_definition(name: str, table: Mapping[str, Any], partition_key: str) -> None:
    """Raise ArgumentError if the keys, attributes or indexes of a table do not suit chains."""
    attributes = table.get("AttributeDefinitions") or ()
    types = {each["AttributeName"]: each["AttributeType"] for each in attributes}

    def described(keys: _Entries) -> str:
        ordered = sorted(keys, key=lambda key: key["KeyType"])  # HASH comes before RANGE
        names = [key["AttributeName"] for key in ordered]
        return ", ".join(f"{name} ({types.get(name)})" for name in names)

    _expect(f"key of table {name}", described(table["KeySchema"]), f"{partition_key} (S)")
    indexes = {each["IndexName"]: each for each in table.get("GlobalSecondaryIndexes") or ()}
    due_key = f"{schema.DUE_SHARD} (N), {schema.DUE_AT} (N)"
    if schema.DUE_INDEX not in indexes:
        expected = f"{schema.DUE_INDEX}, with the key {due_key}"
        raise ArgumentError(f"indexes of table {name}", _listed(indexes), expected)
    index, field = indexes[schema.DUE_INDEX], f"index {schema.DUE_INDEX} of table {name}"
    _expect(f"key of {field}", described(index["KeySchema"]), due_key)
    _expect(field, index.get("IndexStatus", "ACTIVE"), *_USABLE)


def check_state(name: str, table: Mapping[str, Any], time_to_live: Mapping[str, Any]) -> None:
    """Raise ArgumentError unless a table is active, has no replicas and expires ended chains.

    The arguments are the results of `DescribeTable` and `DescribeTimeToLive`.
    """
    _expect(f"status of table {name}", table.get("TableStatus"), *_USABLE)
    here = str(table.get("TableArn", "")).split(":")[3:4]
    replicas = [each["RegionName"] for each in table.get("Replicas") or ()]
    check_replicas(name, [region for region in replicas if region not in here])
    enabled = time_to_live.get("TimeToLiveStatus") in ("ENABLED", "ENABLING")
    check_time_to_live(name, time_to_live.get("AttributeName") if enabled else None)


def check_replicas(name: str, regions: Sequence[str]) -> None:
    """Raise ArgumentError if a table has replicas.

    With replicas the last writer wins, and stamps get lost.
    """
    _expect(f"replicas of table {name}", _listed(regions), "none")


def check_time_to_live(name: str, attribute: str | None) -> None:
    """Raise ArgumentError if a table does not expire ended chains."""
    _expect(f"time to live of table {name}", attribute or "off", schema.EXPIRES_AT)


def _expect(field: str, value: str | None, *expected: str) -> None:
    if value not in expected:
        raise ArgumentError(field, value, " or ".join(expected))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
