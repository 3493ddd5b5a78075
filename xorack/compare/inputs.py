"""Inputs of DuckDB: files, folders, patterns and addresses, and queries."""

from __future__ import annotations

import codecs
import csv
import gzip
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from glob import escape, glob
from pathlib import Path
from typing import Any

from xorack.compare.forms import FLOATS, MAX_DIGITS, digits, is_nested
from xorack.compare.messages import reading
from xorack.compare.options import open_network
from xorack.compare.texts import Column, literal, quoted
from xorack.core.errors import ArgumentError, StateError

__all__ = ["FORMATS", "LOGS", "Input", "ReadOptions", "check_out", "format_of", "is_file"]
__all__ += ["open_inputs", "partitions_of"]

FORMATS = ("parquet", "csv", "json")
_EXTENSIONS = {name: name for name in FORMATS}
_EXTENSIONS |= {"tsv": "csv", "jsonl": "json", "ndjson": "json"}
_COMPRESSED = ("gz", "zst", "bz2", "deflate", "lz4", "snappy")
_FILE = re.compile(rf"\.({'|'.join(_EXTENSIONS)})(\.\w+)?$", re.IGNORECASE)
_ADDRESS = re.compile(r"(s3|gs|gcs|r2|https?|hf)://")
LOGS = {"_delta_log": "Delta", ".hoodie": "Hudi"}
"""Folders of tables whose Parquet files also hold rows that were deleted."""
_MAX_LINE_BYTES = 1 << 24


@dataclass(frozen=True)
class ReadOptions:
    """Options for an input.

    Attributes:
        format: The format of files whose names do not tell: one of `FORMATS`.
        delimiter: What separates the fields of CSV; those of ``.tsv`` files are by tabs.
        header: Whether the first line of CSV has the names of columns.
        nulls: Words of CSV that mean null, beside an empty field.
        encoding: The encoding of CSV: ``utf-8``, ``utf-16`` or ``latin-1``.
        where: A condition in SQL: rows that do not meet it are left out.
        sql: A query in place of files.
    """

    format: str | None = None
    delimiter: str = ","
    header: bool = True
    nulls: Sequence[str] = ()
    encoding: str = "utf-8"
    where: Sequence[str] = ()
    sql: str | None = None


@dataclass
class Input:
    """An input that was opened.

    Attributes:
        name: What the user calls it.
        relation: SQL that reads it.
        columns: Its columns.
        format: One of `FORMATS`, or ``query``.
        options: How it is read.
        files: Its files.
        partitions: The columns that its folders name.
        rounded: What DuckDB rounds of columns of Parquet, by their names without case.
    """

    name: str
    relation: str
    format: str
    options: ReadOptions
    files: list[str] = field(default_factory=list)
    partitions: list[str] = field(default_factory=list)
    columns: list[Column] = field(default_factory=list)
    rounded: dict[str, str] = field(default_factory=dict)

    @property
    def empty_is_null(self) -> bool:
        """True if an empty text means null."""
        return self.format == "csv"


def is_file(name: str) -> bool:
    """Return true if a name is one of files that DuckDB reads, not a table's."""
    if _ADDRESS.match(name) or os.path.exists(name):
        return True
    if "://" in name or "`" in name:
        return False
    return bool("/" in name or _FILE.search(name) or re.search(r"[*?\[]", name))


def open_inputs(con: Any, names: Sequence[str], options: Sequence[ReadOptions]) -> list[Input]:
    """Open two inputs to compare; their formats may differ.

    Raises:
        StateError: An input does not exist or cannot be read; the message begins with its name.
    """
    inputs = []
    for name, how in zip(names, options, strict=True):
        with reading(name):
            inputs.append(_open(con, name, how))
    both_json = {one.format for one in inputs} == {"json"}
    for one in inputs:
        with reading(one.name):
            if one.format == "json":
                others = [file for other in inputs for file in other.files] if both_json else []
                _open_json(con, one, others)
            elif not one.columns:
                one.columns = _describe(con, one.relation)
            soft = one.partitions
            one.columns = [c._replace(is_soft=c.is_soft or c.name in soft) for c in one.columns]
    return inputs


def check_out(folder: str) -> None:
    """Check that a folder to write to is empty or new, and can be written.

    Raises:
        ArgumentError: It is not.
    """
    path = Path(os.path.abspath(folder))
    nearest = next(one for one in (path, *path.parents) if os.path.lexists(one))
    if nearest == path and not (path.is_dir() and not os.listdir(path)):
        raise ArgumentError("out", problem=f"{folder} is not an empty folder")
    if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
        raise ArgumentError("out", problem=f"{folder}: cannot write to {nearest}")


