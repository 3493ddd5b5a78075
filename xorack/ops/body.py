"""Shows bodies of messages to people: JSON with long values shortened, or text. Pure."""

from __future__ import annotations

import json
from typing import Any

from xorack.core.errors import names_token, without_tokens
from xorack.core.text import printable

_STAMP_CHARACTERS = 24
"""Stamps are cut to this length, because people do not read them."""
_CHARACTERS = 1024
"""Tags up to this length are not cut."""
_VALUE_CHARACTERS = 200
_LINES = 60
_TEXT = 2000
_MAX_DIGITS = 4000
"""Python rejects integers of more than 4,300 digits, so longer integers become text."""


def read_json(text: str) -> Any:
    """Decode JSON; return None if it is invalid or nested too deeply."""
    try:
        return json.loads(text, parse_int=_integer)
    except (ValueError, RecursionError):
        return None


def body_lines(text: str, most: int = _LINES) -> list[str]:
    """Format a body as printable lines: an object as indented JSON, any other body as it is.

    Stamps, tokens and long texts are shortened. The last of `most` lines says how much is left out.
    """
    content = read_json(text)
    if not isinstance(content, dict):
        text = without_tokens(text)
        left = len(text) - _TEXT
        more = [f"… and {left:,} more characters"] if left > 0 else []
        return [printable(line) for line in text[:_TEXT].split("\n", most)[:most]] + more
    lines = [printable(line) for line in _dump(content).split("\n")]
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"… and {len(lines) - most + 1:,} more lines"]


def value_line(field: str, value: Any) -> str:
    """Format a field and its value as one printable line, shortened."""
    return printable(f"{field}: {_cut(_dump(value, field), _VALUE_CHARACTERS)}")


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= _MAX_DIGITS else digits


def _dump(value: Any, name: str = "") -> str:
    """Return a message as indented JSON. With a name, return that field's value on one line."""
    try:
        short = _short(value, _most(name))
        return json.dumps(short, ensure_ascii=False, indent=None if name else 2)
    except RecursionError:
        return "nested too deeply"


def _most(name: str) -> int:
    if names_token(name):
        return 0
    return _STAMP_CHARACTERS if name.lower() == "stamp" else _CHARACTERS


def _short(value: Any, most: int) -> Any:
    if isinstance(value, dict):
        return {_cut(key): _short(item, min(most, _most(key))) for key, item in value.items()}
    if isinstance(value, list):
        return [_short(item, most) for item in value]
    return _cut(without_tokens(value), most) if isinstance(value, str) else value


def _cut(text: str, most: int = _CHARACTERS) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"
