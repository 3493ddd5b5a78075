"""Encodes a chain as a DynamoDB item, and decodes it.

An item that has only the key and ``stamp`` is an open chain, which xor-ack-dynamodb wrote.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable
from typing import Any, get_args

from xorack.aws import schema
from xorack.aws.table import Item, ttl
from xorack.core.chain import ATTRIBUTES, END_OF_TIME, Chain, Status
from xorack.core.checks import check_json
from xorack.core.errors import NotAChainError, shown
from xorack.core.marks import MARK_BYTES

_STATUSES: tuple[str, ...] = get_args(Status)
_TYPES: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "str": ("S", "a String", str),
    "Status": ("S", "a String", str),
    "bytes": ("B", "a Binary", bytes),
    "int": ("N", "a whole number", int),
    "bool": ("N", "1", bool),
}
"""By Python type: DynamoDB's type of an attribute, its name, and the function that reads it."""
_REFUSED = re.compile(r'\{("\w+":\[[0-9]{1,15},[0-9]{1,15}\],?)+\}')
"""Maps a report to the times of its first refusal and its next attempt."""
_TIMES = ("_at", "deadline", "_until")
"""The endings of the names of times."""


def due_shard(chain: Chain) -> int:
    """Return the partition of the index that holds a chain. `schema.DUE_SHARDS` explains them."""
    hashed = zlib.crc32(chain.tag.encode())
    if not (reports := chain.pending_reports):
        return hashed % schema.DUE_SHARDS
    place = schema.places(schema.DUE_SHARDS)[frozenset(reports)]
    return place.first + hashed % place.shards


def encode(chain: Chain, partition_key: str, retention_ms: int) -> Item:
    """Encode a chain as an item. Attributes that are None, empty or false are left out."""
    assert "\0" not in chain.tag, "keys with a NUL are not chains"
    assert len(chain.marks) % MARK_BYTES == 0, "an item has only complete marks"
    item: Item = {partition_key: {"S": chain.tag}}
    if chain.version:
        item[schema.FORMAT_NAME] = {"N": str(schema.FORMAT)}
    values = chain.attributes()
    for name, type_ in ATTRIBUTES.items():
        value = values[name]
        if type_ == "bool" or name in schema.ABSENT_AT_ZERO:
            value = int(value) or None
        if value is not None and value != b"":
            kind = _TYPES[type_][0]
            item[name] = {kind: str(value) if kind == "N" else value}
    if chain.due_at is not None:
        item[schema.DUE_SHARD] = {"N": str(due_shard(chain))}
    if chain.ended_at is not None:
        # Requests may be sent until one retention after the last arrival, and may arrive one
        # retention later.
        last = max(chain.ended_at, chain.tombstone.last_late_at or 0)
        item[schema.EXPIRES_AT] = ttl(
            END_OF_TIME if chain.pending_reports else last + 2 * retention_ms
        )
    return item


def decode(item: Item, partition_key: str) -> Chain:
    """Decode an item; raise NotAChainError if another program or a newer version wrote it."""
    tag = item[partition_key]["S"]
    written = item.get(schema.FORMAT_NAME, {}).get("N", "0")
    if float(written) > schema.FORMAT:
        newest = f"its format is {written}, and this version knows {schema.FORMAT} at most"
        raise NotAChainError(tag, newest)
    fields: dict[str, Any] = {schema.STATUS: "open"}
    for name, type_ in ATTRIBUTES.items():
        if name not in item:
            continue
        kind, expected, convert = _TYPES[type_]
        try:
            fields[name] = type_ == "bool" or convert(item[name][kind])
        except (KeyError, ValueError) as error:
            ((actual, value),) = item[name].items()
            stored = f"{value}" if actual == "N" else f"of type {actual}"
            raise NotAChainError(tag, f"its {name} is {stored}, expected {expected}") from error
    _check(tag, fields)
    return Chain.of_attributes(tag, fields)


def _check(tag: str, fields: dict[str, Any]) -> None:
    """Raise NotAChainError for values that would make the chain's end or event impossible."""
    for name, value in fields.items():
        if name.endswith(_TIMES) and not 0 <= value <= END_OF_TIME:
            expected = "milliseconds since the epoch"
            raise NotAChainError(tag, f"its {name} is {value}, expected {expected}")
    if (length := len(fields.get("marks", b""))) % MARK_BYTES:
        expected = f"a multiple of {MARK_BYTES}"
        raise NotAChainError(tag, f"its marks is {length} bytes, expected {expected}")
    if (status := fields[schema.STATUS]) not in _STATUSES:
        expected = " or ".join(_STATUSES)
        raise NotAChainError(tag, f"its status is {shown(status)}, expected {expected}")
    for name in ("detail", "resume", "note", "refused", "parents", "children"):
        if name in fields and not _is_readable(name, fields[name]):
            # The token of a callback is a secret.
            value = "a text" if name == "resume" else shown(fields[name])
            content = {"detail": "", "refused": " of reports to their two times"}
            shape = "array" if name == "parents" else "object"
            expected = f"a JSON {shape}{content.get(name, ' as requests have it')}"
            raise NotAChainError(tag, f"its {name} is {value}, expected {expected}")


def _is_readable(name: str, text: str) -> bool:
    """Return whether a text is JSON that a request may have in this field."""
    try:
        value = json.loads(text)
        if name == "refused":
            return bool(_REFUSED.fullmatch(text))
        if name == "parents":
            return bool(check_json(name, value))
        if name == "children":
            return min(value["acked"], value["failed"]) >= 0 and isinstance(
                value["failed_tags"], list
            )
        if name != "detail" and isinstance(value, dict):
            parts = value if name == "note" else {name: value}
            for field, part in parts.items():
                if part not in (None, []):
                    check_json("tag" if field == "chain" else field, part)
    except (KeyError, TypeError, ValueError, RecursionError):
        return False
    return isinstance(value, dict)
