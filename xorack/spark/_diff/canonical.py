"""Forms in which values of two columns are compared: equal values have equal forms.

Forms are Spark's SQL: a thousand columns are planned five times as fast as objects of Python.
Both sides' forms have one type without maps, so they can be hashed, compared, sorted and grouped.

| types of the two sides | equal are |
| --- | --- |
| integers of any width | equal numbers |
| decimals of any scale; a decimal and an integer | equal numbers |
| float, double | equal numbers, a float widened: 0.1f is not 0.1d; NaN and NaN; -0.0 and 0.0 |
| string | the same bytes, whatever the collation |
| binary, boolean, date | the same values |
| timestamp | the same instants |
| timestamp_ntz | the same wall clocks |
| array | equal elements in the same order |
| struct | equal fields of the same names, in any order |
| map | equal values of equal keys, in any order |

Null equals null, everywhere. Other types and pairs are unsuitable: cast one side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql import types as T

from xorack.core.errors import ColumnsError
from xorack.spark.units import quoted

if TYPE_CHECKING:
    Form = Callable[[str], str]
    Forms = tuple[Form, Form]

__all__ = ["canonical_forms", "field_named"]

_EXACT = (T.BooleanType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType)
_FLOATS = (T.FloatType, T.DoubleType)
_MAX_PRECISION = 38
_Field = TypeVar("_Field", bound=T.StructField)


def canonical_forms(name: str, left: T.DataType, right: T.DataType) -> Forms:
    """Return functions that make the forms of a column of the left and of the right side.

    A form is null if and only if the value is null.

    Raises:
        ColumnsError: The types cannot be compared; the message names the column.
    """
    if isinstance(left, T.StringType) and isinstance(right, T.StringType):
        form: Form = _same if _is_plain(left) and _is_plain(right) else _bytes
        return form, form
    if isinstance(left, T.ArrayType) and isinstance(right, T.ArrayType):
        forms = canonical_forms(f"{name}[]", left.elementType, right.elementType)
        return _array(forms[0]), _array(forms[1])
    if isinstance(left, T.StructType) and isinstance(right, T.StructType):
        return _structs(name, left, right)
    if isinstance(left, T.MapType) and isinstance(right, T.MapType):
        keys = canonical_forms(f"{name}.key", left.keyType, right.keyType)
        values = canonical_forms(f"{name}.value", left.valueType, right.valueType)
        return _map(keys[0], values[0]), _map(keys[1], values[1])
    if type(left) is type(right) and isinstance(left, _EXACT):
        return _same, _same
    if isinstance(left, T.IntegralType) and isinstance(right, T.IntegralType):
        form = _same if left == right else _cast(T.LongType())
        return form, form
    if isinstance(left, _FLOATS) and isinstance(right, _FLOATS):
        form = _same if left == right else _cast(T.DoubleType())
        return form, form
    if _digits(left) and _digits(right):
        return _decimals(left, right)
    shown = " and ".join(dict.fromkeys((left.simpleString(), right.simpleString())))
    raise ColumnsError(
        f"column {name} is of the type {shown}: it cannot be compared, cast it or leave it out"
    )


def field_named(fields: list[_Field], name: str) -> _Field | None:
    """Find a field by its name: the exact one, else the only one in another case."""
    found = [field for field in fields if field.name.lower() == name.lower()]
    exact = [field for field in found if field.name == name]
    return next(iter(exact or (found if len(found) == 1 else [])), None)


def _same(value: str) -> str:
    return value


def _cast(type_: T.DataType) -> Form:
    return lambda value: f"CAST({value} AS {type_.simpleString()})"


def _is_plain(type_: T.StringType) -> bool:
    return getattr(type_, "collation", None) in (None, "UTF8_BINARY")


def _bytes(value: str) -> str:
    """Strings that a collation takes for equal would have one hash."""
    return f"encode({value}, 'UTF-8')"


def _digits(type_: T.DataType) -> tuple[int, int] | None:
    """Return the digits before and after the point."""
    if isinstance(type_, T.DecimalType):
        return type_.precision - type_.scale, type_.scale
    return (19, 0) if isinstance(type_, T.IntegralType) else None


def _decimals(left: T.DataType, right: T.DataType) -> Forms:
    if left == right:
        return _same, _same
    digits = _digits(left), _digits(right)
    whole, scale = map(max, zip(*digits, strict=True))  # type: ignore[arg-type]
    if whole + scale <= _MAX_PRECISION:
        form = _cast(T.DecimalType(whole + scale, scale))
        return form, form
    return _digits_of, _digits_of


def _digits_of(value: str) -> str:
    """Return the plain digits: no decimal has as many as both sides."""
    digits = f"translate(format_number({value}, {_MAX_PRECISION}), ',', '')"
    return f"regexp_replace({digits}, '[.]?0+$', '')"


def _nested(value: str, form: Form) -> str:
    """Make the form of a value inside another: its hash tells null from nothing."""
    return f"named_struct('n', {value} IS NULL, 'v', {form(value)})"


def _sized(value: str, elements: str) -> str:
    """Without the size, [[1], [2]] and [[1, 2]] have one hash."""
    return f"IF({value} IS NULL, NULL, named_struct('n', size({value}), 'v', {elements}))"


def _array(form: Form) -> Form:
    return lambda value: _sized(value, f"transform({value}, e -> {_nested('e', form)})")


def _map(key_form: Form, value_form: Form) -> Form:
    entry = f"named_struct('k', {key_form('e.key')}, 'v', {_nested('e.value', value_form)})"
    return lambda value: _sized(value, f"array_sort(transform(map_entries({value}), e -> {entry}))")


def _structs(name: str, left: T.StructType, right: T.StructType) -> Forms:
    pairs = []
    for field in left.fields:
        other = field_named(right.fields, field.name)
        if other is not None:
            forms = canonical_forms(f"{name}.{field.name}", field.dataType, other.dataType)
            pairs.append((field, other, forms))
    taken = [{field.name for field, *_ in pairs}, {other.name for _, other, _ in pairs}]
    for side, fields in enumerate((left.fields, right.fields)):
        if alone := [field.name for field in fields if field.name not in taken[side]]:
            where = ("left", "right")[side]
            raise ColumnsError(
                f"column {name}: the field {alone[0]} of its struct is on the {where} side only"
            )
    return (
        _struct([(field.name, forms[0]) for field, _, forms in pairs]),
        _struct([(other.name, forms[1]) for _, other, forms in pairs]),
    )


def _struct(fields: list[tuple[str, Form]]) -> Form:
    def of(value: str) -> str:
        parts = [_nested(f"{value}.{quoted(name)}", form) for name, form in fields]
        return f"IF({value} IS NULL, NULL, struct({', '.join(parts)}))"

    return of
