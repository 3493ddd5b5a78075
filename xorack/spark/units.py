"""Columns of units and tags, and checks of the unit columns and chain columns.

Ids and tags do not depend on ANSI mode, on the session's time zone, or on timeParserPolicy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import functions as F

from xorack.core.checks import MAX_TAG_BYTES
from xorack.core.errors import ArgumentError
from xorack.errors import ColumnsError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField

    Expression = Callable[[Column], Column]
    Forms = tuple[Expression, Expression]

T = TypeVar("T")
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_ISO = "%sT%02d:%02d:%02d.%06d"
_ENCODED = {"%": "%25", "/": "%2F"}
_TAG = f"""
CASE WHEN octet_length({{tag}}) > {MAX_TAG_BYTES}
    THEN concat(substring({{tag}}, 1, 240), '...', format_string(
        '%016x', xxhash64({{tag}}) | bigint(xxhash64({{tag}}) = 0)))
ELSE {{tag}} END"""
GLOB = str.maketrans({character: f"\\{character}" for character in "\\*?[]{}"})
"""For `str.translate`: turns a path into a pattern of Hadoop that matches only this path."""
# Integers of all sizes have the same units and tags.
INTEGERS = ("tinyint", "smallint", "int", "bigint")
_RESERVED = {
    f"xorack_{word}_"
    for word in ("chain", "drawn", "file", "kept", "key", "missing", "named", "state", "unit")
}
_SUITABLE = "an integer, boolean, string, binary, date, timestamp, timestamp_ntz or decimal"


def quoted(name: str) -> str:
    """Return a column's name in backticks, so that it may contain dots and spaces in `F.col`."""
    return f"`{name.replace('`', '``')}`"


def encoded(text: str) -> str:
    """Percent-encode the characters that would make tags ambiguous."""
    for plain, code in _ENCODED.items():
        text = text.replace(plain, code)
    return text


def encoded_columns(texts: Sequence[Column]) -> list[Column]:
    """Percent-encode columns of texts, as `encoded` does."""
    for plain, code in _ENCODED.items():
        texts = [F.replace(text, F.lit(plain), F.lit(code)) for text in texts]
    return [*texts]


def comparable(frame: DataFrame, characters: int) -> dict[str, Column]:
    """Return the columns whose values Python can compare, and the sizes of arrays and maps."""
    shown: dict[str, Column] = {}
    for field in frame.schema.fields:
        column, type_ = F.col(quoted(field.name)), field.dataType.simpleString()
        if type_.startswith(("array", "map")):
            shown[f"size of {field.name}"] = F.size(column)
            continue
        if type_ == "string":
            column = F.left(column, F.lit(characters))
        # Limit dates to the years that Python supports.
        elif type_.startswith(("date", "timestamp")):
            least, most = (F.lit(f"{year}-01-01").cast(type_) for year in ("0002", "9999"))
            column = F.when(column.isNotNull(), F.least(F.greatest(column, least), most))
            # Show times in the session's zone. Python would convert them to its own zone.
            column = column if type_ == "date" else column.cast("timestamp_ntz")
        kind = type_.partition("(")[0]
        if kind in {*_FORMS, "float", "double"} - {"binary"} and field.name[:7] != "xorack_":
            shown[field.name] = column
    return shown


def python_values(frame: DataFrame, names: Sequence[str]) -> tuple[Column, Callable[[Any], Any]]:
    """Return columns as a struct, and a function that turns a collected struct into values.

    Python has only the years 1 to 9999. A date or time of another year becomes its text. All
    values are hashable.
    """
    forms = {"date": F.unix_date, "timestamp": F.unix_micros, "timestamp_ntz": _wall_micros}
    parts, types = [], []
    for name in names:
        column, type_ = column_named(frame, name)
        number = forms.get(type_.simpleString())
        text = F.lit(None) if number is None else column
        value = column if number is None else number(column)
        parts.append(F.struct(value.alias("value"), text.cast("string").alias("text")))
        types.append(type_)

    def convert(struct: Any) -> tuple[Any, ...]:
        return tuple(_python_value(*part) for part in zip(types, struct, strict=True))

    return F.struct(*(part.alias(f"c{i}") for i, part in enumerate(parts))), convert


