"""Inputs by name: Parquet, CSV and JSON files, and catalog tables.

A name with a ``/`` is a path; so are a pattern, such as ``day*``, and the name of an existing file.
Another one is a table's; so is one in backticks, ``delta.`/a/path` ``. A folder's files may lie in
folders of their own: with names such as ``day=2026-01-31``, these are columns.

CSV has no types, and JSON few. Their types follow from the values on both sides: see
`xorack.spark._diff.text_columns`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from glob import glob
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.sql import functions as F
from pyspark.sql import types as T

from xorack.core.errors import ArgumentError, StateError, XorAckError
from xorack.spark._diff.text_columns import Input, fit
from xorack.spark.messages import one_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FORMATS", "ReadOptions", "files_in", "open_inputs"]

FORMATS = ("parquet", "csv", "json")
_EXTENSIONS = {name: name for name in FORMATS}
_EXTENSIONS |= {"tsv": "csv", "jsonl": "json", "ndjson": "json"}
_COMPRESSED = ("bz2", "deflate", "gz", "lz4", "snappy", "zst")
_FILE = re.compile(rf"\.({'|'.join(_EXTENSIONS)})(\.\w+)?$", re.IGNORECASE)
_PATTERN = re.compile(r"([\[\]{}*?\\])")
_SUMMARY = re.compile(r"/_(common_)?metadata$")
"""Files that some writers of Parquet add to a folder; they have no rows."""
_ANY_COLUMN = "`no other column has this name`"
_TRIMMED = "trim(BOTH '\ufeff \t\r\n' FROM value)"
_LOGS = {"_delta_log": "Delta", ".hoodie": "Hudi"}
"""Folders of tables whose Parquet files also hold rows that were deleted."""
_Options = dict[str, Any]
_CSV: _Options = {
    "header": True,
    "multiLine": True,
    "escape": '"',
    # Without these, Spark drops surplus fields and takes columns by their place in silence.
    "mode": "FAILFAST",
    "enforceSchema": False,
    "columnPruning": False,
}
_NUMBERS = (T.LongType, T.DecimalType, T.DoubleType)


@dataclass(frozen=True)
class ReadOptions:
    """Options for both inputs.

    Attributes:
        format: The format of files whose names do not tell: one of `FORMATS`.
        delimiter: What separates the fields of CSV; those of ``.tsv`` files are by tabs.
        text: The columns whose values are compared as text.
        where: A condition in SQL: rows that do not meet it are left out.
        is_local: True if Spark reads the files of this machine.
    """

    format: str | None = None
    delimiter: str = ","
    text: Sequence[str] = ()
    where: str | None = None
    is_local: bool = True


@dataclass(frozen=True)
class _Source:
    """An input that was found. ``files`` is empty for a table; ``options`` are of all its reads."""

    name: str
    format: str
    path: str
    files: Sequence[str] = ()
    options: _Options = field(default_factory=dict)


def open_inputs(
    spark: SparkSession, left: str, right: str, options: ReadOptions
) -> tuple[DataFrame, DataFrame, list[str]]:
    """Open two inputs to compare; their formats may differ.

    Args:
        spark: The session.
        left: The name of the left input.
        right: The name of the right input.
        options: How to read them.

    Returns:
        Both frames, and remarks on columns for the user, in one line each.

    Raises:
        StateError: An input does not exist or cannot be read; the message begins with its name.
        ArgumentError: The condition is invalid.
    """
    sources = [_find(spark, name, options) for name in (left, right)]
    opened = _read_both(spark, sources, options)
    with _reading(f"{left}, {right}"):
        frames, remarks = fit(*opened, options.text)
    if options.where is not None:
        frames = [
            _filter(frame, options.where, side)
            for frame, side in zip(frames, ("left", "right"), strict=True)
        ]
    return frames[0], frames[1], remarks


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


def _find(spark: SparkSession, name: str, options: ReadOptions) -> _Source:
    path = _path(name, options)
    if path is None:
        return _Source(name, "table", name)
    with _reading(name):
        files = files_in(spark, path)
        if files is None:
            raise StateError(f"{name}: there is no such file or folder")
        if len(files) != 1 or _last(files[0]) != _last(_plain(path)):
            _check_folder(spark, name, path)
        if not files:
            raise StateError(f"{name}: no files; Spark skips those that begin with _ or .")
        kind = _format(name, files, options.format)
        found = _lookup(spark, name, path, files)
        if kind == "json":
            found |= _json_options(spark, name, path, found)
        return _Source(name, kind, path, files, found)


def _check_folder(spark: SparkSession, name: str, path: str) -> None:
    """Reject the folder of a table whose files also hold deleted rows."""
    for log, kind in _LOGS.items():
        if files_in(spark, f"{path}/{log}") is not None:
            raise StateError(
                f"{name} is a {kind} table: its files also hold deleted rows. Name the table, "
                f"such as {kind.lower()}.`{name}`"
            )


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _plain(path: str) -> str:
    """Return a path without the escapes of patterns."""
    return re.sub(r"\\(.)", r"\1", path)


def _path(name: str, options: ReadOptions) -> str | None:
    """Return the path that Spark takes, or None for the name of a table."""
    if os.path.exists(name) and options.is_local:
        if not (os.path.isfile(name) or os.path.isdir(name)):
            raise StateError(f"{name} is a pipe or a device, expected a file or folder")
        return "file:" + _PATTERN.sub(r"\\\1", os.path.abspath(name))
    if options.is_local and glob(name):
        return f"file:{os.path.abspath(name)}"
    if "`" in name:
        return None
    is_path = "/" in name or os.path.exists(name) or _FILE.search(name) or _PATTERN.search(name)
    return name if is_path else None


def _format(name: str, files: Sequence[str], default: str | None) -> str:
    examples: dict[str | None, str] = {}
    for file in files:
        *_, before, last = ["", *file.rpartition("/")[2].lower().split(".")]
        examples[_EXTENSIONS.get(before if last in _COMPRESSED else last, default)] = file
    if None in examples:
        raise StateError(
            f"{name}: the format of {examples[None]} is unknown: give it, one of "
            f"{', '.join(FORMATS)}"
        )
    (kind, example), *others = examples.items()
    if others:
        raise StateError(
            f"{name} has files of several formats, such as {example} and {others[0][1]}: use a "
            "pattern, such as folder/*.csv"
        )
    return str(kind)


def _read_both(
    spark: SparkSession, sources: Sequence[_Source], options: ReadOptions
) -> tuple[Input, Input]:
    schemas = [_json_schema(spark, one) for one in sources]
    left, right = schemas
    if left is not None and right is not None:
        common = {field.name: field for field in _merged_fields(left, right)}
        schemas = [T.StructType([common[name] for name in one.names]) for one in (left, right)]
    both_json = left is not None and right is not None
    inputs = []
    for source, schema in zip(sources, schemas, strict=True):
        is_table = source.format == "table"
        with _reading(f"{source.name} is not a file; as a table" if is_table else source.name):
            if schema is not None:
                inputs.append(_read_json(spark, source, schema, soft_strings=not both_json))
            else:
                inputs.append(_read(spark, source, options))
            if not inputs[-1].frame.columns:
                raise StateError(f"{source.name}: it is empty, so it has no columns")
    return inputs[0], inputs[1]


def _read(spark: SparkSession, source: _Source, options: ReadOptions) -> Input:
    """Read a table, Parquet or CSV; all columns of CSV are text."""
    if source.format == "table":
        return Input(source.name, spark.table(source.name))
    reader = spark.read.options(**source.options)
    if source.format == "parquet":
        # Without it, Spark leaves out the columns that some file lacks.
        merge = len(source.files) > 1
        return Input(source.name, reader.option("mergeSchema", merge).parquet(source.path))
    is_tsv = all(re.search(r"\.tsv(\.\w+)?$", file, re.IGNORECASE) for file in source.files)
    delimiter = "\t" if is_tsv else options.delimiter
    reader = reader.options(**_CSV, sep=delimiter)
    frame = reader.csv(source.path)
    if any("\0" in name for name in frame.columns):
        raise StateError(f"{source.name}: the header has NUL characters, expected UTF-8")
    has_unnamed = any(name == f"_c{i}" for i, name in enumerate(frame.columns))
    if has_unnamed and len(source.files) == 1:
        # Spark names such columns, and then fails to find the names in the header.
        frame = reader.option("enforceSchema", True).csv(source.path)
    text = frozenset(
        field.name for field in frame.schema.fields if isinstance(field.dataType, T.StringType)
    )
    return Input(source.name, frame, text, empty_is_null=True)


def _lookup(spark: SparkSession, name: str, path: str, files: Sequence[str]) -> _Options:
    """Return the option that reads folders in folders: Spark does so for partitions only."""
    partitions = spark.read.schema(f"{_ANY_COLUMN} string").text(path).columns[1:]
    for file in files if partitions else ():
        if f"/{partitions[0]}=".lower() not in file.lower():  # Spark leaves it out in silence
            raise StateError(f"{name}: {file} is not in a folder {partitions[0]}=…, as others are")
    return {"recursiveFileLookup": not partitions}


def _json_schema(spark: SparkSession, source: _Source) -> T.StructType | None:
    if source.format != "json":
        return None
    with _reading(source.name):
        return spark.read.options(**source.options).json(source.path).schema


def _json_options(spark: SparkSession, name: str, path: str, lookup: _Options) -> _Options:
    """Return the options for an array of objects, or for an object on each line."""
    reader = spark.read.options(**lookup)
    value = F.expr(_TRIMMED)
    texts = reader.text(path).where(value != "")
    is_list = value.startswith("[") & value.endswith("]")
    first = texts.select(value.startswith("[") & ~value.endswith("]")).head(1)
    # Spark reads the first value of a line, or of such a file, and drops others in silence.
    if is_array := bool(first and first[0][0]):
        texts = reader.text(path, wholetext=True).where(value != "")
        is_valid = is_list
    else:
        count = F.json_array_length(F.concat(F.lit("["), "value", F.lit("]")))
        # No number is for invalid JSON: two objects, or what Spark's reader allows beyond it.
        several = F.when(value.rlike(r"[}\]]\s*[{\[]"), 2).otherwise(1)
        is_valid = is_list | value.startswith("{") & value.endswith("}")
        is_valid &= F.coalesce(count, several) == 1
    if texts.where(~is_valid).head(1):
        raise StateError(
            f"{name}: expected JSON with an object on each line, or an array of objects in a file"
        )
    return {"mode": "FAILFAST", "multiLine": is_array}


def _read_json(
    spark: SparkSession, source: _Source, schema: T.StructType, *, soft_strings: bool
) -> Input:
    """Read JSON. Numbers that may have fractions are text until their type is known."""
    soft = (*_NUMBERS, T.StringType) if soft_strings else (T.DoubleType,)
    text = frozenset(field.name for field in schema.fields if isinstance(field.dataType, soft))
    fields = [
        T.StructField(field.name, T.StringType() if field.name in text else field.dataType)
        for field in schema.fields
    ]
    reader = spark.read.options(**source.options).schema(T.StructType(fields))
    return Input(source.name, reader.json(source.path), text)


def _merged(left: T.DataType, right: T.DataType) -> T.DataType:
    """Return a type that the JSON of both sides can be read as."""
    if isinstance(left, T.StructType) and isinstance(right, T.StructType):
        return T.StructType(_merged_fields(left, right))
    if isinstance(left, T.ArrayType) and isinstance(right, T.ArrayType):
        return T.ArrayType(_merged(left.elementType, right.elementType))
    if left == right:
        return left
    if isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS):
        is_double = T.DoubleType() in (left, right)
        return T.DoubleType() if is_double else T.DecimalType(38, 0)
    return T.StringType()


def _merged_fields(left: T.StructType, right: T.StructType) -> list[T.StructField]:
    types = {field.name: field.dataType for field in left.fields}
    for one in right.fields:
        types[one.name] = _merged(types.get(one.name, one.dataType), one.dataType)
    return [T.StructField(name, type_) for name, type_ in types.items()]


def _filter(frame: DataFrame, where: str, side: str) -> DataFrame:
    try:
        filtered = frame.where(where)
        _ = filtered.schema  # Spark Connect looks at the condition now
    except Exception as error:
        raise ArgumentError("where", problem=f"{one_line(error)} (on the {side})") from error
    return filtered


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Turn an error of Spark into one of ours that names the input."""
    try:
        yield
    except XorAckError:
        raise
    except Exception as error:
        raise StateError(f"{name}: {one_line(error)}") from error
