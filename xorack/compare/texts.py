"""Types for columns of text, as CSV has them, that follow from the values of both sides.

A value is of one kind by its form alone. A column has the first type that the kinds of all its
values allow, on both sides; docs/diff.md has the table. A value that does not fit never becomes
null: its column is text on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from xorack.compare.forms import MAX_DIGITS, digits, is_nested, shown

__all__ = ["Column", "Values", "fit", "kinds_sql", "literal", "pattern_of", "quoted"]

_INT, _DECIMAL, _DOUBLE, _BOOLEAN, _DATE, _WALL, _INSTANT, _OTHER, _LARGE, _LONG = (
    1 << n for n in range(10)
)
_TIME = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?"
_PATTERNS = {
    _INT: r"[+-]?(0|[1-9]\d{0,17})",
    _DECIMAL: r"[+-]?((0|[1-9]\d*)?\.\d+|[1-9]\d*)",
    _DOUBLE: r"(?i)[+-]?((\d+\.?\d*|\.\d+)e[+-]?\d+|nan|inf|infinity)",
    _BOOLEAN: r"(?i)true|false",
    _DATE: r"\d{4}-\d\d-\d\d",
    _WALL: _TIME,
    _INSTANT: rf"{_TIME}(Z|[+-]\d\d:\d\d)",
}
_TIMES = {_DATE: "DATE", _WALL: "TIMESTAMP", _INSTANT: "TIMESTAMPTZ"}
_TYPES = (
    (_INT | _DECIMAL | _DOUBLE, "DOUBLE"),
    (_INT | _DECIMAL | _DOUBLE, "FLOAT"),
    (_BOOLEAN, "BOOLEAN"),
    (_DATE, "DATE"),
    (_DATE | _WALL, "TIMESTAMP"),
    (_INSTANT, "TIMESTAMP WITH TIME ZONE"),
)
_DOUBLE_DIGITS = 15
"""A double holds all integers of so many digits."""
_PRINTED_DIGITS = 17
"""No program needs more digits to print a double."""


class Column(NamedTuple):
    """A column of an input.

    Attributes:
        name: Its name.
        type: DuckDB's type.
        is_soft: It was read as text, though it may have another type.
    """

    name: str
    type: Any
    is_soft: bool = False


def quoted(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def pattern_of(type_: str) -> str:
    """Return a pattern of the text that a type takes, though it may drop digits of it."""
    kinds = {name: kinds for kinds, name in _TYPES}.get(type_, _INT | _DECIMAL)
    kinds |= _DATE | _WALL if kinds == _INSTANT else 0
    patterns = (f"({pattern})" for kind, pattern in _PATTERNS.items() if kind & kinds)
    return rf"\A({'|'.join(patterns)})\z"


def literal(value: Any) -> str:
    """Return SQL of a value."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return f"{{{', '.join(f'{literal(k)}: {literal(v)}' for k, v in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(literal, value))}]"
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


class Values(NamedTuple):
    """The kinds of a column's values, and the digits of its numbers."""

    kinds: int
    whole: int
    scale: int

    def type(self, other: Any) -> str | None:
        """Choose the type that all values have and the other side's type allows; None is text."""
        if not self.kinds:
            return "VARCHAR" if other is None else str(other)
        return next((name for kinds, name in self._types(other) if not self.kinds & ~kinds), None)

    def _types(self, other: Any) -> Iterator[tuple[int, str]]:
        if other is None or digits(other):
            yield _INT | _LARGE, "BIGINT"
            if self.whole + self.scale <= MAX_DIGITS:
                decimal = f"DECIMAL({max(self.whole + self.scale, 1)},{self.scale})"
                yield _INT | _DECIMAL | _LARGE | _LONG, decimal
        wall = other is not None and other.id.startswith("timestamp_")
        wanted = None if other is None else "TIMESTAMP" if wall else str(other)
        rounded = _LONG if wanted in ("DOUBLE", "FLOAT") else 0  # the other side is rounded, too
        yield from ((kinds | rounded, name) for kinds, name in _TYPES if wanted in (None, name))
        if wanted == "TIMESTAMP WITH TIME ZONE":  # in the session's time zone
            yield _DATE | _WALL | _INSTANT, wanted


def kinds_sql(columns: Sequence[Column], relation: str, *, empty_is_null: bool) -> str:
    """Return SQL that finds `Values` of columns of text in one pass: three numbers a column."""
    inner, sums = [], []
    for i, column in enumerate(columns):
        v = quoted(column.name)
        whens = [f"WHEN {v} IS NULL{f''' OR {v} = '' ''' * empty_is_null} THEN 0"]
        for bit, pattern in _PATTERNS.items():
            large = (
                f"CASE WHEN {_is_large(v)} THEN {bit | _LARGE} "
                f"WHEN {_is_long(v)} THEN {bit | _LONG} ELSE {bit} END"
            )
            found = large if bit & (_INT | _DECIMAL) else bit
            is_valid = f"TRY_CAST({v} AS {_TIMES.get(bit, 'VARCHAR')}) IS NOT NULL"
            whens.append(f"WHEN regexp_full_match({v}, '{pattern}') AND {is_valid} THEN {found}")
        digits_of = f"ltrim({v}, '+-')"
        inner.append(f"CASE {' '.join(whens)} ELSE {_OTHER} END AS k{i}, {digits_of} AS d{i}")
        is_exact, point = f"k{i} & {_INT | _DECIMAL} > 0", f"instr(d{i}, '.')"
        whole = f"CASE WHEN {point} > 0 THEN {point} - 1 ELSE length(d{i}) END"
        scale = f"CASE WHEN {point} > 0 THEN length(d{i}) - {point} ELSE 0 END"
        sums += [f"coalesce(bit_or(k{i}), 0)"]
        # With FILTER, the time to plan it grows with the square of the number of columns.
        sums += [f"coalesce(max(CASE WHEN {is_exact} THEN {of} END), 0)" for of in (whole, scale)]
    return f"SELECT {', '.join(sums)} FROM (SELECT {', '.join(inner)} FROM {relation})"


def _is_large(v: str) -> str:
    """Return SQL that is true for integers that a double rounds."""
    double = f"TRY_CAST(TRY_CAST({v} AS DOUBLE) AS HUGEINT)"
    is_long = f"length({v}) > {_DOUBLE_DIGITS} AND NOT contains({v}, '.')"
    return f"{is_long} AND coalesce({double} <> TRY_CAST({v} AS HUGEINT), true)"


def _is_long(v: str) -> str:
    """Return SQL that is true for fractions of more digits than a double has."""
    digits_of = f"trim(replace(ltrim({v}, '+-'), '.', ''), '0')"
    return f"contains({v}, '.') AND length({digits_of}) > {_PRINTED_DIGITS}"


class Side(NamedTuple):
    """A column of a side; ``values`` is None if its type is known."""

    column: Column
    values: Values | None
    source: str
    empty_is_null: bool

    def cast(self, type_: str) -> str:
        """Return SQL that casts text to a type that all its values have; no text is null."""
        name = quoted(self.column.name)
        if self.values is None:
            return name
        return f"CAST(nullif({name}, '') AS {type_})" if self.values.kinds else f"NULL::{type_}"

    def text(self, *, empty_is_null: bool) -> str:
        """Return SQL of the text of a value; a nested value stays as it is."""
        name = quoted(self.column.name)
        if is_nested(self.column.type) or self.column.type.id == "blob":
            return name
        text = name if self.column.type.id == "varchar" else f"{name}::VARCHAR"
        return f"nullif({text}, '')" if empty_is_null else text


def fit(left: Side, right: Side, *, keep: bool) -> tuple[str, str, list[str]]:
    """Return SQL of a column of both sides with types that can be compared, and remarks."""
    pair = (left, right)
    soft = [one.values for one in pair if one.values is not None]
    if not soft:
        return quoted(left.column.name), quoted(right.column.name), []
    values = Values(soft[0].kinds | soft[-1].kinds, *map(max, soft[0][1:], soft[-1][1:]))
    known = next((one for one in pair if one.values is None), None)
    is_text = keep or (known is not None and known.column.type.id == "varchar")
    known_type = known.column.type if known else None
    if not is_text and (type_ := values.type(known_type)) is not None:
        return left.cast(type_), right.cast(type_), []
    remarks = []
    if known is not None and not is_text:
        other = right if known is left else left
        remarks.append(
            f"column {left.column.name} is compared as text: {other.source} has values that are "
            f"not of the type {shown(known_type)}"
        )
    empty_is_null = left.empty_is_null or right.empty_is_null
    return *(one.text(empty_is_null=empty_is_null) for one in pair), remarks  # type: ignore[return-value]