def partitions_of(name: str, files: Sequence[str], base: str) -> list[str]:
    """Return the names of columns in folders below a base, such as ``day=2026-01-31``.

    Raises:
        StateError: A file is not in such a folder, though others are.
    """
    found = [re.findall(r"(?<=/)([^/=]+)=[^/]*(?=/)", file.removeprefix(base)) for file in files]
    for file, own in zip(files, found, strict=True):
        if missing := {column for columns in found for column in columns} - {*own}:
            where = f"{min(missing)}=…, as others are"  # its column would be null
            raise StateError(f"{name}: {file} is not in a folder {where}")
    return found[0] if found else []


def _open(con: Any, name: str, how: ReadOptions) -> Input:
    if how.sql is not None:
        if len(con.extract_statements(how.sql)) != 1:
            raise StateError(f"{name}: {how.sql!r}, expected one query")
        _check_names(name, [row[0] for row in con.execute(f"DESCRIBE {how.sql}").fetchall()])
        view = quoted(how.sql)  # a view may end in ; and comments
        con.execute(f"CREATE OR REPLACE TEMP VIEW {view} AS {how.sql}")
        return Input(name, view, "query", how)
    if _ADDRESS.match(name):
        open_network(con, name)
    files, base = _files(con, name)
    kind = format_of(name, files, how.format)
    found = Input(name, "", kind, how, files, partitions_of(name, files, base))
    if kind == "csv":
        _open_csv(con, found)
    elif kind == "parquet":
        found.rounded = _check_parquet(con, found)
        wanted = {name.lower() for name in found.partitions}
        own = f"read_parquet({_paths(files[:1])}, hive_partitioning = false)"
        if wanted and wanted <= {column.name.lower() for column in _describe(con, own)}:
            found.partitions = []  # DuckDB mistakes statistics of these columns for the folders'
        found.relation = _read("read_parquet", found, {"union_by_name": len(files) > 1})
    return found


def _read(function: str, one: Input, options: dict[str, Any], files: Sequence[str] = ()) -> str:
    """Return SQL that reads files, with the partitions of the input as columns, and no others."""
    options = options | {"hive_partitioning": bool(one.partitions)}
    if one.partitions:
        options["hive_types_autocast"] = False
    given = "".join(f", {name} = {literal(value)}" for name, value in options.items())
    read = f"{function}({_paths(files or one.files)}{given})"
    # DuckDB makes a column of each folder name=value of a path, also of those above the input.
    above = {*re.findall(r"/([^/=]+)=[^/]*(?=/)", one.files[0])} - {*one.partitions}
    if not (one.partitions and above):
        return read
    return f"(SELECT * EXCLUDE ({', '.join(map(quoted, sorted(above)))}) FROM {read})"


def _paths(files: Sequence[str]) -> str:
    """Return SQL of files, each a pattern; HTTP has none."""
    return literal([file if file.startswith("http") else escape(file) for file in files])


def _describe(con: Any, relation: str) -> list[Column]:
    described = con.execute(f"SELECT * FROM {relation} LIMIT 0").description
    return [Column(name, type_) for name, type_, *_ in described]


def _check_names(where: str, names: Iterable[str]) -> None:
    """Check that names differ without case: DuckDB would rename them, by their order."""
    for name, count in Counter(map(str.lower, names)).items():
        if not name or count > 1:
            twins = f"{count} columns or fields {name!r}"
            raise StateError(f"{where} has {twins if name else 'a column or field without name'}")


