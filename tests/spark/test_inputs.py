"""Inputs by name: formats, folders, tables, and the types of text."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
from collections import Counter

import pyarrow.parquet as pq
import pytest

from tests.spark.helpers import write_files
from xorack.errors import ArgumentError, StateError
from xorack.spark import diff
from xorack.spark._diff.inputs import ReadOptions, open_inputs

ROWS = [(17, 1, "harpoon", 9.5), (17, 2, None, 4.0), (18, 1, "a\nb", 7.25)]
CSV = 'order,line,sku,price\n17,1,harpoon,9.50\n17,2,,4\n18,1,"a\nb",7.25\n'
QUOTED = (
    '"price","order","line","sku"\n"9.50","17","1","harpoon"\n"4","17","2",""\n'
    '"7.25","18","1","a\nb"\n'
)
LINES = "".join(
    json.dumps({"order": o, "line": n, "sku": s, "price": p}) + "\n" for o, n, s, p in ROWS
)


def counts(spark, left, right, **options):
    """Open and compare two inputs; return the counts that are not 0, and the remarks."""
    a, b, remarks = open_inputs(spark, str(left), str(right), ReadOptions(**options))
    key = [name for name in ("order", "line", "id") if name in a.columns]
    with diff(a, b, key=key) as d:
        found = {name: n for name, n in vars(d.counts).items() if n}
        return found | d.changed_columns, remarks


def two(tmp_path, left, right, extension="csv"):
    folder = write_files(tmp_path, {f"left.{extension}": left, f"right.{extension}": right})
    return folder / f"left.{extension}", folder / f"right.{extension}"


@pytest.fixture(scope="module")
def inputs(spark, tmp_path_factory):
    """The same rows in all formats and ways, by name."""
    rows = spark.createDataFrame(ROWS, "order int, line long, sku string, price double").coalesce(1)
    folder = write_files(
        tmp_path_factory.mktemp("inputs"),
        {
            "lines.csv": CSV,
            "windows.csv": "\ufeff" + CSV.replace("\n", "\r\n").replace("a\r\nb", "a\nb"),
            "quoted.csv": QUOTED,
            "lines.csv.gz": gzip.compress(CSV.encode()),
            "lines.tsv": CSV.replace(",", "\t"),
            "semicolons.txt": CSV.replace(",", ";"),
            "lines.jsonl": LINES,
            "array.json": json.dumps([json.loads(line) for line in LINES.splitlines()], indent=1),
            "one-line.json": f"[{','.join(LINES.splitlines())}]",
            "nested/a/1.csv": CSV[: CSV.index("18,1")],
            "nested/b/2.csv": "order,line,sku,price\n" + CSV[CSV.index("18,1") :],
            "orders/order=17/1.csv": "line,sku,price\n1,harpoon,9.50\n2,,4\n",
            "orders/order=18/1.csv": 'line,sku,price\n1,"a\nb",7.25\n',
            "index.csv": CSV.replace("order", ",order").replace("\n1", "\n,1"),
            "tick`.csv": "\ufeff" + QUOTED,
        },
    )
    rows.write.parquet(str(folder / "parquet"))
    schema = pq.read_schema(next((folder / "parquet").glob("*.parquet")))
    pq.write_metadata(schema, folder / "parquet" / "_metadata")
    shutil.copytree(folder / "parquet", folder / "od[d] {name}, x=y")
    shutil.copytree(folder / "nested", folder / "x=1" / "nested")
    rows.write.partitionBy("order").parquet(str(folder / "partitions"))
    rows.createOrReplaceTempView("xorack_inputs")
    yield folder
    spark.catalog.dropTempView("xorack_inputs")


@pytest.mark.parametrize(
    ("left", "right", "options"),
    [
        ("windows.csv", "one-line.json", {}),
        ("tick`.csv", "od[d] {name}, x=y", {}),
        ("xorack_inputs", "lines.jsonl", {}),
        ("index.csv", "nest*/*/*.csv", {}),
        ("semicolons.txt", "partitions", {"format": "csv", "delimiter": ";"}),
        pytest.param("quoted.csv", "array.json", {}, marks=pytest.mark.slow),
        pytest.param("lines.csv.gz", "lines.tsv", {}, marks=pytest.mark.slow),
        pytest.param("orders", "parquet", {}, marks=pytest.mark.slow),
        pytest.param("nested", "x=1/nest*", {}, marks=pytest.mark.slow),
        pytest.param("lines.csv", "nest*", {}, marks=pytest.mark.slow),
    ],
)
def test_every_format_has_the_same_rows(spark, inputs, monkeypatch, left, right, options):
    """A name without a slash is a file if there is one, else a table."""
    monkeypatch.chdir(inputs)
    *frames, remarks = open_inputs(spark, left, right, ReadOptions(**options))
    assert remarks == []
    for frame in frames:
        rows = frame.select("order", "line", "sku", "price").collect()
        assert Counter(map(tuple, rows)) == Counter(ROWS)


def one_row(values):
    """Return CSV of one row: a value of each column x0, x1, …"""
    heads = [f"x{n}" for n in range(len(values))]
    return f"id,{','.join(heads)}\n1,{','.join(values)}\n"


def more(values):
    """Return a second row, whose last value makes its column one of doubles."""
    return f"2{',' * len(values)}1e5\n"


def test_values_of_csv(spark, tmp_path):
    equal = {
        "9.50": "9.5",
        "1e1": "10.0",
        "+.5": "0.50",
        "True": "true",
        "2026-01-31": "2026-01-31 00:00:00",
        "2026-01-31T12:00:00Z": "2026-01-31 13:00:00.000+01:00",
        "": '""',
        "nan": "NaN",
    }
    others = {
        "12345678901234567890.1": "12345678901234567890.2",
        "9007199254740993": "9007199254740992",
        "007": "7",
        " 7": "7",
        "2026-01-31T12:00:00Z": "2026-01-31 12:00:00",
        "2026-01-31 12:00:00.123456789": "2026-01-31 12:00:00.123456788",
        "2026-02-30": "2026-02-30 00:00:00",
        "NULL": "",
        '"7\n"': "7",
        "9007199254740992": "9007199254740993",  # a double rounds it
    }
    sides = [[*equal, *others], [*equal.values(), *others.values()]]
    found, remarks = counts(spark, *two(tmp_path, *(one_row(of) + more(of) for of in sides)))
    changed = {f"x{n}": 1 for n in range(len(equal), len(sides[0]))}
    assert found == {"left": 2, "right": 2, "equal": 1, "changed": 1, **changed}
    assert remarks == []


@pytest.mark.slow
def test_one_value_makes_a_column_text(spark, tmp_path):
    left, right = "id,x,y,z\n1,1.0,1.0,1.0\n2,2,n/a,2\n", "id,x,y,z\n1,1,1,1\n2,2,n/a,2\n"
    found, _ = counts(spark, *two(tmp_path, left, right), text=["X"])
    assert found == {"left": 2, "right": 2, "equal": 1, "changed": 1, "x": 1, "y": 1}
    with pytest.raises(ArgumentError, match="text: column w is in neither input"):
        counts(spark, *two(tmp_path, left, right), text=["w"])


TYPED = [
    ("int", "7", "7", "equal"),
    ("int", "7", "7.0", "equal"),
    ("decimal(9,2)", "1.3", "1.25", "changed"),  # it is not rounded
    ("int", "7", "seven", "text"),
    ("date", "2026-01-31", "2026-01-31 10:00:00", "text"),
    ("timestamp", "2026-01-31T12:00:00Z", "2026-01-31 13:00:00+01:00", "equal"),
    ("timestamp_ntz", "2026-01-31T12:00:00", "2026-01-31 12:00:00.0", "equal"),
    ("float", "0.1", "0.1", "equal"),
    ("double", "9007199254740992", "9007199254740992", "equal"),
    ("double", "9007199254740992", "9007199254740993", "text"),  # a double rounds it
    ("boolean", "true", "TRUE", "equal"),
    ("string", "", "", "equal"),
    ("string", "007", "7", "changed"),
    ("array<int>", None, "", "equal"),
]


@pytest.mark.parametrize(
    "names", [("typed", "x.csv"), pytest.param(("x.csv", "typed"), marks=pytest.mark.slow)]
)
def test_csv_beside_types(spark, tmp_path, monkeypatch, names):
    columns = [
        f"CAST({'NULL' if value is None else repr(value)} AS {type_}) AS x{n}"
        for n, (type_, value, _, _) in enumerate(TYPED)
    ]
    spark.sql(f"SELECT 1 AS id, {', '.join(columns)}").createOrReplaceTempView("typed")
    write_files(tmp_path, {"x.csv": one_row([text for _, _, text, _ in TYPED])})
    monkeypatch.chdir(tmp_path)
    found, remarks = counts(spark, *names)
    assert {name for name in found if name.startswith("x")} == {
        f"x{n}" for n, (*_, outcome) in enumerate(TYPED) if outcome != "equal"
    }
    assert remarks == [
        f"column x{n} is compared as text: x.csv has values that are not of the type {type_}"
        for n, (type_, _, _, outcome) in enumerate(TYPED)
        if outcome == "text"
    ]


def test_an_empty_text_of_json_is_not_null(spark, tmp_path):
    spark.sql("SELECT 1 AS id, CAST(NULL AS int) AS x").createOrReplaceTempView("null_x")
    path = write_files(tmp_path, {"x.json": '{"id":1,"x":""}'}) / "x.json"
    assert counts(spark, "null_x", path)[0]["x"] == 1


@pytest.mark.slow
def test_values_of_json(spark, tmp_path):
    equal = [
        (1, 1.0),
        ([{"a": 1}], [{"a": 1.0}]),
        (True, True),
        ("x", "x"),
        ({"a": 1}, {"a": 1, "b": None}),
    ]
    others = [
        ("01", "1"),
        ("1.10", "1.1"),
        (9007199254740993, 9007199254740992),
        (2**70, 2**70 + 1),
        ({"a": 1}, {"b": 2, "a": 1.0}),
        ([1], []),
        (None, 1),
        (0.1, 0.2),
    ]
    sides = [
        json.dumps({"id": 1} | {f"x{n}": pair[side] for n, pair in enumerate([*equal, *others])})
        for side in (0, 1)
    ]
    found, _ = counts(spark, *two(tmp_path, *sides, "json"))
    changed = {f"x{n}": 1 for n in range(len(equal), len(equal) + len(others))}
    assert found == {"left": 1, "right": 1, "changed": 1, **changed}


def test_columns_that_some_files_lack(spark, tmp_path):
    spark.sql("SELECT 1 AS id").write.parquet(str(tmp_path / "left"))
    spark.sql("SELECT 2 AS id, 'b' AS x").write.mode("append").parquet(str(tmp_path / "left"))
    path = write_files(tmp_path, {"right.jsonl": '{"id":1}\n{"id":2,"x":"c"}\n'}) / "right.jsonl"
    assert counts(spark, tmp_path / "left", path)[0]["x"] == 1


def test_a_condition_holds_for_both_sides(spark, inputs):
    found, _ = counts(spark, inputs / "lines.csv", "xorack_inputs", where="price > 5")
    assert found == {"left": 2, "right": 2, "equal": 2}
    with pytest.raises(ArgumentError, match=r"^where: Syntax error .*\(on the left\)$"):
        counts(spark, inputs / "lines.csv", "xorack_inputs", where="price > > 5")


@pytest.mark.slow
def test_characters_that_are_not_utf_8(spark, tmp_path):
    left, right = two(tmp_path, b"id,x\n1,caf\xe9\n", b"id,x\n1,caf\xe8\n")
    _, remarks = counts(spark, left, right)
    assert remarks == [
        f"column x of {path} has characters that are not UTF-8: they are not told apart"
        for path in (left, right)
    ]


NO_JSON = "expected JSON with an object on each line, or an array of objects in a file"
NO_FILES = "no files; Spark skips those that begin with _ or ."
DELTA = "is a Delta table: its files also hold deleted rows"
HEADER = "CSV header does not conform to the schema: Expected: "
WRONG = {
    "nothing.csv": ({}, "there is no such file or folder"),
    "no/such/folder": ({}, "there is no such file or folder"),
    "no_such_table": ({}, "The table or view `no_such_table` cannot be found"),
    "empty": ({}, NO_FILES),
    "_hidden.csv": ({"_hidden.csv": "id,x\n1,2\n"}, NO_FILES),
    "pipe.csv": ({}, "is a pipe or a device, expected a file or folder"),
    "zero.csv": ({"zero.csv": ""}, "it is empty, so it has no columns"),
    "none.json": ({"none.json": "[]"}, "it is empty, so it has no columns"),
    "notes.txt": (
        {"notes.txt": "id\n1\n"},
        "the format of .*notes.txt is unknown: give it, one of parquet, csv, json",
    ),
    "mixed": (
        {"mixed/a.csv": "id\n1\n", "mixed/b.json": '{"id":1}\n'},
        "has files of several formats, such as .*a.csv and .*b.json",
    ),
    "stray": (
        {"stray/x=1/1.json": '{"id":1}\n', "stray/2.json": '{"id":2,"x":2}\n'},
        "stray/2.json is not in a folder x=…, as others are",
    ),
    "delta": ({"delta/_delta_log/0.json": "{}", "delta/1.parquet": ""}, DELTA),
    "bad.parquet": (
        {"bad.parquet": "garbage"},
        "(Could not read footer|bad.parquet is not a Parquet file)",
    ),
    "bad.json": ({"bad.json": '{"id":1}\n{"id":}\n'}, "Malformed records are detected"),
    "joined.json": ({"joined.json": '{"id":1}{"id":2}\n'}, NO_JSON),
    "arrays": (
        {
            "arrays/1.json": '[\n{"id":1,"longest":true}\n]\n',
            "arrays/2.json": '{"id":2}\n{"id":3}\n',
        },
        NO_JSON,
    ),
    "more.csv": ({"more.csv": "id,x\n1,2,3\n"}, "Malformed CSV record: 1,2,3"),
    "twice.csv": ({"twice.csv": "id,x,x\n1,2,3\n"}, f"{HEADER}x1 but found: x"),
    "utf16.csv": (
        {"utf16.csv": "id,x\n1,2\n".encode("utf-16")},
        "the header has NUL characters, expected UTF-8",
    ),
}
SELDOM = {
    "no_such*": ({}, "there is no such file or folder"),
    "delta.parquet": (
        {"delta.parquet/_delta_log/0.json": "{}", "delta.parquet/1.parquet": ""},
        DELTA,
    ),
    "pretty.json": ({"pretty.json": '{\n"id":1\n}\n{\n"id":2\n}\n'}, NO_JSON),
    "commas.json": ({"commas.json": '{"id":1}, {"id":2}\n'}, NO_JSON),
    "rest.json": ({"rest.json": '[\n{"id":1}\n]\n{"id":2}\n'}, NO_JSON),
    "fewer.csv": ({"fewer.csv": "id,x\n1\n"}, "Malformed CSV record: 1"),
    "order": (
        {"order/1.csv": "id,x\n1,2\n", "order/2.csv": "x,id\n2,1\n"},
        rf"{HEADER}\w+ but found: \w+",
    ),
}


@pytest.mark.parametrize(
    "name", [*WRONG, *(pytest.param(name, marks=pytest.mark.slow) for name in SELDOM)]
)
def test_what_cannot_be_read_is_named_in_one_line(spark, tmp_path, monkeypatch, name):
    files, message = (WRONG | SELDOM)[name]
    write_files(tmp_path, {"right.csv": "id,x\n1,2\n", **files})
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StateError, match=f"^{re.escape(name)}.*{message}") as raised:
        counts(spark, name, "right.csv")
    assert "\n" not in str(raised.value)
