"""Units and stamps as Spark expressions: all of it runs in the JVM, no row passes Python.

Everything here takes and returns Columns and DataFrames, so it works the same in batch jobs,
streams and Spark Connect, from Spark 3.5 on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as F

from xorack.core.errors import InvalidRequest
from xorack.core.stamp import TRACED_CELLS, TRACED_TABLES, check_cells
from xorack.spark.errors import DuplicateUnits, NullUnits, UnsuitableColumns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    ColumnOrName = Column | str

__all__ = ["Found", "Kind", "check_units", "fold", "rows_of", "stamp_of", "unit", "with_unit"]

Kind = Literal["traced", "plain"]

_HASHED_AS_THEY_ARE = ("bigint", "string", "binary")
_WIDENED = ("tinyint", "smallint", "int")
_SUITABLE = "long, string or binary"
_EXAMPLES = 5
_HEX_DIGITS = 16
_ZEROS = "0" * _HEX_DIGITS


def unit(*columns: ColumnOrName) -> Column:
    """The unit id of the row that these columns identify; equal to `xorack.unit_id` of the values.

    Name what identifies the row and nothing else: the id must come out the same when a task is
    retried or a job is run again. Hash a short key, not a long string, where rows are many: carry
    ``unit("path")`` as a column and use ``unit("file_key", "position")``.

    Args:
        *columns: At least one column, of the type long, string or binary. Cast other types
            yourself, or use `with_unit`, which widens integers: a Column does not know its type.

    Returns:
        A long: the id as signed 64 bits (`xorack.unit_id` gives the same bits unsigned), never 0.
        The job fails, naming the column, where a value is null (``xxhash64`` would skip it and
        give two rows one id) or the type is none of the three.

    Raises:
        UnsuitableColumns: No columns.

    Example:
        >>> words.withColumn("unit", unit("file_key", "position"))  # doctest: +SKIP
    """
    if not columns:
        raise UnsuitableColumns("unit needs at least one column")
    return _never_zero(F.xxhash64(*(_guarded(_column(column)) for column in columns)))


def _column(column: ColumnOrName) -> Column:
    return F.col(column) if isinstance(column, str) else column


def _name(column: Column) -> str:
    """How a column is called in messages: what `str` shows, without its wrapping."""
    text = str(column)
    return text[8:-2] if text.startswith("Column<'") else text


def _guarded(column: Column) -> Column:
    """The column, failing at run time where it is null or cannot be hashed as a unit.

    The check of the type is constant and the check of a column that cannot be null is false: the
    optimizer removes both.
    """
    name = _name(column)
    wrong_type = F.raise_error(
        F.concat(
            F.lit(f"xorack: unit column {name} is of the type "),
            F.typeof(column),
            F.lit(f", not {_SUITABLE}: cast it"),
        )
    )
    is_null = F.raise_error(F.lit(f"xorack: unit column {name} is null; a unit needs a value"))
    return (
        F.when(~F.typeof(column).isin(*_HASHED_AS_THEY_ARE), wrong_type)
        .when(column.isNull(), is_null)
        .otherwise(column)
    )


def _never_zero(hashed: Column) -> Column:
    return F.when(hashed == 0, F.lit(1).cast("long")).otherwise(hashed)


def with_unit(df: DataFrame, *columns: str, name: str = "unit") -> DataFrame:
    """Add the unit column to a frame, checking the columns against its schema before anything runs.

    Args:
        df: The rows.
        *columns: The names of the columns that identify a row: integers (widened to long), strings
            or binaries.
        name: The name of the unit column.

    Returns:
        The frame with the column added; see `unit`.

    Raises:
        UnsuitableColumns: No columns, columns that the frame has not, or of another type; the
            error lists them and what the frame has.
    """
    types = dict(df.dtypes)
    missing = [column for column in columns if column not in types]
    if missing or not columns:
        raise UnsuitableColumns(
            f"unit columns {', '.join(missing) or '(none given)'} are not in the frame, "
            f"which has {', '.join(types)}"
        )
    wrong = [
        f"{column} ({types[column]})"
        for column in columns
        if types[column] not in _HASHED_AS_THEY_ARE and types[column] not in _WIDENED
    ]
    if wrong:
        raise UnsuitableColumns(
            f"unit columns must be integers, strings or binaries: {', '.join(wrong)}"
        )
    parts = [
        F.col(f"`{column}`").cast("long") if types[column] in _WIDENED else F.col(f"`{column}`")
        for column in columns
    ]
    return df.withColumn(name, unit(*parts))


def check_units(df: DataFrame, *columns: str) -> None:
    """Make sure that columns identify rows: no nulls, no two rows alike. Costs a shuffle.

    Two rows of one unit cancel each other out: the chain would be acked with both of them
    unfinished. Check while a job is being written, or where the rows come from others.

    Args:
        df: The rows.
        *columns: The names of the columns that shall identify a row.

    Raises:
        NullUnits: Some are null; says how many in which column.
        DuplicateUnits: Some rows are alike; names up to five and how often they come.
        UnsuitableColumns: See `with_unit`.
    """
    with_unit(df, *columns)
    nulls = df.agg(
        *(
            F.count(F.when(F.col(f"`{c}`").isNull(), True)).alias(str(i))
            for i, c in enumerate(columns)
        )
    ).first()
    found = {column: nulls[str(i)] for i, column in enumerate(columns) if nulls and nulls[str(i)]}
    if found:
        raise NullUnits(found)
    repeated = (
        df.groupBy(*(f"`{column}`" for column in columns))
        .agg(F.count(F.lit(1)).alias("_rows"))
        .where("_rows > 1")
        .limit(_EXAMPLES)
        .collect()
    )
    if repeated:
        raise DuplicateUnits(
            columns, [(tuple(row)[: len(columns)], row["_rows"]) for row in repeated]
        )


class Found(NamedTuple):
    """The rows that outstanding ids stand for.

    Attributes:
        rows: The rows, with their unit ids in the column ``unit`` (long). Kept in memory, as they
            were read already to find out which ids have none: ``rows.unpersist()`` lets go of them.
        unknown: The ids that no row has, unsigned: of units that were never started, or of rows
            that are not in this frame.
    """

    rows: DataFrame
    unknown: frozenset[int]


def rows_of(df: DataFrame, ids: Iterable[int | str], *columns: str) -> Found:
    """Find the rows that outstanding ids stand for: what to process again. Reads the frame once.

    The ids are broadcast and joined in the JVM; only they and what was found reach the driver's
    side. A chain's root unit, if it is outstanding, is a row only where the job made it one.

    Args:
        df: Any frame that carries units: its rows are identified by ``columns``.
        ids: As `xorack.peel` gives them (signed ones, as Spark has them, are taken too) or as
            ``failed`` events do: 16 hex digits.
        *columns: The columns that the unit is made of: see `with_unit`. None if the frame has
            the ids already, in a column ``unit`` (long).

    Returns:
        The rows, and the ids that no row has.

    Raises:
        InvalidRequest: One of the ids is none; names it.
        UnsuitableColumns: See `with_unit`; or there are no columns and no ``unit``.

    Example:
        >>> rows_of(words, event["outstanding"], "file_key", "position").rows  # doctest: +SKIP
    """
    wanted = frozenset(_id_of(one) for one in ids)
    if columns:
        units = with_unit(df, *columns)
    elif dict(df.dtypes).get("unit") == "bigint":
        units = df
    else:
        raise UnsuitableColumns(
            "no unit columns were given, and the frame has no column unit (bigint): "
            f"it has {', '.join(df.columns)}"
        )
    signed = [(one - (1 << 64) if one >> 63 else one,) for one in sorted(wanted)]
    asked = df.sparkSession.createDataFrame(signed, "unit long")
    rows = units.join(F.broadcast(asked), "unit", "left_semi").persist()
    found = frozenset(row["unit"] % (1 << 64) for row in rows.select("unit").distinct().collect())
    return Found(rows, wanted - found)


def _id_of(given: int | str) -> int:
    """An id, unsigned."""
    expected = "a unit's id: a non-zero 64-bit integer, or 16 hex digits"
    number: object = given
    if isinstance(given, str):
        if len(given) != _HEX_DIGITS or not set(given) <= set("0123456789abcdefABCDEF"):
            raise InvalidRequest("id", given, expected)
        number = int(given, 16)
    if isinstance(number, bool) or not isinstance(number, int):
        raise InvalidRequest("id", given, expected)
    if number == 0 or not -(1 << 63) <= number < 1 << 64:
        raise InvalidRequest("id", given, expected)
    return number % (1 << 64)


def fold(
    df: DataFrame,
    key: str,
    unit: ColumnOrName,
    *,
    kind: Kind = "traced",
    cells: int = TRACED_CELLS,
    stamp: str = "stamp",
    count: str = "count",
) -> DataFrame:
    """XOR the stamps of a frame's units together: one row a chain, whatever the number of units.

    Folded before the shuffle too (partial aggregation): what is shuffled grows with the chains and
    the tasks, not with the units.

    Args:
        df: One row a unit.
        key: The name of the column that tells the chains apart. Take a long, for example
            ``unit("path")``: strings cost half as much again.
        unit: The column of unit ids, long and never 0: see `unit`.
        kind: ``traced``, stamps that name the outstanding units of a chain; or ``plain``, 8 bytes.
        cells: The cells of each table of traced stamps; see `xorack.traced`.
        stamp: The name of the column of stamps.
        count: The name of the column of counts.

    Returns:
        A frame of ``key``, ``stamp`` (binary) and ``count`` (long, the number of units). A stamp is
        all zeros only if each unit came an even number of times: see `check_units`.

    Raises:
        UnsuitableColumns: ``key`` is not in the frame, or ``kind`` is neither of the two.
        InvalidRequest: ``cells`` is invalid.
    """
    if key not in df.columns:
        raise UnsuitableColumns(
            f"key column {key} is not in the frame, which has {', '.join(df.columns)}"
        )
    units = df.select(F.col(f"`{key}`").alias(key), _column(unit).alias("_unit"))
    if kind == "plain":
        return units.groupBy(f"`{key}`").agg(
            F.unhex(_little_endian_hex(F.bit_xor("_unit"))).alias(stamp),
            F.count(F.lit(1)).alias(count),
        )
    if kind != "traced":
        raise UnsuitableColumns(f"kind: {kind!r}, expected 'traced' or 'plain'")
    # The hash is a column of its own: inside the generator it would be computed for each table.
    hashed = units.select(F.col(f"`{key}`"), F.xxhash64("_unit").alias("_hash"))
    per_cell = hashed.select(
        F.col(f"`{key}`"),
        F.col("_hash"),
        F.explode(F.array(*_words(F.col("_hash"), check_cells(cells)))).alias("_word"),
    )
    folded = per_cell.groupBy(f"`{key}`", "_word").agg(
        F.bit_xor("_hash").alias("_xor"), F.count(F.lit(1)).alias("_units")
    )
    first_table = F.col("_word") <= cells
    # Cells are shuffled one by one, and each gets the zeros between it and the one before it. Lists
    # begun by the tasks would have the order of fetching, and Spark 4 fails a job rather than
    # repeat such a stage (after an executor was lost) behind a write of which a part is done.
    in_order = Window.partitionBy(f"`{key}`").orderBy("_word")
    before = F.coalesce(F.lag("_word").over(in_order), F.lit(0))
    digits = folded.withColumn(
        "_hex",
        F.concat(_zeros(F.col("_word") - before - 1), _little_endian_hex(F.col("_xor"))),
    )
    by_key = digits.groupBy(f"`{key}`").agg(
        # Each unit is in one cell of each table: the first table's XOR is that of all hashes.
        F.bit_xor(F.when(first_table, F.col("_xor"))).alias("_all"),
        F.sum(F.when(first_table, F.col("_units"))).alias(count),
        F.sort_array(F.collect_list(F.struct("_word", "_hex"))).alias("_cells"),
    )
    tables = F.rpad(F.array_join("_cells._hex", ""), 16 * TRACED_TABLES * cells, "0")
    whole = F.unhex(F.concat(_little_endian_hex(F.col("_all")), tables))
    return by_key.select(f"`{key}`", whole.alias(stamp), f"`{count}`")


def stamp_of(unit: ColumnOrName, kind: Kind = "traced", cells: int = TRACED_CELLS) -> Column:
    """Return the stamp of one unit, as `xorack.traced` and `xorack.plain` make it.

    For few rows: to fold many, use `fold`, which never makes single stamps.

    Args:
        unit: A column of unit ids, long and never 0.
        kind: ``traced`` or ``plain``.
        cells: The cells of each table of traced stamps; see `xorack.traced`.

    Returns:
        A binary column.

    Raises:
        InvalidRequest: ``cells`` is invalid.
    """
    column = _column(unit)
    if kind == "plain":
        return F.unhex(_little_endian_hex(column))
    hashed = F.xxhash64(column)
    digits = _little_endian_hex(hashed)
    parts = [digits]
    for table, word in enumerate(_words(hashed, check_cells(cells))):
        before = word - (1 + cells * table)
        parts += [_zeros(before), digits, _zeros(cells - 1 - before)]
    return F.unhex(F.concat(*parts))


def _words(hashed: Column, cells: int) -> Sequence[Column]:
    """Return the words of a traced stamp that hold this hash, one in each table."""
    bits = cells.bit_length() - 1
    return [
        (F.shiftright(hashed, bits * table).bitwiseAND(cells - 1) + (1 + cells * table)).cast("int")
        for table in range(TRACED_TABLES)
    ]


def _zeros(words: Column) -> Column:
    """So many words of zeros, in hex digits."""
    # `F.repeat` takes no column before PySpark 4.
    return F.call_function("repeat", F.lit(_ZEROS), words)


def _little_endian_hex(value: Column) -> Column:
    """The 8 little-endian bytes of a long as 16 hex digits.

    Spark writes big-endian; the swaps are shifts and masks, as a cast to binary is refused in ANSI
    mode and `reverse` takes no binary.
    """
    for shift, mask in ((8, 0x00FF00FF00FF00FF), (16, 0x0000FFFF0000FFFF)):
        value = (
            F.shiftrightunsigned(value, shift)
            .bitwiseAND(F.lit(mask))
            .bitwiseOR(F.shiftleft(value.bitwiseAND(F.lit(mask)), shift))
        )
    value = F.shiftrightunsigned(value, 32).bitwiseOR(F.shiftleft(value, 32))
    return F.lpad(F.hex(value), 16, "0")
