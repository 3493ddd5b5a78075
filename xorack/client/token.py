"""Tokens: JSON objects that name a started unit and its chains, and travel with the work.

A MAC prevents programs without the key from making tokens. docs/protocol.md specifies the format.
"""

from __future__ import annotations

import hmac
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

from xorack.core.chain import Parent
from xorack.core.errors import ArgumentError
from xorack.core.hashing import unit_id
from xorack.core.request import validate_tag
from xorack.core.stamp import TRACED_CELLS, check_cells
from xorack.core.strict_json import read_json

StampKind = Literal["traced", "plain"]
TokenKey: TypeAlias = str | bytes | Sequence[str | bytes]
"""A key of at least 16 bytes, or two keys: the first signs tokens, and both are accepted."""

KEY_VARIABLE = "XORACK_TOKEN_KEY"
"""The environment variable that holds a key, or two keys separated by a comma."""
MAX_TAGS = 16
"""The most chains of a token, because its step sends a request to each."""
_VERSION = 1
_MAC_BYTES = 16
_MIN_KEY_BYTES = 16
_MAX_KEYS = 2


@dataclass(frozen=True)
class Token:
    """A started unit and its chains. It travels to the worker that finishes the unit."""

    unit: int
    tags: tuple[str, ...]
    kind: StampKind = "traced"
    cells: int = TRACED_CELLS
    mac: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the token as a JSON object; `str` returns it as text."""
        return {
            "v": _VERSION,
            "unit": f"{self.unit:016x}",
            "tags": list(self.tags),
            "kind": self.kind,
            **({} if self.cells == TRACED_CELLS else {"cells": self.cells}),
            **({} if self.mac is None else {"mac": self.mac}),
        }

    def __str__(self) -> str:
        """Return the token as JSON text."""
        return json.dumps(self.to_json(), separators=(",", ":"))

    @property
    def stamp_cells(self) -> int:
        """The number of cells of its chains' stamps; 0 for plain stamps."""
        return 0 if self.kind == "plain" else self.cells

    @property
    def canonical(self) -> bytes:
        """The canonical form, which is signed. It is unambiguous, because no tag has a NUL."""
        head = ("xorack-token", str(_VERSION), f"{self.unit:016x}", str(self.stamp_cells))
        return "\0".join((*head, *self.tags)).encode()

    @classmethod
    def from_json(cls, token: AnyToken) -> Token:
        """Read a token from a `Token`, its JSON object, or its JSON text, without verifying it.

        Raises:
            ArgumentError: The token is invalid, or another version of xorack made it.
        """
        if isinstance(token, Token):
            return token
        if isinstance(token, (str, bytes)):
            try:
                token = read_json(token if isinstance(token, str) else token.decode())
            except ValueError:
                expected = "the JSON text of a token, as str(token) returns it"
                raise ArgumentError("token text", token, expected) from None
        if not isinstance(token, Mapping):
            raise ArgumentError("token value", token, "a token, its JSON object or its JSON text")
        for name, valid, expected in _checks(token):
            if not valid:
                raise ArgumentError(f"token {name}", token.get(name), expected)
        cells = check_cells(_whole(token.get("cells", TRACED_CELLS)), "token cells")
        unit, tags = int(token["unit"], 16), _tags_of(token["tags"])
        return cls(unit, tags, token["kind"], cells, token.get("mac"))


AnyToken: TypeAlias = Token | Mapping[str, Any] | str | bytes


def parent_fields(
    parent: AnyToken | Sequence[AnyToken] | None,
    fail_parent: bool,
    read: Callable[[AnyToken], Token] | None = None,
) -> dict[str, Any]:
    """Return the fields of a create whose chain stands for the units of these tokens.

    By default, the keys of the environment verify the tokens.
    """
    if parent is None:
        return {"fail_parent": True} if fail_parent else {}
    read = read or Keys().verified
    tokens = map(read, parent if isinstance(parent, (list, tuple)) else [parent])
    parents = [Parent(token.unit, token.tags, token.stamp_cells) for token in tokens]
    return {"parents": parents, "fail_parent": fail_parent}


