"""The columns that are compared: found on both sides, checked, with the forms of their values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from xorack.core.errors import ArgumentError, ColumnsError
from xorack.spark._diff.canonical import canonical_forms
from xorack.spark.units import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from xorack.spark._diff.canonical import Forms

    Names = str | Sequence[str]
    Tolerance = float | Mapping[str, float] | None

__all__ = ["Comparison", "Pair", "compare_columns"]

_SIDES = ("left", "right")


@dataclass(frozen=True)
class Pair:
    """A column of the left side and the column of the right side that it is compared with.

    Attributes:
        left: The field of the left side.
        right: The field of the right side.
        forms: What makes the canonical forms of the left and of the right side.
        tolerance: The largest absolute difference of equal numbers; None compares exactly.
    """

    left: T.StructField
    right: T.StructField
    forms: Forms
    tolerance: float | None = None

    @property
    def name(self) -> str:
        """The name on the left side."""
        return self.left.name

    @property
    def nullable(self) -> bool:
        """True if a side may have nulls."""
        return self.left.nullable or self.right.nullable

    def column(self, side: int, row: str | None = None) -> Column:
        """Return the column of a side: of its frame, or of a struct with the rows."""
        name = (self.left, self.right)[side].name
        return F.col(quoted(name)) if row is None else F.col(row).getField(name)

    def form(self, side: int, row: str | None = None) -> Column:
        """Return the canonical form of a side's column."""
        return self.forms[side](self.column(side, row))

    def differs(self, left: str, right: str) -> Column:
        """Return true where the values in two structs of rows differ."""
        is_equal = self.form(0, left).eqNullSafe(self.form(1, right))
        if self.tolerance is not None:
            values = [self.column(0, left), self.column(1, right)]
            if isinstance(self.left.dataType, (T.FloatType, T.DoubleType)):
                values = [value.cast("double") for value in values]
            distance = F.abs(F.try_subtract(*values)).cast("double")
            is_equal = is_equal | F.coalesce(distance <= self.tolerance, F.lit(False))
        return ~is_equal


@dataclass(frozen=True)
class Comparison:
    """Two frames and the columns that are compared.

    Attributes:
        left: The left frame.
        right: The right frame.
        keys: The columns of the key.
        values: The columns that are compared.
        left_only: The names of columns that the right side lacks.
        right_only: The names of columns that the left side lacks.
    """

    left: DataFrame
    right: DataFrame
    keys: tuple[Pair, ...]
    values: tuple[Pair, ...]
    left_only: tuple[str, ...]
    right_only: tuple[str, ...]

    @property
    def frames(self) -> tuple[DataFrame, DataFrame]:
        """Both sides."""
        return self.left, self.right


def compare_columns(
    left: DataFrame,
    right: DataFrame,
    key: Names,
    values: Names | None = None,
    ignore: Names = (),
    tolerance: Tolerance = None,
) -> Comparison:
    """Find and check the columns to compare; see `xorack.spark.diff`."""
    frames = (left, right)
    for side, frame in zip(_SIDES, frames, strict=True):
        if not hasattr(frame, "schema"):
            raise ArgumentError(side, frame, "a frame")
    fields = [_Fields(side, frame) for side, frame in zip(_SIDES, frames, strict=True)]
    keys = _found(fields, _names("key", key))
    if not keys:
        raise ArgumentError("key", problem="is empty, expected the names of one or more columns")
    ignored = [found for name in _names("ignore", ignore) for found in _ignored(fields, name)]
    of_key = [field for pair in keys for field in pair]
    if clash := [field.name for field in ignored if field in of_key]:
        raise ArgumentError("ignore", problem=f"{clash[0]} is a column of the key")
    _check_nested(keys)
    taken = [*of_key, *ignored]
    only: list[tuple[str, ...]] = [(), ()]
    if values is None:
        compared, only = _common(fields, taken)
    else:
        compared = _found(fields, _names("values", values))
        if clash := [pair[0].name for pair in compared if pair[0] in taken]:
            raise ArgumentError("values", problem=f"{clash[0]} is a column of the key, or left out")
    pairs = [
        tuple(
            Pair(*pair, canonical_forms(pair[0].name, *(f.dataType for f in pair))) for pair in of
        )
        for of in (keys, compared)
    ]
    return Comparison(left, right, pairs[0], _tolerant(fields, pairs[1], tolerance), *only)


_NESTED = (T.ArrayType, T.StructType, T.MapType)
_Found = list[tuple[T.StructField, T.StructField]]


