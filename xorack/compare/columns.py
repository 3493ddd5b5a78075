"""The columns that are compared: found on both sides by their names, and their tolerances."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple, Protocol

from xorack.core.errors import ArgumentError, ColumnsError

__all__ = [
    "SECONDS",
    "Limit",
    "Matched",
    "Names",
    "Side",
    "Tolerance",
    "balanced",
    "limits",
    "match",
]

Names = str | Sequence[str]
Tolerance = float | str | Mapping[str, "float | str"] | None
SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400}
_KINDS = {"number": "number", "integer": "number", "time": "time"}
"""Kinds of columns that have a tolerance, and the kind of limit that they need."""
_LIMIT = re.compile(rf"((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(%|{'|'.join(SECONDS)})?")


class Field(Protocol):
    """A column of an engine."""

    @property
    def name(self) -> str:
        """Its name."""


class Limit(NamedTuple):
    """The largest difference of equal values.

    Attributes:
        kind: ``absolute``; ``relative``, a share of the greater magnitude; or ``seconds``.
        amount: The number.
    """

    kind: str
    amount: float

    @classmethod
    def parse(cls, given: object) -> Limit:
        """Parse a number, a share such as ``0.1%``, or a time such as ``2s``."""
        found = _LIMIT.fullmatch(str(given).strip())
        if isinstance(given, bool) or not isinstance(given, (int, float, str)) or not found:
            problem = "a number of at least 0, a share such as 0.1% or a time such as 2s"
            raise ArgumentError("tolerance", given, problem)
        number, unit = float(found[1]), found[2]
        if not math.isfinite(number):
            raise ArgumentError("tolerance", given, "a finite number")
        if unit == "%":
            return cls("relative", number / 100 * (1 + 1e-15))  # a product is rounded
        if not unit:
            return cls("absolute", number)
        # In binary, 19 * 1e-6 is less than 19e-6.
        return cls("seconds", float(Decimal(repr(number)) * Decimal(repr(SECONDS[unit]))))


class Side:
    """The columns of a side, found as its engine finds names.

    Attributes:
        label: What errors call it.
        fields: Its columns.
    """

    def __init__(
        self, label: str, fields: Sequence[Any], fold: Callable[[str], str] = str.lower
    ) -> None:
        """Check that no two names are the same, once folded."""
        self.label, self.fold = label, fold
        self.fields = [copy(field) for field in fields]  # known by their identity, also of twins
        names = [fold(field.name) for field in fields]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ColumnsError(f"{label} has {names.count(twice[0])} columns {twice[0]}")

    def get(self, name: str) -> Any:
        """Return the column of a name, or None."""
        wanted = self.fold(name)
        return next((one for one in self.fields if self.fold(one.name) == wanted), None)

    def require(self, name: str) -> Any:
        """Return the column of a name.

        Raises:
            ColumnsError: There is none.
        """
        if (field := self.get(name)) is None:
            names = [one.name for one in self.fields]
            columns = ", ".join(one if one == one.strip() else repr(one) for one in names)
            raise ColumnsError(f"column {name} is not in {self.label}, which has {columns}")
        return field


@dataclass(frozen=True)
class Matched:
    """The columns of both sides that belong together.

    Attributes:
        keys: Those of the key, as pairs of a left and a right column.
        values: The others that are compared.
        left_only: The names of columns that the right side lacks.
        right_only: The names of columns that the left side lacks.
    """

    keys: list[tuple[Any, Any]]
    values: list[tuple[Any, Any]]
    left_only: tuple[str, ...] = ()
    right_only: tuple[str, ...] = ()


def match(
    sides: tuple[Side, Side], key: Names | None, values: Names | None, ignore: Names = ()
) -> Matched:
    """Find and check the columns to compare; without a key, all of them are the key."""
    keys = _found(sides, "key", key) if key is not None else []
    if not keys and key is not None:
        raise ArgumentError("key", problem="is empty, expected the names of one or more columns")
    ignored = [field for name in _names("ignore", ignore) for field in _ignored(sides, name)]
    taken = {id(field) for pair in keys for field in pair}
    if clash := [field.name for field in ignored if id(field) in taken]:
        raise ArgumentError("ignore", problem=f"{clash[0]} is a column of the key")
    taken |= {*map(id, ignored)}
    if values is None:
        matched = _common(sides, keys, taken)
    else:
        matched = Matched(keys, _found(sides, "values", values))
        if clash := [pair[0].name for pair in matched.values if taken & {*map(id, pair)}]:
            raise ArgumentError("values", problem=f"{clash[0]} is a column of the key, or left out")
    if key is not None:
        return matched
    if not matched.values:
        raise ColumnsError("no column is on both sides: there is nothing to compare")
    return Matched(matched.values, [], matched.left_only, matched.right_only)


def limits(
    side: Side, pairs: Sequence[tuple[Any, Any]], tolerance: Tolerance, kind_of: Callable[..., str]
) -> dict[str, Limit]:
    """Return the tolerance of columns by the left name.

    Args:
        side: The left side.
        pairs: The compared values.
        tolerance: One for all columns that it suits, or one a column or kind. That of a column has
            precedence.
        kind_of: Returns ``number``, ``integer``, ``time`` or the name of another type for a pair.
            Integers have a limit only by name or kind.
    """
    if tolerance is None:
        return {}
    if not isinstance(tolerance, Mapping):
        limit = Limit.parse(tolerance)
        return {pair[0].name: limit for pair in pairs if kind_of(pair) == _suits(limit)}
    by_kind, by_name = {}, {}
    for name, given in tolerance.items():
        limit = Limit.parse(given)
        if name in _KINDS and side.get(name) is None:
            kind, what, by_kind[name] = name, f"{name} is a kind of columns", limit
        else:
            field = side.require(name)
            pair = next((pair for pair in pairs if pair[0] is field), None)
            if pair is None:
                problem = f"column {name} is not among the compared values"
                raise ArgumentError("tolerance", problem=problem)
            kind, by_name[field.name] = kind_of(pair), limit
            what = f"column {name} is of the type {kind}"
        if _KINDS.get(kind) != _suits(limit):
            needs = {"number": "float, double, decimal", "time": "dates and times; no unit is for"}
            raise ColumnsError(f"{what}: a tolerance of {given} is for {needs[_suits(limit)]}")
    of_kind = {pair[0].name: by_kind[of] for pair in pairs if (of := kind_of(pair)) in by_kind}
    return {**of_kind, **by_name}


def _suits(limit: Limit) -> str:
    return "time" if limit.kind == "seconds" else "number"


def _names(option: str, value: Names) -> list[str]:
    names = [value] if isinstance(value, str) else list(value)
    if not all(isinstance(name, str) and name for name in names):
        raise ArgumentError(option, value, "names of columns")
    return names


def _found(sides: tuple[Side, Side], option: str, value: Names) -> list[tuple[Any, Any]]:
    """Find columns; ``order=id`` is order on the left and id on the right."""
    pairs: list[tuple[Any, Any]] = []
    for name in _names(option, value):
        left, has_other, right = name.partition("=")
        is_one = not has_other or sides[0].get(name) is not None
        both = (name, name) if is_one else (left, right)
        pair = sides[0].require(both[0]), sides[1].require(both[1])
        if any(pair[0] is other for other, _ in pairs):
            raise ArgumentError(option, problem=f"{value!r} names column {pair[0].name} twice")
        pairs.append(pair)
    return pairs


def _ignored(sides: tuple[Side, Side], name: str) -> list[Any]:
    found = [field for side in sides if (field := side.get(name)) is not None]
    if not found:
        raise ColumnsError(f"column {name}, to be left out, is in neither {_kind(sides[0])}")
    return found


def _kind(side: Side) -> str:
    return "frame" if side.label.endswith("frame") else "input"


def _common(sides: tuple[Side, Side], keys: list[tuple[Any, Any]], taken: set[int]) -> Matched:
    """Find the columns of both sides, and the names of those of one side."""
    common: list[tuple[Any, Any]] = []
    only: list[tuple[str, ...]] = []
    for side, other in (sides, sides[::-1]):
        free = [field for field in side.fields if id(field) not in taken]
        pairs = [(field, other.get(field.name)) for field in free]
        pairs = [(field, None if id(match) in taken else match) for field, match in pairs]
        only.append(tuple(field.name for field, match in pairs if match is None))
        common = common or [pair for pair in pairs if pair[1] is not None]
    return Matched(keys, common, *only)


def balanced(combine: Callable[[Any, Any], Any], parts: Sequence[Any], empty: Any) -> Any:
    """Combine parts as a balanced tree: a deep one overflows the stack of whoever reads it."""
    while len(parts) > 1:
        pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
        parts = [combine(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return parts[0] if parts else empty
