"""Masking: readers see only hashes of confidential values. Equal values have equal hashes.

A reader who can guess the candidates of a value can also find it by its hash, as with unit ids.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from xorack.core.errors import ArgumentError
from xorack.core.request import is_valid_field
from xorack.core.strict_json import read_json

_HASH = re.compile("#[0-9a-f]{12}")


def mask_of(names: Any, option: str = "mask") -> frozenset[str]:
    """Return the names of fields whose values are masked, in lower case.

    The names may be one text, separated by commas, as in a setting.

    Raises:
        ArgumentError: The value has another type, or a name is empty.
    """
    listed = names.split(",") if isinstance(names, str) and names else names or ()
    if not isinstance(listed, Iterable) or not all(
        isinstance(n, str) and n.strip() for n in listed
    ):
        raise ArgumentError(option, names, "names of fields, such as ['customer', 'email']")
    return frozenset(name.strip().lower() for name in listed)


def masked(value: object) -> Any:
    """Return the hash of a value, such as ``#5e884898da28``. None and hashes stay as they are."""
    if value is None or (isinstance(value, str) and _HASH.fullmatch(value)):
        return value
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return "#" + hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:12]


def masked_fields(value: Any, mask: Collection[str]) -> Any:
    """Return a JSON value in which the fields of these names are masked at any depth."""
    if isinstance(value, Mapping) and mask:
        return {
            name: masked(field) if str(name).lower() in mask else masked_fields(field, mask)
            for name, field in value.items()
        }
    if isinstance(value, (list, tuple)) and mask:
        return [masked_fields(item, mask) for item in value]
    return _masked_text(value, mask) if isinstance(value, str) and mask else value


def _masked_text(text: str, mask: Collection[str]) -> str:
    """Mask the fields of a text that is itself JSON, as texts in logs often are."""
    stripped = text.lstrip("\ufeff \t\r\n")
    if not stripped.startswith(("{", "[", '"')):
        return text
    try:
        content = read_json(stripped)
    except ValueError:
        return text
    masked_content = masked_fields(content, mask)
    return text if masked_content == content else json.dumps(masked_content)


def masked_path(path: str, mask: Collection[str]) -> str:
    """Return a path in which the values of masked partition columns are hashes."""
    parts = ((part, *part.partition("=")) for part in path.split("/"))
    return "/".join(
        f"{name}={masked(unquote(value))}" if equals and unquote(name).lower() in mask else part
        for part, name, equals, value in parts
    )


_PARTITION = re.compile(r"""([^/\s'"=]+)=([^/'"\[\]{:\n]+)""")
"""A folder of a partition in a text. The characters at which a value ends are encoded in a path."""


def masked_paths(text: str, mask: Collection[str]) -> str:
    """Return a text in which the values of masked partition columns are hashes, in all paths."""

    def masked_partition(partition: re.Match[str]) -> str:
        name, value = partition.groups()
        return f"{name}={masked(unquote(value))}" if unquote(name).lower() in mask else partition[0]

    return _PARTITION.sub(masked_partition, text) if mask else text


def masked_dead_letter(body: str, mask: Collection[str]) -> str:
    """Return the body of a rejected message without values that may have to be masked.

    Only valid fields of the protocol keep their values. A sender whose message is rejected made a
    mistake, so a confidential value may be anywhere. It may be in a misspelt field, beside the
    request, or in a text that is not JSON.
    """
    if not mask:
        return body
    try:
        content = read_json(body)
    except ValueError:
        return f"{masked(body)} ({len(body):,} characters that are no JSON)"
    if not isinstance(content, dict):
        return json.dumps(masked(content))
    fields = {name: masked(value) for name, value in content.items()}
    if type(version := content.get("version")) in (int, float):
        fields["version"] = version
    if isinstance(requests := content.get("requests"), list):
        fields["requests"] = [_masked_request(request, mask) for request in requests]
    return json.dumps(fields)


def _masked_request(request: Any, mask: Collection[str]) -> Any:
    if not isinstance(request, dict):
        return masked(request)
    return {name: _masked_value(name, value, mask) for name, value in request.items()}


def _masked_value(name: str, value: Any, mask: Collection[str]) -> Any:
    """Return the value of a valid field with its masked parts as hashes; else hash all of it."""
    if name == "detail" and isinstance(value, dict):
        return masked_fields(value, mask)
    if not is_valid_field(name, value):
        return masked(value)
    return masked_fields(value, mask)