def _check_parquet(con: Any, one: Input) -> dict[str, str]:
    """Check the names of all columns, also in structs; return what DuckDB rounds of them."""
    is_rounded = "logical_type LIKE '%NANOS=Nano%' AND duckdb_type <> 'TIMESTAMP_NS'"
    sql = f"""SELECT name, num_children, CASE WHEN {is_rounded} THEN 'nanoseconds'
        WHEN "precision" > 38 THEN "precision" || ' digits' END, duckdb_type
        FROM parquet_schema({_paths(one.files)}) ORDER BY file_name, column_id"""
    rounded: dict[str, str] = {}
    types: dict[tuple[str, ...], set[str]] = {}
    groups: list[tuple[int, list[str]]] = []  # those not complete, and how many names they have
    for name, children, what, type_ in con.execute(sql).fetchall():
        while groups and len(groups[-1][1]) == groups[-1][0]:
            _check_names(one.name, groups.pop()[1])
        if groups:
            groups[-1][1].append(name)
        if what:
            rounded[groups[0][1][-1].lower()] = what
        if children:
            groups.append((children, []))
        elif type_:
            types.setdefault(tuple(own[-1].lower() for _, own in groups), set()).add(type_)
    for _, names in groups:
        _check_names(one.name, names)
    for path, of in types.items():  # DuckDB reads all files' values as one type
        exact = zip(*filter(None, (digits(con.dtype(name)) for name in of)), strict=True)
        if (most := [*map(max, exact)]) and (of & {"DOUBLE", "FLOAT"} or sum(most) > MAX_DIGITS):
            rounded[path[0]] = "numbers of other types"
    return rounded


def _files(con: Any, name: str) -> tuple[list[str], str]:
    """List the files of a path or pattern and of the folders below; and what is above them."""
    if _ADDRESS.match(name):
        is_folder = not (_FILE.search(name) or "*" in name)
        pattern = f"{name.rstrip('/')}/**" if is_folder else name
        files = [row[0] for row in con.execute("SELECT file FROM glob(?)", [pattern]).fetchall()]
        base = name.partition("*")[0] if is_folder or "*" in name else name.rpartition("/")[0] + "/"
        files = [one for one in files if not _is_hidden(one.removeprefix(base))]
        base = base.rstrip("/")
    else:
        matches = [one for one in sorted(glob(name)) if _is_hidden(one) <= _is_hidden(name)]
        tops = [name] if os.path.exists(name) else matches
        if not tops:
            raise StateError(f"{name}: there is no such file or folder")
        files, base = [], os.path.abspath(os.path.commonpath(tops) if len(tops) > 1 else tops[0])
        for top in tops:
            files += _files_below(name, top)
        if base in files or len(tops) > 1:
            base = os.path.commonpath(os.path.dirname(one) for one in files)
    if not files:
        raise StateError(f"{name}: no files; those that begin with _ or . are skipped")
    return sorted(files), base


def _files_below(name: str, top: str) -> list[str]:
    if os.path.isfile(top):
        return [os.path.abspath(top)]
    if not os.path.isdir(top):
        raise StateError(f"{name} is a pipe or a device, expected a file or folder")
    for log, kind in LOGS.items():
        if os.path.exists(os.path.join(top, log)):
            raise StateError(
                f"{name} is a {kind} table: its files also hold deleted rows. Name the table, "
                f"such as {kind.lower()}.`{name}`"
            )
    files = []
    for folder, _, held in os.walk(os.path.abspath(top), followlinks=True):
        if os.path.islink(folder) and any(map(Path(folder).samefile, Path(folder).parents)):
            raise StateError(f"{name}: {folder} is a link to a folder above it")
        paths = [os.path.join(folder, one) for one in held]
        files += [path for path in paths if not _is_hidden(os.path.relpath(path, top))]
    return files


def _is_hidden(path: str) -> bool:
    return any(
        part[:1] in ("_", ".") and part != "." for part in path.split("/") if "=" not in part
    )


def format_of(name: str, files: Sequence[str], default: str | None) -> str:
    """Return the format of files by their names.

    Raises:
        StateError: A name tells no format, or there are several.
    """
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


def _open_csv(con: Any, one: Input) -> None:
    name, how = one.name, one.options
    is_tsv = all(re.search(r"\.tsv(\.\w+)?$", file, re.IGNORECASE) for file in one.files)
    delimiter, encoding = "\t" if is_tsv else how.delimiter, how.encoding
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise ArgumentError("delimiter", delimiter, "one character, no quote or line break")
    if encoding == "utf-16" and not _ADDRESS.match(name):
        one.files, encoding = _as_utf_8(con, one.files), "utf-8"
    heads = {file: _first_record(con, one, file, delimiter, encoding) for file in one.files}
    first, *others = heads.items()
    if not first[1]:
        raise StateError(f"{name}: its first line is empty, so it has no columns")
    for file, head in others:
        if head != first[1] and how.header:
            raise StateError(f"{name}: {file} has the header {head}, and {first[0]} {first[1]}")
    names = [part if part and how.header else f"_c{i}" for i, part in enumerate(first[1])]
    _check_names(name, names)
    options = {
        "columns": dict.fromkeys(names, "VARCHAR"),
        "delim": delimiter,
        "header": how.header,
        "nullstr": ["", *how.nulls],
        "encoding": encoding,
        "max_line_size": _MAX_LINE_BYTES,
        **{"auto_detect": False, "strict_mode": True, "quote": '"', "escape": '"'},
    }
    one.relation = _read("read_csv", one, options)
    one.columns = [column._replace(is_soft=True) for column in _describe(con, one.relation)]