def _python_value(type_: DataType, part: Any) -> Any:
    value = part["value"]
    if isinstance(value, bytearray):  # of PySpark 3, or by a setting
        return bytes(value)
    try:
        return type_.fromInternal(value)  # as Spark does for a collected value
    except (ValueError, OverflowError):
        return part["text"]


def check_frame(option: str, value: T, expected: str = "a frame") -> T:
    """Return the frame; raise `ArgumentError` if it is not a DataFrame."""
    if not hasattr(value, "mapInArrow"):
        raise ArgumentError(option, value, expected)
    return value


def check_names(frame: DataFrame) -> None:
    """Raise `ColumnsError` if a column has a name that comparisons give to their own columns."""
    for name in frame.columns:
        if name.lower() in _RESERVED:
            raise ColumnsError(f"column {name}: xorack needs this name for a column of its own")


def field_named(frame: DataFrame, name: str) -> StructField:
    """Find the column with this name; case counts only if ``spark.sql.caseSensitive`` is true."""
    fields = frame.schema.fields
    matching = [field for field in fields if field.name.lower() == name.lower()]
    exact = [field for field in matching if field.name == name]
    if matching != exact:
        case_sensitive = frame.sparkSession.conf.get("spark.sql.caseSensitive")
        matching = exact if str(case_sensitive).lower() == "true" else matching
    if len(matching) != 1:
        problem = "not in the frame" if not matching else f"{len(matching)} times in the frame"
        columns = ", ".join(repr(field.name) for field in fields)  # a name may end with a blank
        raise ColumnsError(f"column {name} is {problem}, which has {columns}")
    return matching[0]


def column_named(frame: DataFrame, name: str) -> tuple[Column, DataType]:
    """Find a column and its type; see `field_named`."""
    field = field_named(frame, name)
    return F.col(quoted(field.name)), field.dataType


def has_columns(frame: DataFrame, names: Sequence[str]) -> bool:
    """Return whether a frame has all of these columns; see `field_named`."""
    try:
        return bool([field_named(frame, name) for name in names])
    except ColumnsError:
        return False


def unit_column(frame: DataFrame, namespace: str, names: Sequence[str]) -> Column:
    """Return each row's unit: the signed `xorack.unit_id` of the namespace and the columns."""
    parts = [hashed(column) for column, (hashed, _) in _suitable(frame, names, "unit")]
    unit = F.xxhash64(F.lit(namespace), *parts)
    return unit.bitwiseOR((unit == 0).cast("long"))  # never 0


def hex_of(unit: str | Column) -> Column:
    """Return a unit as 16 hexadecimal digits.

    In a new Java, `lower` would take a second, because Spark first makes a table of all letters.
    """
    return F.format_string("%016x", unit)


def chain_columns(frame: DataFrame, names: Sequence[str]) -> list[Column]:
    """Return the columns that distinguish chains, with their own types, as ``c0``, ``c1``, …."""
    parts = _suitable(frame, names, "chain")
    return [column.alias(f"c{i}") for i, (column, _) in enumerate(parts)]


def with_tag(frame: DataFrame, prefix: str, names: Sequence[str], to: str = "tag") -> DataFrame:
    """Add the tag of each chain, or fail the job: see "Unit columns" in docs/spark.md."""
    parts = _suitable(frame, names, "chain")
    texts = [text(column) for column, (_, text) in parts]
    texts[:-1] = encoded_columns(texts[:-1])
    tagged = frame.withColumn(to, F.concat(F.lit(prefix), F.concat_ws("/", *texts)))
    return tagged.withColumn(to, F.expr(_TAG.format(tag=to)))


