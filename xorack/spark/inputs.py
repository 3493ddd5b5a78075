"""Inputs by name: Parquet, CSV and JSON files, and catalog tables.

A name with a ``/`` is a path, and so is that of an existing file. Another one is a table's; so is
one in backticks, ``delta.`/a/path` ``. Paths may hold patterns, such as ``*``. A folder's files may
lie in folders of their own: with names such as ``day=2026-01-31``, these are columns.

CSV has no types, and JSON few. Their types follow from the values on both sides: see
`xorack.spark.text_columns`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.sql import functions as F
from pyspark.sql import types as T

from xorack.core.errors import XorAckError
from xorack.spark.errors import InvalidOption
from xorack.spark.messages import one_line
from xorack.spark.text_columns import Input, fit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FORMATS", "CannotRead", "ReadOptions", "files_in", "open_inputs"]

FORMATS = ("parquet", "csv", "json")
_EXTENSIONS = {name: name for name in FORMATS}
_EXTENSIONS |= {"tsv": "csv", "jsonl": "json", "ndjson": "json"}
_COMPRESSED = ("bz2", "deflate", "gz", "lz4", "snappy", "zst")
_FILE = re.compile(rf"\.({'|'.join(_EXTENSIONS)})(\.\w+)?$", re.IGNORECASE)
_PATTERN = re.compile(r"([\[\]{}*?\\])")
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


class CannotRead(XorAckError):
    """An input does not exist or cannot be read."""


@dataclass(frozen=True)
class ReadOptions:
    """How to read both inputs.

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
    """An input that was found; ``files`` is empty for a table."""

    name: str
    format: str
    path: str
    files: Sequence[str]


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
        CannotRead: An input does not exist or cannot be read; the message begins with its name.
        InvalidOption: The condition is invalid.
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
        return sorted(unquote(file) for file in reader.text(path).inputFiles())
    except Exception as error:
        if "PATH_NOT_FOUND" in str(error):
            return None
        raise


def _find(spark: SparkSession, name: str, options: ReadOptions) -> _Source:
    path = _path(name, options)
    if path is None:
        return _Source(name, "table", name, ())
    with _reading(name):
        files = files_in(spark, path)
        if files is None:
            raise CannotRead(f"{name}: there is no such file or folder")
        for log, kind in _LOGS.items():
            if not _FILE.search(path) and files_in(spark, f"{path}/{log}") is not None:
                raise CannotRead(
                    f"{name} is a {kind} table: its files also hold deleted rows. Name the table, "
                    f"such as {kind.lower()}.`{name}`"
                )
        if not files:
            raise CannotRead(f"{name}: the folder is empty")
        return _Source(name, _format(name, files, options.format), path, files)


def _path(name: str, options: ReadOptions) -> str | None:
    """Return the path that Spark takes, or None for the name of a table."""
    if "`" in name:
        return None
    if os.path.exists(name) and options.is_local:
        return "file:" + _PATTERN.sub(r"\\\1", os.path.abspath(name))
    is_path = "/" in name or os.path.exists(name) or _FILE.search(name)
    return name if is_path else None


def _format(name: str, files: Sequence[str], default: str | None) -> str:
    examples: dict[str | None, str] = {}
    for file in files:
        *_, before, last = ["", *file.rpartition("/")[2].lower().split(".")]
        examples[_EXTENSIONS.get(before if last in _COMPRESSED else last, default)] = file
    if None in examples:
        raise CannotRead(
            f"{name}: the format of {examples[None]} is unknown: give it, one of "
            f"{', '.join(FORMATS)}"
        )
    (kind, example), *others = examples.items()
    if others:
        raise CannotRead(
            f"{name} has files of several formats, such as {example} and {others[0][1]}: use a "
            "pattern, such as folder/*.csv"
        )
    return str(kind)