def _check_nested(keys: _Found) -> None:
    """Check that nested columns of the key have one type: no cast goes by the fields' names."""
    for pair in keys:
        shown = [field.dataType.simpleString() for field in pair]
        if isinstance(pair[0].dataType, _NESTED) and shown[0] != shown[1]:
            raise ColumnsError(
                f"column {pair[0].name} of the key is {shown[0]} on the left and {shown[1]} on the "
                "right: cast one side"
            )


class _Fields:
    """The fields of a side, found as the session finds columns."""

    def __init__(self, side: str, frame: DataFrame) -> None:
        self.side, self.frame, self.fields = side, frame, frame.schema.fields
        case_sensitive = frame.sparkSession.conf.get("spark.sql.caseSensitive")
        self.case_sensitive = str(case_sensitive).lower() == "true"
        names = [self.fold(field.name) for field in self.fields]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ColumnsError(f"the {side} frame has {names.count(twice[0])} columns {twice[0]}")

    def fold(self, name: str) -> str:
        return name if self.case_sensitive else name.lower()

    def get(self, name: str) -> T.StructField | None:
        wanted = self.fold(name)
        return next((one for one in self.fields if self.fold(one.name) == wanted), None)

    def require(self, name: str) -> T.StructField:
        field = self.get(name)
        if field is None:
            names = [one.name for one in self.fields]
            columns = ", ".join(one if one == one.strip() else repr(one) for one in names)
            raise ColumnsError(
                f"column {name} is not in the {self.side} frame, which has {columns}"
            )
        return field


def _names(option: str, value: Names) -> list[str]:
    names = [value] if isinstance(value, str) else list(value)
    if not all(isinstance(name, str) and name for name in names):
        raise ArgumentError(option, value, "names of columns")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ArgumentError(option, problem=f"{value!r} names column {twice[0]} twice")
    return names


def _found(fields: list[_Fields], names: Iterable[str]) -> _Found:
    return [(fields[0].require(name), fields[1].require(name)) for name in names]


def _ignored(fields: list[_Fields], name: str) -> list[T.StructField]:
    found = [field for side in fields if (field := side.get(name)) is not None]
    if not found:
        raise ColumnsError(f"column {name}, to be left out, is in neither frame")
    return found


def _common(
    fields: list[_Fields], taken: list[T.StructField]
) -> tuple[_Found, list[tuple[str, ...]]]:
    """Find the columns of both sides, and the names of those of one side."""
    common: _Found = []
    only: list[tuple[str, ...]] = []
    for side, other in ((0, 1), (1, 0)):
        names = []
        for field in fields[side].fields:
            match = fields[other].get(field.name)
            if field in taken:
                continue
            if match is None:
                names.append(field.name)
            elif side == 0:
                common.append((field, match))
        only.append(tuple(names))
    return common, only


def _tolerant(
    fields: list[_Fields], pairs: tuple[Pair, ...], tolerance: Tolerance
) -> tuple[Pair, ...]:
    """Give the pairs of numbers with fractions their tolerance."""
    if tolerance is None:
        return pairs
    if not isinstance(tolerance, Mapping):
        limit = _limit(tolerance)
        return tuple(_with(pair, limit) if _has_fraction(pair) else pair for pair in pairs)
    limits = {}
    for name, given in tolerance.items():
        field = fields[0].require(name)
        pair = next((pair for pair in pairs if pair.left is field), None)
        if pair is None:
            raise ArgumentError(
                "tolerance", problem=f"column {name} is not among the compared values"
            )
        if not _has_fraction(pair):
            shown = pair.left.dataType.simpleString()
            raise ColumnsError(
                f"column {name} is of the type {shown}: a tolerance is for float, double, decimal"
            )
        limits[pair.name] = _limit(given)
    return tuple(_with(pair, limits[pair.name]) if pair.name in limits else pair for pair in pairs)


def _with(pair: Pair, limit: float) -> Pair:
    return Pair(pair.left, pair.right, pair.forms, limit)


def _has_fraction(pair: Pair) -> bool:
    fractions = (T.FloatType, T.DoubleType, T.DecimalType)
    return any(isinstance(field.dataType, fractions) for field in (pair.left, pair.right))


def _limit(given: object) -> float:
    is_number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if not is_number or not 0 <= given < math.inf:  # type: ignore[operator]
        raise ArgumentError("tolerance", given, "a number of at least 0")
    return float(given)  # type: ignore[arg-type]
