"""The forms in which DuckDB compares values: equal values have equal forms, of one type.

They are SQL. docs/diff.md has the rules; `xorack.spark._diff.canonical` has the same for Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from xorack.core.errors import ColumnsError

__all__ = [
    "FLOATS", "INTEGERS", "MAX_DIGITS", "TIMES", "canonical_forms", "digits", "has_weak_hash",
    "is_nested", "shown",
]  # fmt: skip

Form = Callable[[str], str]
Forms = tuple[Form, Form]
INTEGERS = {f"{sign}{width}" for sign in ("", "u") for width in
            ("tinyint", "smallint", "integer", "bigint", "hugeint")}  # fmt: skip
FLOATS = {"float", "double"}
_WALLS = {"timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns"}
TIMES = {*_WALLS, "date", "timestamp with time zone"}
_EXACT = {*TIMES, "boolean", "blob", "time", "uuid", "varchar"}
MAX_DIGITS = 38
"""The digits of a decimal."""
_MAX_64_BIT_PRECISION = 18


def shown(type_: Any) -> str:
    """Return a type as errors name it."""
    return str(type_).lower()


def is_nested(type_: Any) -> bool:
    """Return true for a list, struct or map."""
    return type_.id in ("list", "array", "struct", "map", "union")


def has_weak_hash(type_: Any) -> bool:
    """Return true if DuckDB hashes many values alike: of numbers of 128 bits, 0 and -1."""
    is_wide = type_.id == "decimal" and dict(type_.children)["precision"] > _MAX_64_BIT_PRECISION
    return is_wide or type_.id in ("hugeint", "uhugeint", "uuid") or is_nested(type_)


def canonical_forms(name: str, left: Any, right: Any, depth: int = 0) -> Forms:
    """Return functions that make the forms of a column of the left and of the right side.

    A form is null if and only if the value is null.

    Raises:
        ColumnsError: The types cannot be compared; the message names the column.
    """
    ids = {_id(left), _id(right)}
    if ids == {"list"}:
        one, other = (dict(of.children)["child"] for of in (left, right))
        forms = canonical_forms(f"{name}[]", one, other, depth + 1)
        return _list(forms[0], depth), _list(forms[1], depth)
    if ids == {"struct"}:
        return _structs(name, left, right, depth)
    if ids == {"map"}:
        return _maps(name, left, right, depth)
    if ids <= FLOATS:  # inside others, -0.0 has a text of its own
        form = _cast("DOUBLE", " + 0.0::DOUBLE" if depth else "")
        return form, form
    if ids <= INTEGERS and len(ids) > 1:
        is_wide = any("hugeint" in one or one == "ubigint" for one in ids)
        return (_cast("HUGEINT" if is_wide else "BIGINT"),) * 2
    if ids <= _WALLS and len(ids) > 1:
        return _nanoseconds(left), _nanoseconds(right)
    if len(ids) == 1 and ids <= _EXACT | INTEGERS:
        is_enum = "enum" in (left.id, right.id)
        return (_cast("VARCHAR") if is_enum else _same,) * 2
    if (pair := [digits(left), digits(right)]) and None not in pair:
        return _decimals(left, right)
    types_shown = " and ".join(dict.fromkeys((shown(left), shown(right))))
    raise ColumnsError(
        f"column {name} is of the type {types_shown}: it cannot be compared, cast it or leave it "
        "out"
    )


def digits(type_: Any) -> tuple[int, int] | None:
    """Return the digits of a number before and after the point."""
    if type_.id == "decimal":
        of = dict(type_.children)
        return of["precision"] - of["scale"], of["scale"]
    if type_.id in INTEGERS:
        return (39 if "hugeint" in type_.id else 20 if type_.id == "ubigint" else 19), 0
    return None


def _id(type_: Any) -> str:
    return str({"array": "list", "enum": "varchar"}.get(type_.id, type_.id))


def _same(value: str) -> str:
    return value


def _cast(type_: str, more: str = "") -> Form:
    return lambda value: f"({value})::{type_}{more}"


def _nanoseconds(type_: Any) -> Form:
    if type_.id == "timestamp_ns":
        return lambda value: f"epoch_ns({value})::HUGEINT"
    return lambda value: f"epoch_us(({value})::TIMESTAMP)::HUGEINT * 1000"


def _decimals(left: Any, right: Any) -> Forms:
    if left == right:
        return _same, _same
    whole, scale = map(max, zip(digits(left), digits(right), strict=True))  # type: ignore[arg-type]
    if whole + scale <= MAX_DIGITS:
        return (_cast(f"DECIMAL({whole + scale},{scale})"),) * 2
    return _decimal_text, _decimal_text  # more digits than a decimal has


def _decimal_text(value: str) -> str:
    text = f"({value})::VARCHAR"
    return f"CASE WHEN contains({text}, '.') THEN rtrim(rtrim({text}, '0'), '.') ELSE {text} END"


def _list(form: Form, depth: int) -> Form:
    return lambda value: f"list_transform({value}, lambda e{depth}: {form(f'e{depth}')})"


def _maps(name: str, left: Any, right: Any, depth: int) -> Forms:
    of = [dict(one.children) for one in (left, right)]
    keys = canonical_forms(f"{name}.key", of[0]["key"], of[1]["key"], depth + 1)
    values = canonical_forms(f"{name}.value", of[0]["value"], of[1]["value"], depth + 1)

    def map_form(side: int) -> Form:
        entry = f"e{depth}"
        key, value = (f"struct_extract({entry}, '{part}')" for part in ("key", "value"))
        pair = f"{{'k': {keys[side](key)}, 'v': {values[side](value)}}}"
        # The entries of null are an empty list.
        return lambda value: (
            f"CASE WHEN {value} IS NOT NULL THEN list_sort(list_transform(map_entries({value}), "
            f"lambda {entry}: {pair})) END"
        )

    return map_form(0), map_form(1)


def _structs(name: str, left: Any, right: Any, depth: int) -> Forms:
    sides = [{field.lower(): (field, type_) for field, type_ in one.children} for one in
             (left, right)]  # fmt: skip
    for side, (own, other) in enumerate((sides, sides[::-1])):
        if alone := [field for key, (field, _) in own.items() if key not in other]:
            where = ("left", "right")[side]
            raise ColumnsError(
                f"column {name}: the field {alone[0]} of its struct is on the {where} side only"
            )
    forms = {
        key: canonical_forms(f"{name}.{field}", type_, sides[1][key][1], depth + 1)
        for key, (field, type_) in sides[0].items()
    }

    def struct_form(side: int) -> Form:
        def parts(value: str) -> Iterator[str]:
            for i, (key, pair) in enumerate(forms.items()):
                field = sides[side][key][0].replace("'", "''")
                form = pair[side](f"struct_extract({value}, '{field}')")
                yield f"'f{i}': {form}"

        return lambda value: f"CASE WHEN {value} IS NOT NULL THEN {{{', '.join(parts(value))}}} END"

    return struct_form(0), struct_form(1)
