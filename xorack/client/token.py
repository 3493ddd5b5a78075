"""Tokens: a started unit and its chains, as JSON that travels with the work.

A MAC keeps those without the key from naming units of others. docs/protocol.md has the format.
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
"""A key of at least 16 bytes, or two: the first signs tokens, both are accepted."""

KEY_VARIABLE = "XORACK_TOKEN_KEY"
"""The environment variable that holds a key, or two separated by a comma."""
MAX_TAGS = 16
"""Most chains of a token: its unit is a request to each."""
_VERSION = 1
_MAC_BYTES = 16
_MIN_KEY_BYTES = 16
_MAX_KEYS = 2


@dataclass(frozen=True)
class Token:
    """A started unit and its chains, which travels to the worker that finishes it."""

    unit: int
    tags: tuple[str, ...]
    kind: StampKind = "traced"
    cells: int = TRACED_CELLS
    mac: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the token as a JSON object, for a JSON body; `str` gives its text."""
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
        """The cells of its stamps; 0 for plain ones."""
        return 0 if self.kind == "plain" else self.cells

    @property
    def canonical(self) -> bytes:
        """The canonical form, which the MAC is of: no tag holds a NUL."""
        head = ("xorack-token", str(_VERSION), f"{self.unit:016x}", str(self.stamp_cells))
        return "\0".join((*head, *self.tags)).encode()

    @classmethod
    def from_json(cls, token: AnyToken) -> Token:
        """Read a token: a `Token`, its JSON object, or its JSON text. The MAC is not verified.

        Raises:
            ArgumentError: The token is invalid, or another version made it.
        """
        if isinstance(token, Token):
            return token
        if isinstance(token, (str, bytes)):
            try:
                token = read_json(token if isinstance(token, str) else token.decode())
            except ValueError:
                expected = "the JSON text of a token, as str(token) gives it"
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
    read: Callable[[AnyToken], Token] = Token.from_json,
) -> dict[str, Any]:
    """Return the fields of the create of a chain that is the unit of a token, or of several."""
    if parent is None:
        return {"fail_parent": True} if fail_parent else {}
    tokens = map(read, parent if isinstance(parent, (list, tuple)) else [parent])
    parents = [Parent(token.unit, token.tags, token.stamp_cells) for token in tokens]
    return {"parents": parents, "fail_parent": fail_parent}


def step_group_id(tokens: Sequence[Token]) -> int:
    """Return the id of a step's units: of one its own, else one of the set and its chains."""
    if len(tokens) == 1:
        return tokens[0].unit
    units = sorted(f"{token.unit:016x} {tag}" for token in tokens for tag in token.tags)
    return unit_id("\0".join(units))


def _checks(token: Mapping[str, Any]) -> Iterator[tuple[str, object, str]]:
    """Yield the fields of a token: the name, whether it is valid, and what is expected."""
    version, kind, unit, tags, mac = map(token.get, ("v", "kind", "unit", "tags", "mac"))
    is_ours = version == _VERSION and not isinstance(version, bool)
    yield "v", is_ours, f"{_VERSION}: another version made this token"
    yield "kind", kind in get_args(StampKind), "traced or plain"
    is_unit = isinstance(unit, str) and re.fullmatch("(?!0{16})[0-9a-fA-F]{16}", unit)
    yield "unit", is_unit, "16 hex digits, not all zero"
    is_list = isinstance(tags, list) and 1 <= len(tags) <= MAX_TAGS
    yield "tags", is_list, f"a list of 1 to {MAX_TAGS} tags"
    yield "cells", kind == "traced" or "cells" not in token, "absent: plain stamps have none"
    is_mac = mac is None or (isinstance(mac, str) and re.fullmatch("[0-9a-f]{32}", mac))
    yield "mac", is_mac, "32 lower-case hex digits"


def _whole(number: Any) -> Any:
    """Return a float without a fraction as an integer: JSON does not distinguish 16.0 from 16."""
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
    """The keys of tokens. Without any, tokens have no MAC, and none is verified."""

    def __init__(self, keys: TokenKey | None = None) -> None:
        """Use keys; by default those of the environment.

        Raises:
            ArgumentError: A key is too short, or there are more than two. The text holds no key.
        """
        field, given = "token_key", keys
        if keys is None and KEY_VARIABLE in os.environ:
            field, given = KEY_VARIABLE, [k.strip() for k in os.environ[KEY_VARIABLE].split(",")]
        some: list[Any] = [*given] if isinstance(given, (list, tuple)) else [given]
        # A variable may hold any bytes.
        some = [k.encode("utf-8", "surrogateescape") if isinstance(k, str) else k for k in some]
        self._keys = [] if given is None else some
        is_strong = (isinstance(key, bytes) and len(key) >= _MIN_KEY_BYTES for key in self._keys)
        if given is not None and not (1 <= len(some) <= _MAX_KEYS and all(is_strong)):
            # A key that is lost on the way must not turn verification off.
            expected = f"one key of at least {_MIN_KEY_BYTES} bytes, or {_MAX_KEYS}"
            raise ArgumentError(field, problem=f"expected {expected}: the first signs tokens")

    def sign(self, token: Token) -> Token:
        """Return the token with its MAC; without one if there is no key."""
        return replace(token, mac=_mac(self._keys[0], token) if self._keys else None)

    def verified(self, token: AnyToken) -> Token:
        """Read a token, and verify its MAC if there is a key.

        Raises:
            ArgumentError: The token is invalid, or none of the keys made its MAC.
        """
        read = Token.from_json(token)
        macs = [_mac(key, read).encode() for key in self._keys]
        given = (read.mac or "").encode()
        # No early end: the time must not tell which key is nearer.
        if macs and not sum(hmac.compare_digest(mac, given) for mac in macs):
            problem = "missing" if read.mac is None else "of another key, or the token was changed"
            raise ArgumentError(
                "token mac", problem=f"{problem}; all senders need one {KEY_VARIABLE}"
            )
        return read


def _mac(key: bytes, token: Token) -> str:
    return hmac.digest(key, token.canonical, "sha256")[:_MAC_BYTES].hex()
