"""Finds the names of outstanding units: it compares ids in events with ids of candidates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from xorack.core.errors import ArgumentError
from xorack.core.hashing import MASK, child_id, unit_id

Part: TypeAlias = str | bytes | int
Candidate: TypeAlias = Part | tuple[Part, ...] | list[Any]
"""A child's name, its parts as a tuple, or a path as a list of the names on each level below the
root."""


def names_of(
    outstanding: Mapping[str, Any] | Iterable[str | int],
    candidates: Iterable[Candidate],
    *root: Part,
) -> dict[str, Candidate | None]:
    """Return the names of outstanding units.

    An id is a hash, so only the names among the candidates can be found.

    Args:
        outstanding: A chain's event, its detail, or ids as 16 hex digits or numbers.
        candidates: Names as `Step.child` takes them: ``"oil"`` for ``child("oil")``, ``("line",
            3)`` for ``child("line", 3)``, and ``["page 2", ("line", 3)]`` for that child of
            ``child("page 2")``, which also names the page. The candidates are consumed until each
            id has a name.
        *root: The parts of the root unit. By default, the event's tag.

    Returns:
        A dictionary from each id, as 16 hex digits, to its candidate, or None if no candidate
        matches. The root has its own name.

    Raises:
        ArgumentError: An id is invalid, or ids are passed without the root's parts.

    Examples:
        >>> detail = {"tag": "order/18", "outstanding": ["0feb652bd3de76c3"]}
        >>> names_of(detail, ["lamp", "oil", "wick"])
        {'0feb652bd3de76c3': 'oil'}
    """
    ids: Any = outstanding
    if isinstance(outstanding, Mapping):
        # People often pass an entire event instead of its detail.
        detail = outstanding.get("detail") if "detail-type" in outstanding else None
        outstanding = detail if isinstance(detail, Mapping) else outstanding
        ids = outstanding.get("outstanding", ())
        root = root or (outstanding.get("tag", ""),)
    if not root:
        raise ArgumentError("root", root, "the parts of the root unit, such as the chain's tag")
    if not isinstance(ids, Iterable):
        raise ArgumentError("outstanding", ids, "the detail of an event, or ids")
    if isinstance(candidates, (str, bytes)) or not isinstance(candidates, Iterable):
        raise ArgumentError("candidates", candidates, "several names, such as a list")
    names: dict[int, Candidate | None] = dict.fromkeys(map(_number, ids))
    missing = set(names)

    def take_name(unit: int, name: Candidate) -> None:
        if unit in missing:
            missing.discard(unit)
            names[unit] = name

    start = unit_id(*root)
    take_name(start, root[0] if len(root) == 1 else root)
    step = lru_cache(maxsize=1024)(_child)  # many paths have the same beginning
    for candidate in candidates if missing else ():
        path = candidate if isinstance(candidate, list) else [candidate]
        unit = start
        for level, name in enumerate(path, 1):
            last = level == len(path)
            unit = _child(unit, name) if last else step(unit, name)
            take_name(unit, candidate if last else path[:level])
        if not missing:
            break
    return {f"{unit:016x}": name for unit, name in names.items()}


def _child(parent: int, name: Any) -> int:
    return child_id(parent, *(name if isinstance(name, tuple) else (name,)))


def _number(unit: str | int) -> int:
    try:
        number = int(unit, 16) if isinstance(unit, str) else unit & MASK
    except (TypeError, ValueError):
        number = 0
    if not 0 < number <= MASK:
        raise ArgumentError("outstanding", unit, "a unit's id: 16 hex digits, or its number")
    return number
