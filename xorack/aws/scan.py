"""Scans of the table for chains, of the whole or of a bounded part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from xorack.aws.item import decode
from xorack.aws.table import Item, Table, projection
from xorack.core.chain import Chain
from xorack.core.errors import NotAChainError


class ScanPart(NamedTuple):
    """Chains of a part of the table.

    Attributes:
        chains: The chains.
        read: Number of items that DynamoDB read, whatever they are.
        after: The key at which the next part begins; empty if there is none.
    """

    chains: list[Chain]
    read: int
    after: str


def scan_part(
    table: Table,
    most: int,
    on_invalid: Callable[[NotAChainError], None],
    *,
    prefix: str = "",
    after: str = "",
) -> ScanPart:
    """Scan at most so many items, eventually consistent.

    Args:
        table: The table.
        most: Most items that DynamoDB reads.
        on_invalid: Called for each item that is not a chain.
        prefix: Only chains whose tags begin with it. DynamoDB reads the others, too.
        after: `ScanPart.after` of the part before.

    Raises:
        UnavailableError: A retry may help.
    """
    arguments = scan_arguments(table.partition_key, prefix, table.attributes)
    chains: list[Chain] = []
    read = 0
    while read < most:
        start = {"ExclusiveStartKey": table.key(after)} if after else {}
        page = table.call("scan", Limit=most - read, **start, **arguments)
        chains += decode_valid(page["Items"], table.partition_key, on_invalid)
        read += page["ScannedCount"]
        last = page.get("LastEvaluatedKey")
        after = table.key_of(last) if last else ""
        if not after:
            break
    return ScanPart(chains, read, after)


def scan_arguments(
    partition_key: str, prefix: str = "", attributes: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the arguments of a scan for chains: without buckets of marks and other records."""
    condition = "NOT contains(#key, :nul)"
    values: Item = {":nul": {"S": "\0"}}
    if prefix:
        condition += " AND begins_with(#key, :prefix)"
        values[":prefix"] = {"S": prefix}
    return {
        "FilterExpression": condition,
        "ExpressionAttributeNames": {"#key": partition_key},
        "ExpressionAttributeValues": values,
        **projection(partition_key, attributes),
    }


def decode_valid(
    items: Sequence[Item], partition_key: str, on_invalid: Callable[[NotAChainError], None] | None
) -> Iterator[Chain]:
    """Yield the chains of items; report the others, or raise NotAChainError without a callback."""
    for item in items:
        try:
            yield decode(item, partition_key)
        except NotAChainError as error:
            if on_invalid is None:
                raise
            on_invalid(error)
