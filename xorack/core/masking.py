"""Masking: values that readers see as hashes. Equal values have equal hashes.

A hash hides a value from readers who cannot list the candidates, as the id of a unit does.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from xorack.core.errors import ArgumentError
from xorack.core.request import FIELDS

_HASH = re.compile("#[0-9a-f]{12}")


def mask_of(names: Any, option: str = "mask") -> frozenset[str]:
    """Return the names of fields whose values are masked, in lower case.

    They may be one text, separated by commas, as a setting has them.

    Raises:
        ArgumentError: They are no names.
    """
    given = names.split(",") if isinstance(names, str) and names else names or ()
    if not isinstance(given, Iterable) or not all(isinstance(n, str) and n.strip() for n in given):
        raise ArgumentError(option, names, "names of fields, such as ['customer', 'email']")
    return frozenset(name.strip().lower() for name in given)


def masked(value: object) -> Any:
    """Return a hash in place of a value, such as ``#5e884898da28``; None and a hash themselves."""
    if value is None or (isinstance(value, str) and _HASH.fullmatch(value)):
        return value
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return "#" + hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:12]


def masked_fields(value: Any, mask: Collection[str]) -> Any:
    """Return JSON in which the fields with these names are masked, at any depth."""
    if isinstance(value, Mapping) and mask:
        return {
            name: masked(field) if str(name).lower() in mask else masked_fields(field, mask)
            for name, field in value.items()
        }
    if isinstance(value, (list, tuple)) and mask:
        return [masked_fields(item, mask) for item in value]
    return value


def masked_path(path: str, mask: Collection[str]) -> str:
    """Return a path in which the values of partition columns are masked."""
    parts = ((part, *part.partition("=")) for part in path.split("/"))
    return "/".join(
        f"{name}={masked(value)}" if equals and name.lower() in mask else part
        for part, name, equals, value in parts
    )


def masked_letter(body: str, reason: str, mask: Collection[str]) -> tuple[str, str]:
    """Return a rejected message and its reason without masked values; no JSON stays as it is.

    Also fields that no request has are masked: a detail may have a misspelt name, or stand beside.
    """
    if not mask:
        return body, reason
    names = "|".join(map(re.escape, (*mask, "detail")))
    reason = re.sub(rf"(?<!\w)({names}): .*?(?=, expected)", r"\1: …", reason, flags=re.I | re.S)
    try:
        content = json.loads(body)
        shown = masked_fields(content, mask)
        if isinstance(content, dict) and isinstance(content.get("requests"), list):
            shown["requests"] = [_masked_request(request, mask) for request in content["requests"]]
        # Written anew even if nothing is masked: of a field that stands twice, one was read.
        return json.dumps(shown), reason
    except (ValueError, RecursionError):
        return body, reason


def _masked_request(request: Any, mask: Collection[str]) -> Any:
    if not isinstance(request, dict):
        return masked_fields(request, mask)
    shown = {name: value for name, value in request.items() if name in FIELDS - {"detail"}}
    hidden = masked_fields({n: v for n, v in request.items() if n not in shown}, mask)
    if not isinstance(hidden.get("detail", {}), (dict, list)):
        hidden["detail"] = masked(hidden["detail"])
    return {**shown, **hidden}
