"""The columns that are compared: found on both sides, checked, with the forms of their values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from xorack.compare.columns import Side, limits, match
from xorack.core.errors import ArgumentError, ColumnsError
from xorack.spark._diff.canonical import canonical_forms
from xorack.spark.units import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.compare.columns import Limit, Names, Tolerance
    from xorack.spark._diff.canonical import Forms

__all__ = ["Comparison", "Pair", "compare_columns"]


@dataclass(frozen=True)
class Pair:
    """A column of the left side and the column of the right side that it is compared with.

    Attributes:
        left: The field of the left side.
        right: The field of the right side.
        forms: What makes the canonical forms of the left and of the right side.
        limit: The largest difference of equal values; None compares exactly.
    """

    left: T.StructField
    right: T.StructField
    forms: Forms
    limit: Limit | None = None

    @property
    def name(self) -> str:
        """The name on the left side."""
        return self.left.name

    @property
    def nullable(self) -> bool:
        """True if a side may have nulls."""
        return self.left.nullable or self.right.nullable

    def column(self, side: int, row: str = "") -> str:
        """Return the column of a side as SQL: of its frame, or of a struct such as ``l.``."""
        return row + quoted((self.left, self.right)[side].name)

    def form(self, side: int, row: str = "") -> str:
        """Return the canonical form of a side's column as SQL."""
        return self.forms[side](self.column(side, row))

    @property
    def unit(self) -> str | None:
        """The unit of distances: ``s`` for times, empty for numbers; None if there are none."""
        units = {"time": "s", "number": "", "integer": ""}
        return units.get(_kind_of((self.left, self.right)))

    def differs(self) -> str:
        """Return as SQL whether the values in the structs ``l`` and ``r`` differ."""
        is_equal = f"{self.form(0, 'l.')} <=> {self.form(1, 'r.')}"
        if self.limit is not None:
            sides = self.column(0, "l."), self.column(1, "r.")
            most = "double(1)"
            if self.limit.kind == "relative":
                most = "greatest({})".format(", ".join(f"abs(double({of}))" for of in sides))
            within = f"{self.distance(*sides)} <= double('{self.limit.amount}') * {most}"
            is_equal += f" OR coalesce({most} < double('inf') AND {within}, false)"
        return f"NOT ({is_equal})"

    def distance(self, left: str, right: str) -> str:
        """Return as SQL how far two values are apart, exactly subtracted; of times, in seconds."""
        exact = _EXACT.get(type(self.left.dataType), "{}")
        one, other = exact.format(left), exact.format(right)
        distance = f"double(abs(try_subtract({one}, {other})))"
        return f"{distance} / double('1e6')" if self.unit == "s" else distance


@dataclass(frozen=True)
class Comparison:
    """Two frames and the columns that are compared.

    Attributes:
        frames: The left and the right frame.
        keys: The columns of the key.
        values: The columns that are compared.
        left_only: The names of columns that the right side lacks.
        right_only: The names of columns that the left side lacks.
    """

    frames: tuple[DataFrame, DataFrame]
    keys: tuple[Pair, ...]
    values: tuple[Pair, ...]
    left_only: tuple[str, ...]
    right_only: tuple[str, ...]


def compare_columns(
    left: DataFrame,
    right: DataFrame,
    key: Names | None,
    values: Names | None = None,
    ignore: Names = (),
    tolerance: Tolerance = None,
) -> Comparison:
    """Find and check the columns to compare; see `xorack.spark.diff`."""
    frames = {"left": left, "right": right}
    for side, frame in frames.items():
        if not hasattr(frame, "schema"):
            raise ArgumentError(side, frame, "a frame")
    sides = [
        Side(f"the {side} frame", frame.schema.fields, _fold(frame))
        for side, frame in frames.items()
    ]
    found = match((sides[0], sides[1]), key, values, ignore)
    for pair in found.keys:
        shown = [field.dataType.simpleString() for field in pair]
        if isinstance(pair[0].dataType, _NESTED) and shown[0] != shown[1]:
            raise ColumnsError(
                f"column {pair[0].name} of the key is {shown[0]} on the left and {shown[1]} on the "
                "right: cast one side"
            )
    given = limits(sides[0], found.values, tolerance, _kind_of)
    keys, compared = (
        tuple(
            Pair(*pair, canonical_forms(pair[0].name, *(field.dataType for field in pair)), limit)
            for pair in pairs
            for limit in [given.get(pair[0].name) if pairs is found.values else None]
        )
        for pairs in (found.keys, found.values)
    )
    return Comparison((left, right), keys, compared, found.left_only, found.right_only)


_NESTED = (T.ArrayType, T.StructType, T.MapType)
_FRACTIONS = (T.FloatType, T.DoubleType, T.DecimalType)
_WALL = "CAST({} - timestamp_ntz'1970-01-01 00:00:00' AS interval second)"
_TIMES: dict[type, str] = {
    T.DateType: "CAST(unix_date({}) AS decimal(20,0)) * 86400000000",
    T.TimestampType: "unix_micros({})",
    T.TimestampNTZType: f"CAST({_WALL} AS decimal(20,6)) * 1000000",
}
_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_EXACT = _TIMES | dict.fromkeys(_INTEGERS, "CAST({} AS decimal(20,0))")
_EXACT |= {T.FloatType: "double({})", T.DoubleType: "double({})"}
"""SQL of numbers whose differences are exact, by type; of times, microseconds in any zone."""


def _fold(frame: DataFrame) -> Callable[[str], str]:
    """Return how the session folds names."""
    case_sensitive = str(frame.sparkSession.conf.get("spark.sql.caseSensitive")).lower() == "true"
    return str if case_sensitive else str.lower


def _kind_of(pair: tuple[T.StructField, T.StructField]) -> str:
    if any(isinstance(field.dataType, _FRACTIONS) for field in pair):
        return "number"
    if all(isinstance(field.dataType, T.IntegralType) for field in pair):
        return "integer"
    return "time" if type(pair[0].dataType) in _TIMES else pair[0].dataType.simpleString()
