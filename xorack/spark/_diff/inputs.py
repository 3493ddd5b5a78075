"""Inputs of Spark by name: tables, queries, and files as Spark's own readers take them.

A name with a ``/``, a pattern and the name of an existing file are paths. CSV is text; beside a
column with a type, it gets that type, and a value that does not fit is an error, as is text that
Spark's readers would change.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.sql import functions as F
from pyspark.sql import types as T

from xorack.compare.inputs import LOGS, ReadOptions, format_of, is_file, partitions_of
from xorack.compare.texts import pattern_of
from xorack.core.errors import ArgumentError, StateError, XorAckError
from xorack.spark.messages import one_line
from xorack.spark.units import GLOB, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["files_in", "open_frames"]

_SUMMARY = re.compile(r"/_(common_)?metadata$")
"""Files that some writers of Parquet add to a folder; they have no rows."""
_TIMES = {"timestamp": "TIMESTAMP WITH TIME ZONE", "timestamp_ntz": "TIMESTAMP"}
"""The names of DuckDB for types of Spark."""
_CSV: dict[str, Any] = {
    "header": True,
    "multiLine": True,
    "escape": '"',
    # Without these, Spark drops surplus fields and takes columns by their place in silence.
    "mode": "FAILFAST",
    "enforceSchema": False,
    "columnPruning": False,
}
_JSON = {"mode": "FAILFAST", "columnNameOfCorruptRecord": "a malformed record"}


def open_frames(
    spark: SparkSession, names: Sequence[str], read: Sequence[ReadOptions], *, is_local: bool
) -> list[DataFrame]:
    """Open two inputs to compare.

    Raises:
        StateError: An input does not exist or cannot be read; the message begins with its name.
        ArgumentError: A condition is invalid, or an option is DuckDB's alone.
    """
    frames, texts = [], []
    for name, how in zip(names, read, strict=True):
        if how.encoding != "utf-8" or how.nulls or not how.header:
            problem = "encodings, null words and CSV without header are for DuckDB"
            raise ArgumentError("engine", problem=problem)
        with _reading(name):
            frame, is_text = _open(spark, name, how, is_local=is_local)
        frames.append(frame)
        texts.append(is_text)
    if any(texts):
        frames = list(map(_fit, frames, frames[::-1], texts))
    for side, how in enumerate(read):
        for where in how.where:
            try:
                frames[side] = frames[side].where(where)
                _ = frames[side].schema  # Spark Connect looks at the condition now
            except Exception as error:
                problem = f"{one_line(error)} (on the {('left', 'right')[side]})"
                raise ArgumentError("where", problem=problem) from error
    return frames


def files_in(spark: SparkSession, path: str) -> list[str] | None:
    """List the files of a path or pattern and of the folders below, or return None for no path."""
    try:
        reader = spark.read.option("recursiveFileLookup", True)
        files = map(unquote, reader.text(path).inputFiles())
        return sorted(file for file in files if not _SUMMARY.search(file))
    except Exception as error:
        if "PATH_NOT_FOUND" in str(error):
            return None
        raise


def _open(
    spark: SparkSession, name: str, how: ReadOptions, *, is_local: bool
) -> tuple[DataFrame, bool]:
    """Return the frame of an input, and whether its columns are text."""
    if how.sql is not None:
        return spark.sql(how.sql), False
    is_here = is_local and os.path.exists(name)
    if not is_here and not is_file(name) and "://" not in name:
        return spark.table(name), False
    path = f"file:{os.path.abspath(name).translate(GLOB)}" if is_here else name
    files = files_in(spark, path)
    if files is None:
        raise StateError(f"{name}: there is no such file or folder")
    if not files:
        raise StateError(f"{name}: no files; Spark skips those that begin with _ or .")
    for log, kind in LOGS.items():
        if len(files) > 1 and files_in(spark, f"{path}/{log}") is not None:
            raise StateError(
                f"{name} is a {kind} table: its files also hold deleted rows. Name the table, "
                f"such as {kind.lower()}.`{name}`"
            )
    base = os.path.abspath(name) if is_here else re.split(r"[*?[{]", name)[0]
    *paths, base = (re.sub("^file:/+", "/", one) for one in (*files, base))
    # Beside folders with names of columns, Spark drops other files in silence.
    partitions = partitions_of(name, paths, base)
    reader = spark.read.option("recursiveFileLookup", not partitions)
    kind = format_of(name, files, how.format)
    if kind == "parquet":
        return reader.option("mergeSchema", len(files) > 1).parquet(path), False
    _check_text(spark.read.option("recursiveFileLookup", True).text(path), name, kind)
    if kind == "json":
        return reader.options(**_JSON).json(path), False
    # Spark's reader of CSV takes names for patterns when it infers columns.
    if odd := [file for file in files if file.translate(GLOB) != file]:
        raise StateError(f"{name}: Spark would take {odd[0]} for a pattern: rename it")
    is_tsv = all(re.search(r"\.tsv(\.\w+)?$", file, re.IGNORECASE) for file in files)
    return reader.options(**_CSV, sep="\t" if is_tsv else how.delimiter).csv(path), True


def _check_text(lines: DataFrame, name: str, kind: str) -> None:
    """Refuse text that Spark would change: its readers take it for other text."""
    value = F.col("value")
    quotes = F.sum(F.length(value) - F.length(F.translate(value, '"', "")))
    unclosed = "a quote is not closed, or is inside of a field without quotes"
    problem = F.when(F.max(value.rlike("\ufffd")), "it is not UTF-8, or has U+FFFD")
    if kind == "csv":
        problem = problem.when(quotes % 2 == 1, unclosed)
    else:
        problem = problem.when(F.max(value.rlike(r'(?<!\\)""\s*:')), "a field has no name")
        bare = F.regexp_replace(F.regexp_replace(value, r"\\.", ""), '"[^"]*"', "")
        goes_on = F.max(bare.rlike(r"[}\]]\s*[^\s,}\]]"))  # Spark takes the first object of a line
        problem = problem.when(goes_on, "a line goes on after the end of its object or array")
    files = lines.groupBy(F.input_file_name().alias("file")).agg(problem.alias("problem"))
    if found := files.where("problem IS NOT NULL").first():
        raise StateError(f"{name}: {unquote(found.file)}: {found.problem}")


def _fit(frame: DataFrame, other: DataFrame, is_text: bool) -> DataFrame:
    """Give the text of CSV the types of the other side; an empty text is null on both sides."""
    types = {field.name.lower(): field.dataType for field in other.schema}

    def cast(field: T.StructField) -> Column:
        name, column = field.name, F.col(quoted(field.name))
        if not isinstance(field.dataType, T.StringType):
            return column
        text = F.when(column != "", column)
        type_ = types.get(name.lower())
        if not is_text or type_ is None or isinstance(type_, T.StringType):
            return text.alias(name)
        shown = type_.simpleString()
        error = F.concat(F.lit(f"column {name}: "), column, F.lit(f" is not of the type {shown}"))
        value = F.when(_fits(name, type_), F.expr(f"try_cast({quoted(name)} AS {shown})"))
        fitted = F.coalesce(value, F.raise_error(error).cast(type_))
        return F.when(text.isNotNull(), fitted).alias(name)

    return frame.select(*map(cast, frame.schema))


def _fits(name: str, type_: T.DataType) -> Column:
    """Return true for text of a type's pattern that it does not round; fractions of doubles are."""
    if isinstance(type_, T.BinaryType):
        return F.lit(True)
    text, shown = F.col(quoted(name)), type_.typeName()
    fits = text.rlike(pattern_of(_TIMES.get(shown, shown.upper())))
    if isinstance(type_, T.DecimalType):
        return fits & text.rlike(rf"\A[^.]*(\.\d{{0,{type_.scale}}}0*)?\z")
    if isinstance(type_, (T.DoubleType, T.FloatType)):
        number = f"try_cast({quoted(name)} AS DECIMAL(38, 0))"
        is_exact = f"{number} = try_cast(CAST({number} AS DOUBLE) AS DECIMAL(38, 0))"
        return fits & (~text.rlike(r"\A[+-]?\d{16,}\z") | F.expr(f"coalesce({is_exact}, false)"))
    return fits


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Turn an error of Spark into one of ours that names the input."""
    try:
        yield
    except XorAckError:
        raise
    except Exception as error:
        raise StateError(f"{name}: {one_line(error)}") from error