def step_group_id(tokens: Sequence[Token]) -> int:
    """Return the id of a step's units: the id of a single unit, or a hash of units and chains."""
    if len(tokens) == 1:
        return tokens[0].unit
    units = sorted(f"{token.unit:016x} {tag}" for token in tokens for tag in token.tags)
    return unit_id("\0".join(units))


def _checks(token: Mapping[str, Any]) -> Iterator[tuple[str, object, str]]:
    """Yield the checks of a token: the field's name, whether it is valid, the expected value."""
    version, kind, unit, tags, mac = map(token.get, ("v", "kind", "unit", "tags", "mac"))
    is_ours = version == _VERSION and not isinstance(version, bool)
    yield "v", is_ours, f"{_VERSION}, as another version of xorack made this token"
    yield "kind", kind in get_args(StampKind), "traced or plain"
    is_unit = isinstance(unit, str) and re.fullmatch("(?!0{16})[0-9a-fA-F]{16}", unit)
    yield "unit", is_unit, "16 hex digits, not all zero"
    is_list = isinstance(tags, list) and 1 <= len(tags) <= MAX_TAGS
    yield "tags", is_list, f"a list of 1 to {MAX_TAGS} tags"
    yield "cells", kind == "traced" or "cells" not in token, "no cells for plain stamps"
    is_mac = mac is None or (isinstance(mac, str) and re.fullmatch("[0-9a-f]{32}", mac))
    yield "mac", is_mac, "32 lower-case hex digits"


def _whole(number: Any) -> Any:
    """Return a float without a fraction as an integer, because in JSON 16.0 equals 16."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _tags_of(tags: Sequence[object]) -> tuple[str, ...]:
    try:
        valid = tuple(map(validate_tag, tags))
    except ArgumentError as error:
        raise ArgumentError("token tags", tags, error.expected) from None
    if len({*valid}) != len(valid):
        raise ArgumentError("token tags", tags, "each tag once")
    return valid


class Keys:
    """The keys of tokens. Without keys, tokens have no MAC, and no MAC is verified."""

    def __init__(self, keys: TokenKey | None = None) -> None:
        """Use these keys, or by default the keys of the environment.

        Raises:
            ArgumentError: A key is too short, or there are more than two. The error shows no key.
        """
        field, source = "token_key", keys
        if keys is None and KEY_VARIABLE in os.environ:
            field, source = KEY_VARIABLE, [k.strip() for k in os.environ[KEY_VARIABLE].split(",")]
        listed: list[Any] = [*source] if isinstance(source, (list, tuple)) else [source]
        # An environment variable may contain any bytes.
        listed = [k.encode("utf-8", "surrogateescape") if isinstance(k, str) else k for k in listed]
        self._keys = [] if source is None else listed
        is_strong = (isinstance(key, bytes) and len(key) >= _MIN_KEY_BYTES for key in self._keys)
        if source is not None and not (1 <= len(listed) <= _MAX_KEYS and all(is_strong)):
            # An empty key must not turn the verification off, because the key may be missing by
            # mistake.
            expected = f"one key of at least {_MIN_KEY_BYTES} bytes, or {_MAX_KEYS}"
            raise ArgumentError(field, problem=f"expected {expected}: the first signs tokens")

    def sign(self, token: Token) -> Token:
        """Return the token with its MAC, or without a MAC if there is no key."""
        return replace(token, mac=_mac(self._keys[0], token) if self._keys else None)

    def verified(self, token: AnyToken) -> Token:
        """Read a token, and verify its MAC if there is a key.

        Raises:
            ArgumentError: The token is invalid, or its MAC does not belong to any of the keys.
        """
        read = Token.from_json(token)
        macs = [_mac(key, read).encode() for key in self._keys]
        actual = (read.mac or "").encode()
        # Compare with all keys, so that the time does not reveal anything about them.
        if macs and not sum(hmac.compare_digest(mac, actual) for mac in macs):
            problem = "missing" if read.mac is None else "of another key or a changed token"
            raise ArgumentError(
                "token mac", problem=f"{problem}; set the same {KEY_VARIABLE} for all senders"
            )
        return read


def _mac(key: bytes, token: Token) -> str:
    return hmac.digest(key, token.canonical, "sha256")[:_MAC_BYTES].hex()