def _read_both(
    spark: SparkSession, sources: Sequence[_Source], options: ReadOptions
) -> tuple[Input, Input]:
    schemas = [_json_schema(spark, one) if one.format == "json" else None for one in sources]
    left, right = schemas
    if left is not None and right is not None:
        common = {field.name: field for field in _merged_fields(left, right)}
        schemas = [T.StructType([common[name] for name in one.names]) for one in (left, right)]
    both_json = left is not None and right is not None
    inputs = []
    for source, schema in zip(sources, schemas, strict=True):
        with _reading(source.name):
            if schema is not None:
                inputs.append(_read_json(spark, source, schema, soft_strings=not both_json))
            else:
                inputs.append(_read(spark, source, options))
            if not inputs[-1].frame.columns:
                raise CannotRead(f"{source.name}: it is empty, so it has no columns")
    return inputs[0], inputs[1]


def _read(spark: SparkSession, source: _Source, options: ReadOptions) -> Input:
    """Read a table, Parquet or CSV; all columns of CSV are text."""
    if source.format == "table":
        return Input(source.name, spark.table(source.name))
    reader = spark.read.options(**_lookup(source))
    if source.format == "parquet":
        # Without it, Spark leaves out the columns that some file lacks.
        merge = len(source.files) > 1
        return Input(source.name, reader.option("mergeSchema", merge).parquet(source.path))
    is_tsv = all(re.search(r"\.tsv(\.\w+)?$", file, re.IGNORECASE) for file in source.files)
    delimiter = "\t" if is_tsv else options.delimiter
    frame = reader.options(**_CSV, sep=delimiter).csv(source.path)
    text = frozenset(
        field.name for field in frame.schema.fields if isinstance(field.dataType, T.StringType)
    )
    return Input(source.name, frame, text, empty_is_null=True)


def _lookup(source: _Source) -> _Options:
    """Return the option that reads folders in folders: Spark does so for partitions only."""
    root = re.sub(r"\\(.)", r"\1", source.path).removeprefix("file:")
    inside = [file.partition(root)[2] or file for file in source.files]
    return {"recursiveFileLookup": not any("=" in file.rpartition("/")[0] for file in inside)}


def _json_schema(spark: SparkSession, source: _Source) -> T.StructType:
    with _reading(source.name):
        return spark.read.options(**_json_options(spark, source)).json(source.path).schema


def _json_options(spark: SparkSession, source: _Source) -> _Options:
    """Return the options for an array of objects, or for an object on each line."""
    options: _Options = {"mode": "FAILFAST", **_lookup(source)}
    lines = spark.read.options(**_lookup(source)).text(source.path)
    line = F.trim(F.regexp_replace("value", r"^\uFEFF|\s+$", ""))
    ends = lines.select(F.left(line, F.lit(1)), F.right(line, F.lit(1))).where(line != "")
    first, last = next(iter(ends.head(1)), ("", ""))
    if first == "[" and last != "]":
        return {**options, "multiLine": True}
    if first and (first, last) not in {("{", "}"), ("[", "]")}:
        raise CannotRead(
            f"{source.name} is not JSON: expected an object on each line, or an array of objects"
        )
    return options


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
    reader = spark.read.options(**_json_options(spark, source)).schema(T.StructType(fields))
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
    for field in right.fields:
        types[field.name] = _merged(types.get(field.name, field.dataType), field.dataType)
    return [T.StructField(name, type_) for name, type_ in types.items()]


def _filter(frame: DataFrame, where: str, side: str) -> DataFrame:
    try:
        filtered = frame.where(where)
        _ = filtered.schema  # Spark Connect looks at the condition now
    except Exception as error:
        raise InvalidOption("where", f"{one_line(error)} (on the {side})") from error
    return filtered


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Turn an error of Spark into one of ours that names the input."""
    try:
        yield
    except XorAckError:
        raise
    except Exception as error:
        raise CannotRead(f"{name}: {one_line(error)}") from error
