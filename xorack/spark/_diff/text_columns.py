"""Types for columns of text, as CSV has them, that follow from the values of both sides.

A value is of one kind by its form alone. A column has the first of these types that the kinds of
all its values allow, on both sides; if the other side has a type, only that type or text:

| type | values such as |
| --- | --- |
| bigint | ``17``, ``-3`` |
| decimal | ``17``, ``9.50`` |
| double | ``17``, ``9.50``, ``1e-3``, ``NaN``; not an integer that a double rounds |
| boolean | ``true``, ``False`` |
| date | ``2026-01-31`` |
| timestamp_ntz | ``2026-01-31``, ``2026-01-31 12:00:00`` |
| timestamp | ``2026-01-31T12:00:00Z``, ``2026-01-31 12:00:00.5+01:00`` |
| string | any other: with leading zeros, ``007``, or blanks |

A value that does not fit never becomes null: its column is text on both sides. Numbers with
fractions and exponents become the nearest double.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F
from pyspark.sql import types as T

from xorack.core.errors import ArgumentError
from xorack.spark.units import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["Input", "fit"]

_INT, _DECIMAL, _DOUBLE, _BOOLEAN, _DATE, _WALL, _INSTANT, _OTHER, _INVALID, _LARGE = (
    1 << n for n in range(10)
)
_TIME = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?"
_PATTERNS = {
    _INVALID: "\ufffd",
    _INT: r"\A[+-]?(0|[1-9]\d{0,17})\z",
    _DECIMAL: r"\A[+-]?((0|[1-9]\d*)?\.\d+|[1-9]\d*)\z",
    _DOUBLE: r"(?i)\A[+-]?((\d+\.?\d*|\.\d+)e[+-]?\d+|nan|inf|infinity)\z",
    _BOOLEAN: r"(?i)\A(true|false)\z",
}
_TIMES = {
    _DATE: (r"\A\d{4}-\d\d-\d\d\z", "date"),
    _WALL: (rf"\A{_TIME}\z", "timestamp_ntz"),
    _INSTANT: (rf"\A{_TIME}(Z|[+-]\d\d:\d\d)\z", "timestamp"),
}
_MAX_DIGITS = 38
_DOUBLE_DIGITS = 15
"""A double holds all integers of so many digits."""


@dataclass(frozen=True)
class Input:
    """An input that was opened.

    Attributes:
        name: What the user calls it.
        frame: Its rows.
        text: The columns that were read as text, though they may have another type.
        empty_is_null: True if an empty text means null, as in CSV.
    """

    name: str
    frame: DataFrame
    text: frozenset[str] = frozenset()
    empty_is_null: bool = False


class _Values(NamedTuple):
    """The kinds of a column's values, and the digits of its numbers."""

    kinds: int
    whole: int
    scale: int

    def type(self, other: T.DataType | None) -> T.DataType | None:
        """Choose the type that all values have and the other side's type allows; None is text."""
        if not self.kinds:
            return other
        for kinds, type_ in self._types(other):
            if not self.kinds & ~kinds:
                return type_
        return None

    def _types(self, other: T.DataType | None) -> Iterator[tuple[int, T.DataType]]:
        if other is None or isinstance(other, (T.IntegralType, T.DecimalType)):
            yield _INT | _LARGE, T.LongType()
            if self.whole + self.scale <= _MAX_DIGITS:
                yield _INT | _DECIMAL | _LARGE, T.DecimalType(self.whole + self.scale, self.scale)
        yield from ((kinds, type_) for kinds, type_ in _TYPES if other in (None, type_))
        if other == T.TimestampType():  # in the session's time zone
            yield _DATE | _WALL | _INSTANT, other


_TYPES = (
    (_INT | _DECIMAL | _DOUBLE, T.DoubleType()),
    (_INT | _DECIMAL | _DOUBLE, T.FloatType()),
    (_BOOLEAN, T.BooleanType()),
    (_DATE, T.DateType()),
    (_DATE | _WALL, T.TimestampNTZType()),
    (_INSTANT, T.TimestampType()),
)


@dataclass(frozen=True)
class _Column:
    """A column of an input; ``values`` is None if its type is known."""

    side: Input
    name: str
    type: T.DataType
    values: _Values | None

    def plain(self) -> Column:
        return F.col(quoted(self.name))

    @property
    def is_text(self) -> bool:
        return isinstance(self.type, T.StringType)

    def cast(self, type_: T.DataType) -> Column:
        """Cast text to a type that all its values have; an empty text is null."""
        if self.values is None:
            return self.plain()
        column = self.plain() if self.values.kinds else F.lit(None)
        return F.when(column != "", column).cast(type_)

    def text(self, *, empty_is_null: bool) -> Column:
        """Return the text of a value; a nested value stays as it is."""
        is_nested = isinstance(self.type, (T.ArrayType, T.StructType, T.MapType, T.BinaryType))
        column = self.plain() if is_nested else self.plain().cast("string")
        return F.when(column != "", column) if empty_is_null and not is_nested else column


