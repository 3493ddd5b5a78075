"""What `xorack.spark.diff` must find, in plain Python: lists of rows, no hashes, no Spark.

A row is a dictionary of values as Spark collects them. `complaints` judges what was found by the
definition alone: which of several rows of one key are paired is left to the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Row

Values = dict[str, Any]


def plain(value: Any) -> Any:
    """Make the form of a value that equals the forms of equal values, by Python's ``==``.

    Python's numbers are equal whatever their type or scale, and -0.0 is 0.0.
    """
    if isinstance(value, float) and value != value:
        return "NaN"
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return [plain(element) for element in value]
    if isinstance(value, Row):
        return {name: plain(field) for name, field in value.asDict().items()}
    if isinstance(value, dict):
        return {plain(key): plain(held) for key, held in value.items()}
    return value


def plain_row(row: Row | Values | None) -> Values:
    """Make the forms of all values of a row, which may be a struct's or lack all columns."""
    held = row.asDict() if isinstance(row, Row) else row or {}
    return {name: plain(value) for name, value in held.items()}


@dataclass(frozen=True)
class Columns:
    """The columns of a comparison; both sides have the same names.

    Attributes:
        key: Those of the key.
        values: The others that are compared.
        tolerance: The largest difference of equal numbers, by column. Only for tables whose keys
            are unique: of several rows, it is not said which are paired.
    """

    key: Sequence[str]
    values: Sequence[str]
    tolerance: Mapping[str, float] = field(default_factory=dict)

    def key_of(self, row: Values) -> Values:
        return {name: plain(row[name]) for name in self.key}

    def compared(self, row: Values) -> Values:
        return {name: plain(row[name]) for name in (*self.key, *self.values)}

    def differing(self, left: Values, right: Values) -> list[str]:
        """Return the names of the columns in which two forms of rows differ."""
        return [name for name in left if not self._equal(name, left[name], right[name])]

    def _equal(self, name: str, left: Any, right: Any) -> bool:
        if left == right or name not in self.tolerance:
            return bool(left == right)
        if None in (left, right) or "NaN" in (left, right):
            return False
        return bool(abs(left - right) <= type(left)(str(self.tolerance[name])))

    def without(self, rows: Sequence[Values], others: Sequence[Values]) -> list[Values]:
        """Return the rows that are left when each of the others takes away one equal row."""
        rest = list(rows)
        for other in others:
            equal = (row for row in rest if not self.differing(row, other))
            if (taken := next(equal, None)) is not None:
                rest.remove(taken)
        return rest


@dataclass
class Found:
    """What the engine found.

    Attributes:
        missing: Rows of the left side.
        extra: Rows of the right side.
        changed: The key; ``?columns``; ``?left`` and ``?right``: the compared values.
        duplicates: The key; ``?left_count`` and ``?right_count``.
        repair: All rows of the left side whose keys differ.
    """

    missing: list[Values] = field(default_factory=list)
    extra: list[Values] = field(default_factory=list)
    changed: list[Values] = field(default_factory=list)
    duplicates: list[Values] = field(default_factory=list)
    repair: list[Values] = field(default_factory=list)


@dataclass
class Expected:
    """The differences of one key.

    Attributes:
        key: Its values.
        lefts: The left side's rows that the right side lacks: missing or changed.
        rights: The right side's that the left side lacks: extra or changed.
        counts: The numbers of all rows of the key on both sides.
    """

    key: Values
    lefts: list[Values]
    rights: list[Values]
    counts: tuple[int, int]

    @property
    def changed(self) -> int:
        return min(len(self.lefts), len(self.rights))


def expected(left: Iterable[Values], right: Iterable[Values], columns: Columns) -> list[Expected]:
    """Return the differences of each key that has some."""
    sides = [[columns.compared(row) for row in rows] for rows in (left, right)]
    keys: list[Values] = []
    for row in (*sides[0], *sides[1]):
        if columns.key_of(row) not in keys:
            keys.append(columns.key_of(row))
    differences = []
    for key in keys:
        lefts, rights = ([row for row in rows if columns.key_of(row) == key] for rows in sides)
        alone = columns.without(lefts, rights), columns.without(rights, lefts)
        if any(alone):
            differences.append(Expected(key, *alone, (len(lefts), len(rights))))
    return differences


def complaints(
    left: Sequence[Values], right: Sequence[Values], columns: Columns, found: Found
) -> list[str]:
    """Compare what was found with what is expected; return a line for each fault."""
    faults = []

    def compare(what: str, these: list[Any], those: list[Any]) -> None:
        """Compare as multisets."""
        rest = list(those)
        for one in these:
            if one in rest:
                rest.remove(one)
            else:
                faults.append(f"{what}: wrongly found: {one}")
        faults.extend(f"{what}: not found: {one}" for one in rest)

    # The rows come with all their columns, those that are not compared included.
    for what, rows, side in (("missing", found.missing, left), ("extra", found.extra, right)):
        known = [plain_row(row) for row in side]
        faults += [f"{what}: not a row of its side: {r}" for r in rows if plain_row(r) not in known]
    keys = [columns.key_of(row) for row in found.changed]
    pairs = [
        (key | plain_row(row["?left"]), key | plain_row(row["?right"]))
        for key, row in zip(keys, found.changed, strict=True)
    ]
    missing, extra = ([*map(columns.compared, rows)] for rows in (found.missing, found.extra))
    of_keys = expected(left, right, columns)
    compare("left", missing + [pair[0] for pair in pairs], [r for d in of_keys for r in d.lefts])
    compare("right", extra + [pair[1] for pair in pairs], [r for d in of_keys for r in d.rights])
    compare("changed", keys, [d.key for d in of_keys for _ in range(d.changed)])
    for row, pair in zip(found.changed, pairs, strict=True):
        compare(f"columns of {pair}", row["?columns"], columns.differing(*pair))
    compare(
        "duplicates",
        [(columns.key_of(d), d["?left_count"], d["?right_count"]) for d in found.duplicates],
        [(d.key, *d.counts) for d in of_keys if max(d.counts) > 1],
    )
    differ = [d.key for d in of_keys]
    rows = [
        columns.compared(row) for row in left if columns.key_of(columns.compared(row)) in differ
    ]
    compare("repair", [*map(columns.compared, found.repair)], rows)
    return faults