def _suitable(frame: DataFrame, names: Sequence[str], role: str) -> list[tuple[Column, Forms]]:
    """Return columns and the two forms of their types. A null fails the job."""
    if not names:
        raise ColumnsError(f"a {role} needs at least one column")
    parts = []
    for name in names:
        shown = column_named(frame, name)[1].simpleString()
        forms = _FORMS.get(shown.split("(")[0])
        if forms is None:
            raise ColumnsError(f"{role} column {name} has the type {shown}: cast it to {_SUITABLE}")
        # xxhash64 skips a null, so without this check two rows could have one id.
        message = f"xorack: {role} column {name} is null; a {role} needs a value".encode().hex()
        checked = F.expr(f"coalesce({quoted(name)}, raise_error(string(X'{message}')))")
        parts.append((checked, forms))
    return parts


def _wall_micros(column: Column) -> Column:
    """Return a timestamp_ntz in microseconds, without a cast that depends on the session's zone."""
    since = column - F.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
    return (since.cast("interval second").cast("decimal(20,6)") * _SECOND).cast("long")


def _iso(micros: Column, pattern: str = _ISO) -> Column:
    """Format date and time by arithmetic, because Spark formats in the session's time zone."""
    time = F.pmod(micros, F.lit(_DAY))
    day = F.date_from_unix_date(_div(micros - time, _DAY).cast("int"))
    seconds = _div(time, _SECOND)
    clock = (_div(seconds, 3600), _div(seconds, 60) % 60, seconds % 60, time % _SECOND)
    return F.format_string(pattern, _date_text(day), *clock)


def _date_text(day: Column) -> Column:
    """Format a date without a cast, which may use the Julian calendar: see timeParserPolicy."""
    year = F.year(day)
    sign = F.when(year > 9999, "+").when(year < 0, "-").otherwise("")
    parts = F.abs(year), F.month(day), F.dayofmonth(day)
    return F.format_string("%s%04d-%02d-%02d", sign, *parts)


def _div(column: Column, by: int) -> Column:
    return F.call_function("div", column, F.lit(by))


def plain_decimal(column: Column) -> Column:
    """Return the plain digits. Without ANSI mode, Spark writes small values as 1E-18."""
    plain = F.translate(F.format_number(column, 38), ",", "")
    digits = F.when(_text(column).contains("E"), plain).otherwise(_text(column))
    return F.regexp_replace(digits, r"(?:(\.\d*[1-9])|\.)0+$", "$1")


def _text_of_tag(column: Column) -> Column:
    """Return a text, or fail the job if a tag cannot have it."""
    problems = {
        "contains NUL; a tag cannot": F.contains(column, F.lit("\0")),
        "is not valid UTF-8; a tag must be": (
            F.decode(F.encode(column, "UTF-16BE"), "UTF-16BE") != column
        ),
    }
    text = column
    for problem, applies in problems.items():
        error = F.raise_error(F.lit(f"xorack: a value of a chain column {problem}"))
        text = F.when(applies, error).otherwise(text)
    return text


_long: Expression = methodcaller("cast", "long")
_text: Expression = methodcaller("cast", "string")
# Each type has the form that is hashed in units, and the text in tags.
_FORMS: dict[str, Forms] = {
    **dict.fromkeys((*INTEGERS, "boolean"), (_long, _text)),
    "string": (_text, _text_of_tag),
    "binary": (lambda column: column, lambda column: F.lower(F.hex(column))),
    "date": (lambda column: _long(F.unix_date(column)), _date_text),
    "timestamp": (F.unix_micros, lambda column: _iso(F.unix_micros(column), _ISO + "Z")),
    "timestamp_ntz": (_wall_micros, lambda column: _iso(_wall_micros(column))),
    "decimal": (plain_decimal, plain_decimal),
}
KEY_TYPES = frozenset(_FORMS)  # the types of columns that can distinguish units and chains


def is_deterministic(frame: DataFrame) -> bool:
    """Return whether each reading of a frame has the same rows, unlike with rand().

    With Spark Connect, return True.
    """
    java: Any = getattr(frame, "_jdf", None)
    return java is None or bool(java.queryExecution().analyzed().deterministic())