def fit(
    left: Input, right: Input, as_text: Sequence[str] = ()
) -> tuple[list[DataFrame], list[str]]:
    """Give the columns that were read as text a type.

    Args:
        left: The left input.
        right: The right input.
        as_text: Columns that are compared as text.

    Returns:
        Both frames, and remarks on columns for the user, in one line each.

    Raises:
        ArgumentError: A column to compare as text does not exist.
    """
    sides = (left, right)
    fields = [{one.name.lower(): one for one in side.frame.schema.fields} for side in sides]
    kept = {name.lower() for name in as_text}
    if unknown := [name for name in as_text if name.lower() not in {*fields[0], *fields[1]}]:
        raise ArgumentError("text", problem=f"column {unknown[0]} is in neither input")
    common = [name for name in fields[0] if name in fields[1]]
    empty_is_null = left.empty_is_null or right.empty_is_null
    columns = [
        _scan(side, [of[name] for name in common], empty_is_null=empty_is_null)
        for side, of in zip(sides, fields, strict=True)
    ]
    fitted: list[dict[str, Column]] = [{}, {}]
    remarks = []
    for pair in zip(*columns, strict=True):
        *new, remark = _fit_pair(*pair, keep=pair[0].name.lower() in kept)
        remarks += remark
        for of, column, name in zip(fitted, new, (one.name for one in pair), strict=True):
            of[name] = column
    frames = [_select(side.frame, of) for side, of in zip(sides, fitted, strict=True)]
    return frames, remarks


def _scan(side: Input, fields: Sequence[T.StructField], *, empty_is_null: bool) -> list[_Column]:
    """Find the kinds of the values of the columns that are text, in one pass."""
    names = [field.name for field in fields if field.name in side.text]
    sums = []
    for name in names:
        column = F.col(quoted(name))
        kind = F.when(column.isNull() | (column == "") & F.lit(empty_is_null), 0)
        for bit, pattern in _PATTERNS.items():
            kind = kind.when(column.rlike(pattern), bit)
        for bit, (pattern, type_) in _TIMES.items():
            is_valid = F.expr(f"try_cast({quoted(name)} AS {type_})").isNotNull()
            kind = kind.when(column.rlike(pattern) & is_valid, bit)
        kind = kind.otherwise(_OTHER)
        is_exact = kind.isin(_INT, _DECIMAL)
        point = F.instr(column, ".")
        is_long = is_exact & (point == 0) & (F.length(column) > _DOUBLE_DIGITS)
        number = quoted(name)
        is_same = F.expr(
            f"try_cast(try_cast({number} AS double) AS bigint) = try_cast({number} AS bigint)"
        )
        large = F.when(is_long & ~F.coalesce(is_same, F.lit(False)), _LARGE).otherwise(0)
        whole = F.when(point > 0, point - 1).otherwise(F.length(column))
        scale = F.when(point > 0, F.length(column) - point).otherwise(0)
        sums += [
            F.bit_or(kind.bitwiseOR(large)),
            F.max(F.when(is_exact, whole)),
            F.max(F.when(is_exact, scale)),
        ]
    row = [one or 0 for one in side.frame.agg(*sums).head() or ()] if sums else []
    found = {name: _Values(*row[3 * i : 3 * i + 3]) for i, name in enumerate(names)}
    return [_Column(side, one.name, one.dataType, found.get(one.name)) for one in fields]


def _fit_pair(left: _Column, right: _Column, *, keep: bool) -> tuple[Column, Column, list[str]]:
    """Return a column of both sides with types that can be compared, and remarks."""
    pair = (left, right)
    soft = [one.values for one in pair if one.values is not None]
    if not soft:
        return left.plain(), right.plain(), []
    remarks = [
        f"column {one.name} of {one.side.name} has characters that are not UTF-8: they are not "
        "told apart"
        for one in pair
        if one.values is not None and one.values.kinds & _INVALID
    ]
    values = (
        soft[0]
        if len(soft) == 1
        else _Values(soft[0].kinds | soft[1].kinds, *map(max, soft[0][1:], soft[1][1:]))
    )
    known = next((one for one in pair if one.values is None), None)
    is_text = keep or (known is not None and known.is_text)
    if not is_text and (type_ := values.type(known.type if known else None)) is not None:
        return left.cast(type_), right.cast(type_), remarks
    if known is not None and not is_text:
        other = right if known is left else left
        remarks.append(
            f"column {left.name} is compared as text: {other.side.name} has values that are not "
            f"of the type {known.type.simpleString()}"
        )
    empty_is_null = left.side.empty_is_null or right.side.empty_is_null
    texts = [one.text(empty_is_null=empty_is_null) for one in pair]
    return texts[0], texts[1], remarks


def _select(frame: DataFrame, columns: dict[str, Column]) -> DataFrame:
    """Replace columns of a frame, in their places."""
    return frame.select(
        *(columns.get(name, F.col(quoted(name))).alias(name) for name in frame.columns)
    )
