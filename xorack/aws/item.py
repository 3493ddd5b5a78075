"""The item codec: a chain as a DynamoDB item, and back.

An item that holds only the key and ``stamp``, as xor-ack-dynamodb writes it, is an open chain.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import Any, get_args

from xorack.aws import schema
from xorack.aws.table import Item, ttl
from xorack.core.chain import END_OF_TIME, Chain, Status
from xorack.core.checks import JSON_CHECKS
from xorack.core.errors import NotAChainError, shown
from xorack.core.marks import MARK_BYTES

_STATUSES: tuple[str, ...] = get_args(Status)
_TYPES: dict[str, tuple[tuple[str, ...], str, Callable[[Any], Any]]] = {
    "S": (schema.STRINGS, "a String", str),
    "B": (schema.BINARIES, "a Binary", bytes),
    "N": (schema.NUMBERS, "a whole number", int),
}


def due_shard(tag: str) -> int:
    """Return the partition of the index that holds a chain: 0 to ``DUE_SHARDS`` - 1."""
    return zlib.crc32(tag.encode()) % schema.DUE_SHARDS


def encode(chain: Chain, partition_key: str, retention_ms: int) -> Item:
    """Encode a chain as an item, without attributes that are None, empty or false.

    Args:
        chain: The chain.
        partition_key: The name of the key attribute.
        retention_ms: Milliseconds that the tombstone of a finished chain is kept.
    """
    assert "\0" not in chain.tag, "keys with a NUL are not chains"
    assert len(chain.marks) % MARK_BYTES == 0, "an item has whole marks"
    item: Item = {partition_key: {"S": chain.tag}}
    if chain.version:
        item[schema.FORMAT_NAME] = {"N": str(schema.FORMAT)}
    for kind, (names, _, _) in _TYPES.items():
        for name in names:
            value = getattr(chain, name)
            if value is not None and value != b"" and (value or name not in schema.COUNTERS):
                item[name] = {kind: str(value) if kind == "N" else value}
    for name in schema.FLAGS:
        if getattr(chain, name):
            item[name] = {"N": "1"}
    if chain.due_at is not None:
        item[schema.DUE_SHARD] = {"N": str(due_shard(chain.tag))}
    if chain.ended_at is not None:
        # Seconds. Only a finished chain expires: an open chain that disappears is a loss.
        item[schema.EXPIRES_AT] = ttl(chain.ended_at + retention_ms)
    return item


def decode(item: Item, partition_key: str) -> Chain:
    """Decode an item of xorack or of xor-ack-dynamodb.

    Raises:
        NotAChainError: Another program or a newer version of this package wrote the item.
    """
    tag = item[partition_key]["S"]
    written = item.get(schema.FORMAT_NAME, {}).get("N", "0")
    if float(written) > schema.FORMAT:
        newest = f"its format is {written}, and this version knows {schema.FORMAT} at most"
        raise NotAChainError(tag, newest)
    fields: dict[str, Any] = {schema.STATUS: "open"}
    for kind, (names, expected, convert) in _TYPES.items():
        for name in names:
            if name not in item:
                continue
            try:
                fields[name] = convert(item[name][kind])
            except (KeyError, ValueError) as error:
                ((actual, value),) = item[name].items()
                found = f"{value}" if actual == "N" else f"of type {actual}"
                raise NotAChainError(tag, f"its {name} is {found}, expected {expected}") from error
    _check(tag, fields)
    fields.update({name: name in item for name in schema.FLAGS})
    return Chain(tag, **fields)


def _check(tag: str, fields: dict[str, Any]) -> None:
    """Raise NotAChainError for a value without which the chain cannot have an end or an event."""
    for name in schema.TIMES:
        if not 0 <= fields.get(name, 0) <= END_OF_TIME:
            expected = "milliseconds since the epoch"
            raise NotAChainError(tag, f"its {name} is {fields[name]}, expected {expected}")
    if (length := len(fields.get("marks", b""))) % MARK_BYTES:
        raise NotAChainError(
            tag, f"its marks is {length} bytes, expected a multiple of {MARK_BYTES}"
        )
    if (status := fields[schema.STATUS]) not in _STATUSES:
        expected = " or ".join(_STATUSES)
        raise NotAChainError(tag, f"its status is {shown(status)}, expected {expected}")
    for name in ("detail", "resume", "note"):
        if name in fields and not _is_readable(name, fields[name]):
            found = "a text" if name == "resume" else shown(fields[name])  # a token is a secret
            expected = "a JSON object" + (" as requests have it" if name != "detail" else "")
            raise NotAChainError(tag, f"its {name} is {found}, expected {expected}")


def _is_readable(name: str, text: str) -> bool:
    """Return True if a text is the JSON object that the chain's end needs."""
    try:
        value = json.loads(text)
        if name != "detail" and isinstance(value, dict):
            parts = value if name == "note" else {name: value}
            for field, part in parts.items():
                if part not in (None, []):
                    JSON_CHECKS[field](field, part)
    except (KeyError, ValueError, RecursionError):
        return False
    return isinstance(value, dict)