def _as_utf_8(con: Any, files: Sequence[str]) -> list[str]:
    """Copy files of UTF-16 as UTF-8: DuckDB reads no characters of 32 bits and no big endian."""
    (folder,) = con.execute("SELECT current_setting('temp_directory')").fetchone()
    for file in files:
        copy = Path(f"{folder}{file}.csv")
        copy.parent.mkdir(parents=True, exist_ok=True)
        opened = gzip.open if file.lower().endswith(".gz") else open
        with opened(file, "rb") as source:
            is_marked = source.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        encoding = "utf-16" if is_marked else "utf-16-le"
        with (
            opened(file, "rt", encoding=encoding, newline="") as source,
            copy.open("w", encoding="utf-8", newline="") as target,
        ):
            shutil.copyfileobj(source, target)
    return [f"{folder}{file}.csv" for file in files]


def _first_record(con: Any, one: Input, file: str, delimiter: str, encoding: str) -> list[str]:
    """Return the fields of the first record of a CSV file; it may have line breaks."""
    options: dict[str, Any] = {"columns": {"line": "VARCHAR"}, "delim": "\1\2\3\4", "quote": ""}
    options |= {"escape": "", "header": False, "auto_detect": False, "strict_mode": False}
    options |= {"encoding": encoding, "max_line_size": _MAX_LINE_BYTES}
    options["parallel"] = False  # else, the first rows are any thread's
    lines = _read("read_csv", one, options, [file])
    rows = con.execute(f"SELECT coalesce(line, '') || chr(10) FROM {lines} LIMIT 100").fetchall()
    return next(csv.reader([row[0] for row in rows], delimiter=delimiter), [])


def _open_json(con: Any, one: Input, others: Sequence[str]) -> None:
    """Choose the types of JSON by all values; beside other JSON, those of both sides.

    Text is no date, and a number that may have a fraction is text until its type is known.
    """
    import duckdb

    def fields(files: Sequence[str]) -> dict[str, Any]:
        # As records, DuckDB would rename fields. Many or sparse ones are a map, unless told.
        how = "sample_size = -1, records = false, union_by_name = true, hive_partitioning = false"
        for more in ("", ", map_inference_threshold = -1, field_appearance_threshold = 0"):
            ((_, type_, _),) = _describe(con, f"read_json({_paths(files)}, {how}{more})")
            if type_.id == "struct":
                inferred = dict(_json_type(one.name, type_).children)
                return inferred | dict.fromkeys(one.partitions, duckdb.sqltype("VARCHAR"))
        raise StateError(f"{one.name}: it has no objects, or other values, too")

    def is_soft(type_: Any) -> bool:
        return type_.id in FLOATS if others else not (is_nested(type_) or type_.id == "boolean")

    own = fields(one.files)
    try:
        types = fields(others) if others else own
    except duckdb.NotImplementedException:  # names differ in case between the sides
        types = own
    columns = [Column(name, types[name], is_soft(types[name])) for name in own]
    read = {
        c.name: "VARCHAR" if c.is_soft else str(c.type)
        for c in columns
        if c.name not in one.partitions
    }
    one.relation = _read("read_json", one, {"columns": read, "format": "auto"})
    one.columns = columns


def _json_type(where: str, type_: Any) -> Any:
    """Return a type that DuckDB infers from JSON, with text in place of dates and the like."""
    import duckdb

    if type_.id == "list":
        return duckdb.list_type(_json_type(where, dict(type_.children)["child"]))
    if type_.id == "struct":
        _check_names(where, [name for name, _ in type_.children])
        return duckdb.struct_type({name: _json_type(where, of) for name, of in type_.children})
    if type_.id == "map":
        of = dict(type_.children)
        return duckdb.map_type(of["key"], _json_type(where, of["value"]))
    is_own = type_.id in ("boolean", "bigint", "ubigint", "hugeint", "double")
    return type_ if is_own else duckdb.sqltype("VARCHAR")
