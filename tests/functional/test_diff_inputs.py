"""Inputs by name: formats, folders, tables, and the types of text."""

from __future__ import annotations

import gzip
import json
import os
import re

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.files import write_files
from xorack.compare import comparison
from xorack.compare.engine import diff_files
from xorack.compare.inputs import ReadOptions, open_inputs
from xorack.compare.options import CompareOptions, connect
from xorack.errors import ArgumentError, StateError

ROWS = [(17, 1, "harpoon", 9.5), (17, 2, None, 4.0), (18, 1, "a\nb", 7.25)]
CSV = 'order,line,sku,price\n17,1,harpoon,9.50\n17,2,,4\n18,1,"a\nb",7.25\n'
QUOTED = (
    '"price","order","line","sku"\n"9.50","17","1","harpoon"\n"4","17","2",""\n'
    '"7.25","18","1","a\nb"\n'
)
LINES = "".join(
    json.dumps({"order": o, "line": n, "sku": s, "price": p}) + "\n" for o, n, s, p in ROWS
)


def counts(left, right, **options):
    """Compare two inputs; return the counts that are not 0, and the remarks."""
    text = options.pop("text", ())
    key = options.pop("key", ["id"])
    with connect() as con:
        d = diff_files(con, [str(left), str(right)], [ReadOptions(**options)] * 2,
                       CompareOptions(key, text=text))  # fmt: skip
        found = {name: n for name, n in vars(d.counts).items() if n}
        return found | d.changed_columns, d.remarks


def two(tmp_path, left, right, extension="csv"):
    folder = write_files(tmp_path, {f"left.{extension}": left, f"right.{extension}": right})
    return folder / f"left.{extension}", folder / f"right.{extension}"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """The same rows in all formats and ways, by name."""
    folder = write_files(
        tmp_path_factory.mktemp("inputs"),
        {
            "lines.csv": CSV,
            "windows.csv": "\ufeff" + CSV.replace("\n", "\r\n").replace("a\r\nb", "a\nb"),
            "quoted.csv": QUOTED,
            "lines.csv.gz": gzip.compress(CSV.encode()),
            "lines.tsv": CSV.replace(",", "\t"),
            "semicolons.txt": CSV.replace(",", ";"),
            "latin.csv": CSV.replace("order", "ordér").encode("latin-1"),
            "words.csv": CSV.replace("17,2,,", "17,2,N/A,"),
            "plain.csv": CSV.partition("\n")[2],
            "lines.jsonl": LINES,
            "array.json": json.dumps([json.loads(line) for line in LINES.splitlines()], indent=1),
            "one-line.json": f"[{','.join(LINES.splitlines())}]",
            "joined.json": LINES.replace("\n", ""),
            "both/1.json": f"[{LINES.splitlines()[0]}]",
            "both/2.json": "\n".join(LINES.splitlines()[1:]),
            "day=1/orders/order=17/1.csv": "line,sku,price\n1,harpoon,9.50\n2,,4\n",
            "day=1/orders/order=18/1.csv": 'line,sku,price\n1,"a\nb",7.25\n',
            "day=2/lines.csv": CSV,
            "nested/a/1.csv": CSV[: CSV.index("18,1")],
            "nested/b/2.csv": "order,line,sku,price\n" + CSV[CSV.index("18,1") :],
            "nested/_temporary/3.csv": "other\n1\n",
            "orders/order=17/1.csv": "line,sku,price\n1,harpoon,9.50\n2,,4\n",
            "orders/order=18/1.csv": 'line,sku,price\n1,"a\nb",7.25\n',
            "index.csv": CSV.replace("order", ",order").replace("\n1", "\n,1"),
            "lines[1].csv": CSV,
            "a*?:b/[0].csv": CSV,
            "lines1.csv": CSV.replace("harpoon", "other"),
            "axxb/0.csv": CSV.replace("harpoon", "other"),
            "tick'.csv": "\ufeff" + QUOTED,
        },
    )
    (folder / "od[d] {name}, x=y").mkdir()
    rows = "SELECT * FROM VALUES (17, 1, 'harpoon', 9.5), (17, 2, NULL, 4), (18, 1, 'a\nb', 7.25)"
    with duckdb.connect() as con:
        con.execute(f'CREATE TABLE r AS {rows} AS t("order", line, sku, price)')
        con.execute(f"COPY r TO '{folder}/od[d] {{name}}, x=y/1.parquet'")
        con.execute(f"COPY r TO '{folder}/one.parquet'")
        con.execute(f"COPY r TO '{folder}/parts' (FORMAT parquet, PARTITION_BY (\"order\"))")
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("left", "right", "options"),
    [
        ("windows.csv", "one-line.json", [{}, {}]),
        ("tick'.csv", "od[d] {name}, x=y", [{}, {}]),
        ("one.parquet", "lines.jsonl", [{}, {}]),
        ("index.csv", "nest*/*/*.csv", [{}, {}]),
        ("lines[1].csv", "a*?:b", [{}, {}]),
        ("semicolons.txt", "parts", [{"format": "csv", "delimiter": ";"}, {}]),
        ("quoted.csv", "array.json", [{}, {}]),
        ("lines.csv.gz", "lines.tsv", [{}, {}]),
        ("orders", "parts", [{}, {}]),
        ("orders", "joined.json", [{}, {}]),
        ("nested", "lines.jsonl", [{}, {}]),
        ("both", "lines.jsonl", [{}, {}]),
        ("day=1/orders", "day=2/lines.csv", [{}, {}]),
        ("day=1/order*", "day=2/*.csv", [{}, {}]),
        ("words.csv", "lines.csv", [{"nulls": ["N/A"]}, {}]),
        ("latin.csv", "lines.csv", [{"encoding": "latin-1"}, {}]),
        ("plain.csv", "lines.csv", [{"header": False}, {}]),
        (
            "lines.csv",
            "one.parquet",
            [
                {"sql": "SELECT * REPLACE (price::DECIMAL(9, 2) AS price) FROM 'lines.csv' -- all"},
                {},
            ],
        ),
    ],
)
def test_every_format_has_the_same_rows(inputs, monkeypatch, left, right, options):
    monkeypatch.chdir(inputs)
    names = {"latin.csv": "ordér=order,line", "plain.csv": "_c0=order,_c1=line"}
    key = names.get(left, "order,line").split(",")
    values = ["_c2=sku", "_c3=price"] if left == "plain.csv" else ["sku", "price"]
    with connect() as con:
        read = [ReadOptions(**of) for of in options]
        found = diff_files(con, [left, right], read, CompareOptions(key, values))
    assert (found.remarks, found.equal, found.counts.equal) == ([], True, 3)


def one_row(values):
    """Return CSV of one row: a value of each column x0, x1, …"""
    heads = [f"x{n}" for n in range(len(values))]
    return f"id,{','.join(heads)}\n1,{','.join(values)}\n"


def more(values):
    """Return a second row, whose last value makes its column one of doubles."""
    return f"2{',' * len(values)}1e5\n"


def test_values_of_csv(tmp_path):
    equal = {
        "9.50": "9.5", "1e1": "10.0", "+.5": "0.50", "True": "true",
        "2026-01-31": "2026-01-31 00:00:00",
        "2026-01-31T12:00:00Z": "2026-01-31 13:00:00.000+01:00", "": '""', "nan": "NaN",
    }  # fmt: skip
    others = {
        "12345678901234567890.1": "12345678901234567890.2",
        "9" * 39: f"{'9' * 38}8",
        f"{'9' * 38}.1": f"{'9' * 38}.2",  # no decimal holds it, and a double rounds it
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
    found, remarks = counts(*two(tmp_path, *(one_row(of) + more(of) for of in sides)))
    changed = {f"x{n}": 1 for n in range(len(equal), len(sides[0]))}
    assert found == {"left": 2, "right": 2, "equal": 1, "changed": 1, **changed}
    assert remarks == []


def test_one_value_makes_a_column_text(tmp_path):
    left, right = "id,x,y,z\n1,1.0,1.0,1.0\n2,2,n/a,2\n", "id,x,y,z\n1,1,1,1\n2,2,n/a,2\n"
    found, _ = counts(*two(tmp_path, left, right), text=["X"])
    assert found == {"left": 2, "right": 2, "equal": 1, "changed": 1, "x": 1, "y": 1}
    with pytest.raises(ArgumentError, match="text: column w is in neither input"):
        counts(*two(tmp_path, left, right), text=["w"])


TYPED = [
    ("integer", "7", "7", "equal"),
    ("integer", "7", "7.0", "equal"),
    ("decimal(9,2)", "1.30", "1.25", "changed"),  # it is not rounded
    ("integer", "7", "seven", "text"),
    ("date", "2026-01-31", "2026-01-31 10:00:00", "text"),
    ("timestamp with time zone", "2026-01-31T12:00:00Z", "2026-01-31 13:00:00+01:00", "equal"),
    ("timestamp", "2026-01-31T12:00:00", "2026-01-31 12:00:00.0", "equal"),
    ("float", "0.1", "0.1", "equal"),
    ("double", "9007199254740992", "9007199254740992", "equal"),
    ("double", "9007199254740992", "9007199254740993", "text"),  # a double rounds it
    ("double", "0.1", "0.1000000000000000055511151231257827", "equal"),
    ("boolean", "true", "TRUE", "equal"),
    ("varchar", "", "", "equal"),
    ("varchar", "007", "7", "changed"),
    ("integer[]", None, "", "equal"),
]


@pytest.mark.thorough
def test_the_header_of_a_large_file_is_its_first_line(tmp_path):
    rows = ("1," + "x" * 100_000 + ",y\n") * 800
    path = str(write_files(tmp_path, {"large.csv": "id,a,b\n" + rows}) / "large.csv")
    for _ in range(3):  # threads read parts of 32 MB
        with connect() as con:
            con.execute("SET threads = 2")
            (one,) = open_inputs(con, [path], [ReadOptions()])
            assert [column.name for column in one.columns] == ["id", "a", "b"]


@pytest.mark.parametrize("names", [("typed.parquet", "x.csv"), ("x.csv", "typed.parquet")])
def test_csv_beside_types(tmp_path, monkeypatch, names):
    columns = [
        f"CAST({'NULL' if value is None else repr(value)} AS {type_}) AS x{n}"
        for n, (type_, value, _, _) in enumerate(TYPED)
    ]
    duckdb.sql(f"SELECT 1 AS id, {', '.join(columns)}").write_parquet(f"{tmp_path}/typed.parquet")
    write_files(tmp_path, {"x.csv": one_row([text for _, _, text, _ in TYPED])})
    monkeypatch.chdir(tmp_path)
    found, remarks = counts(*names)
    assert {name for name in found if name.startswith("x")} == {
        f"x{n}" for n, (*_, outcome) in enumerate(TYPED) if outcome != "equal"
    }
    assert remarks == [
        f"column x{n} is compared as text: x.csv has values that are not of the type {type_}"
        for n, (type_, _, _, outcome) in enumerate(TYPED)
        if outcome == "text"
    ]


def test_an_empty_text_of_json_is_not_null(tmp_path):
    duckdb.sql("SELECT 1 AS id, NULL::INTEGER AS x").write_parquet(f"{tmp_path}/null_x.parquet")
    path = write_files(tmp_path, {"x.json": '{"id":1,"x":""}'}) / "x.json"
    assert counts(f"{tmp_path}/null_x.parquet", path)[0]["x"] == 1


def test_values_of_json(tmp_path):
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
    found, _ = counts(*two(tmp_path, *sides, "json"))
    changed = {f"x{n}": 1 for n in range(len(equal), len(equal) + len(others))}
    assert found == {"left": 1, "right": 1, "changed": 1, **changed}


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("0::DECIMAL(19,0)", "-1::DECIMAL(19,0)"),
        ("0::DECIMAL(9,2)", "-0.01::DECIMAL(21,2)"),
        ("0::UBIGINT", "-1::BIGINT"),
    ],
)
def test_values_of_128_bits(tmp_path, left, right):
    """DuckDB hashes the upper and the lower half and combines both by XOR: 0 and -1 are alike."""
    for name, value in {"left": left, "right": right}.items():
        (tmp_path / name).mkdir()
        table = duckdb.sql(f"SELECT 1 AS id, {value} AS x")
        table.write_parquet(f"{tmp_path}/{name}/1.parquet")
    found, _ = counts(tmp_path / "left", tmp_path / "right")
    assert found == {"left": 1, "right": 1, "changed": 1, "x": 1}


def test_columns_that_some_files_lack(tmp_path):
    (tmp_path / "left").mkdir()
    duckdb.sql("SELECT 1 AS id").write_parquet(str(tmp_path / "left/1.parquet"))
    duckdb.sql("SELECT 2 AS id, 'b' AS x").write_parquet(str(tmp_path / "left/2.parquet"))
    path = write_files(tmp_path, {"right.jsonl": '{"id":1}\n{"id":2,"x":"c"}\n'}) / "right.jsonl"
    assert counts(tmp_path / "left", path)[0]["x"] == 1


def test_a_condition_holds_for_both_sides(inputs):
    both = inputs / "lines.csv", inputs / "one.parquet"
    found, _ = counts(*both, where=["price > 5 -- much", "line = 1"], key=["order", "line"])
    assert found == {"left": 2, "right": 2, "equal": 2}
    with pytest.raises(ArgumentError, match=r"^where: Parser Error.*\(on the left\)$"):
        counts(*both, where=["price > > 5"], key=["order"])


def test_characters_that_are_not_utf_8(tmp_path):
    left, right = two(tmp_path, b"id,x\n1,caf\xe9\n", b"id,x\n1,caf\xe8\n")
    with pytest.raises(StateError, match=r"left.csv: byte 10, 0xe9 in line 2, is not UTF-8: .*"):
        counts(left, right)
    assert counts(left, right, encoding="latin-1")[0]["x"] == 1


def test_utf_16(tmp_path):
    text = "id,x\n1,\U0001f600\n2,b\n"
    other = text.replace("b", "c").encode("utf-16-be")
    left = gzip.compress(text.encode("utf-16"))
    plain = text.replace("b", "c").encode("utf-16-le")
    for right in (b"\xfe\xff" + other, plain):  # without a mark, it is little endian
        folder = write_files(tmp_path, {"left/x.csv.gz": left, "right/x.csv": right})
        found, _ = counts(folder / "left", folder / "right", encoding="utf-16")
        assert found == {"left": 2, "right": 2, "equal": 1, "changed": 1, "x": 1}


NO_JSON = "it has no objects, or other values, too"
NAMELESS = "has a column or field without name"
NO_FILES = "no files; those that begin with _ or . are skipped"
DELTA = "is a Delta table: its files also hold deleted rows"
WRONG = {
    "nothing.csv": ({}, "there is no such file or folder"),
    "no/such/folder": ({}, "there is no such file or folder"),
    "no_such_table": ({}, "there is no such file or folder"),
    "empty": ({}, NO_FILES),
    "pipe.csv": ({}, "is a pipe or a device, expected a file or folder"),
    "zero.csv": ({"zero.csv": ""}, "its first line is empty, so it has no columns"),
    "blank.csv": ({"blank.csv": "\nid\n"}, "its first line is empty, so it has no columns"),
    "none.json": ({"none.json": "[]"}, NO_JSON),
    "quote.csv": ({"quote.csv": 'id,x\n1,"a\n2,b\n'}, 'line 2: a quote is not closed: 1,"a'),
    "ends.csv": ({"ends.csv": "id,x\n1,a\r\n2,b\n"}, "its lines end in different ways"),
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
        "Invalid Input Error: .*bad.parquet",
    ),
    "bad.json": (
        {"bad.json": '{"id":1}\n{"id":}\n'},
        "Invalid Input Error: Malformed JSON in file .*bad.json",
    ),
    "more.csv": ({"more.csv": "id,x\n1,2,3\n"}, "line 2: expected 2 fields, found 3: 1,2,3"),
    "twice.csv": ({"twice.csv": "id,x,x\n1,2,3\n"}, "has 2 columns or fields 'x'"),
    "twins.csv": ({"twins.csv": "id,x,X\n1,2,3\n"}, "has 2 columns or fields 'x'"),
    "twins.json": ({"twins.json": '{"id":1,"x":1,"X":2}'}, 'Duplicate name "X"'),
    "cases": ({"cases/1.json": '{"x":1}', "cases/2.json": '{"X":2}'}, 'Duplicate name "X"'),
    "nameless.json": ({"nameless.json": '{"id":1,"":2}'}, NAMELESS),
    "nested.json": ({"nested.json": '{"id":1,"s":[{"":2}]}'}, NAMELESS),
    "utf16.csv": (
        {"utf16.csv": "id,x\n1,2\n".encode("utf-16")},
        "byte 0, 0xff in line 1, is not UTF-8",
    ),
}
SELDOM = {
    "no_such*": ({}, "there is no such file or folder"),
    "delta.parquet": (
        {"delta.parquet/_delta_log/0.json": "{}", "delta.parquet/1.parquet": ""},
        DELTA,
    ),
    "commas.json": ({"commas.json": '{"id":1}, {"id":2}\n'}, "Malformed JSON"),
    "rest.json": ({"rest.json": '[\n{"id":1}\n]\n{"id":2}\n'}, NO_JSON),
    "fewer.csv": ({"fewer.csv": "id,x\n1\n"}, "line 2: expected 2 fields, found 1: 1"),
    "order": (
        {"order/1.csv": "id,x\n1,2\n", "order/2.csv": "x,id\n2,1\n"},
        "2.csv has the header ..x', 'id'., and",
    ),
}


@pytest.mark.parametrize("name", [*WRONG, *SELDOM])
def test_what_cannot_be_read_is_named_in_one_line(tmp_path, monkeypatch, name):
    files, message = (WRONG | SELDOM)[name]
    write_files(tmp_path, {"right.csv": "id,x\n1,2\n", **files})
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StateError, match=f"^{re.escape(name)}.*{message}") as raised:
        counts(name, "right.csv")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("names", "found"),
    [(["x", "X"], "2 columns or fields 'x'"), (["x", ""], "a column or field without name")],
)
def test_names_of_parquet_that_duckdb_would_change(tmp_path, names, found):
    """It names them by their order, which may be another one on the other side."""
    struct = pa.StructArray.from_arrays(
        [pa.array([[{"y": 1}]]), *[pa.array([1])] * 2], ["l", *names]
    )
    tables = [pa.table([[1]] * 3, ["id", *names]), pa.table({"id": [1], "s": struct, "y": [1]})]
    pq.write_table(pa.table({"id": [1]}), tmp_path / "1.parquet")
    for table in tables:
        pq.write_table(table, tmp_path / "2.parquet")
        with pytest.raises(StateError, match=f"has {found}$"):
            counts(tmp_path, tmp_path / "1.parquet")


def test_folders_named_json(tmp_path):
    write_files(tmp_path, {"json=1/1.json": '{"id":1}', "json=2/1.json": '{"id":1}'})
    assert counts(tmp_path, tmp_path, key=["id", "json"])[0]["equal"] == 2


def test_folders_whose_names_are_columns_of_parquet_too(tmp_path):
    """DuckDB takes the statistics of one for those of the other."""
    sql = "SELECT 1 AS id, DATE '2026-01-31' AS day, 7 AS hour"
    write_files(tmp_path, {"all.csv": "id,day,hour\n1,2026-01-31,7\n"})
    path = tmp_path / "days/Day=2026-01-31/hour=7/1.parquet"
    path.parent.mkdir(parents=True)
    duckdb.sql(sql).write_parquet(str(path))
    found = counts(tmp_path / "days", tmp_path / "all.csv", key=["day", "hour"])
    assert found == ({"left": 1, "right": 1, "equal": 1}, [])


def test_names_of_json_in_another_case(tmp_path):
    sides = two(tmp_path, '{"ID":1,"x":{"Y":[1]},"z":1}', '{"id":1,"X":{"y":[2]},"z":1.0}', "json")
    assert counts(*sides)[0] == {"left": 1, "right": 1, "changed": 1, "x": 1}


def test_many_and_sparse_fields_of_json(tmp_path):
    many = json.dumps({"id": 1} | {f"k{n}": n for n in range(250)})
    sparse = "".join(json.dumps({"id": n, f"k{n}": n}) + "\n" for n in range(150))
    for text, changed in ((many, "k249"), (sparse, "k149")):
        sides = two(tmp_path, text, text.replace(f'"{changed}": ', f'"{changed}": 9'), "json")
        found, _ = counts(*sides)
        assert (found["changed"], found[changed]) == (1, 1)


def test_queries_with_columns_of_one_name(tmp_path):
    read = [ReadOptions(sql=f"SELECT 1 AS id, {n} AS x, {m} AS X") for n, m in ((1, 2), (2, 1))]
    with connect() as con, pytest.raises(StateError, match="left has 2 columns or fields 'x'"):
        diff_files(con, ["left", "right"], read, CompareOptions(["id"]))


def test_links_to_folders(tmp_path):
    write_files(tmp_path, {"all.csv": "id\n1\n2\n", "a/1.csv": "id\n1\n", "b/2.csv": "id\n2\n"})
    (tmp_path / "a/b").symlink_to("../b")
    assert counts(tmp_path / "a", tmp_path / "all.csv")[0] == {"left": 2, "right": 2, "equal": 2}
    (tmp_path / "b/a").symlink_to("../a")
    with pytest.raises(StateError, match="a/b/a is a link to a folder above it"):
        counts(tmp_path / "a", tmp_path / "all.csv")


def test_a_column_named_as_an_element(tmp_path):
    path = tmp_path / "e0.parquet"
    duckdb.sql("SELECT 1 AS id, 5 AS e0, MAP {'a': [1, 2]} AS m").write_parquet(str(path))
    assert counts(path, path)[0] == {"left": 1, "right": 1, "equal": 1}


def test_digits_that_duckdb_rounds(tmp_path):
    table = {
        "instant": pa.array([1], pa.timestamp("ns", "UTC")),
        "time": pa.array([[1]], pa.list_(pa.time64("ns"))),
        "large": pa.array([1], pa.decimal256(60, 2)),
        "wall": pa.array([1], pa.timestamp("ns")),
        "id": pa.array([1]),
    }
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table(table), path)
    assert counts(path, path)[1][::2] == [
        f"column instant of {path} is read as timestamp with time zone: nanoseconds are rounded",
        f"column time of {path} is read as time[]: nanoseconds are rounded",
        f"column large of {path} is read as double: 60 digits are rounded",
    ]


@pytest.mark.parametrize(
    ("types", "rounded"),
    [
        (("BIGINT", "DOUBLE"), "double"),
        (("BIGINT", "FLOAT"), "float"),
        (("DECIMAL(38,10)", "DECIMAL(38,18)"), "decimal(38,10)"),
        (("STRUCT(y BIGINT)", "STRUCT(y DOUBLE)"), "struct(y double)"),
        (("BIGINT", "INTEGER"), None),
        (("DECIMAL(9,2)", "BIGINT"), None),
        (("FLOAT", "DOUBLE"), None),
    ],
)
def test_numbers_of_other_types_in_files_of_a_folder(tmp_path, types, rounded):
    """DuckDB reads them as one type, that of few digits."""
    folder = tmp_path / "x"
    folder.mkdir()
    for number, type_ in enumerate(types):
        columns = f"{number} AS id, NULL::{type_} AS x"
        duckdb.sql(f"SELECT {columns}").write_parquet(str(folder / f"{number}.parquet"))
    remark = f"column x of {folder} is read as {rounded}: numbers of other types are rounded"
    assert counts(folder, folder)[1] == [remark] * 2 * bool(rounded)


NEAR = [
    ("5,a|5,b", "6,a|7,b", {"x": 1}, (1, 0, 0, 1)),
    ("9223372036854775807,a", "-9223372036854775808,a", {"x": "1"}, (0, 0, 0, 1)),
    ("9007199254740993,a", "9007199254740992,a", {"x": 1}, (1, 0, 0, 0)),
    ("1.5,a|5,a|9.5,a", "5.01,a|9.51,a", "0.02", (2, 1, 0, 0)),
    ("1.5,a|5,a|9.5,a", "9.51,a|0,a|5.01,a", "0.02", (2, 0, 0, 1)),
    ("1.5,a|1.5,b", "1.51,b|1.51,c", "0.02", (1, 0, 0, 1)),  # others tell rows apart first
    ("1.5,a|1.5,a|7.5,a", "1.51,a|1.5,a", "0.02", (2, 1, 0, 0)),  # equal ones cancel out first
    ("1.2,a|0.5,a", "1.3,a", "0.1", (1, 1, 0, 0)),  # in binary, they are further than 0.1
    (",a|2.5,a|nan,a", "2.51,a|nan,a|,a", "0.02", (3, 0, 0, 0)),
    ("-1e300,a|1e300,a|3,a", "3.01,a|inf,a", "0.02", (1, 1, 0, 1)),
    ("100,a|200.5,a", "201,a|300,a|5,a", "1%", (1, 0, 1, 1)),
    ("0.70,a", "0.63,a", "10%", (1, 0, 0, 0)),  # 0.1 * 0.7 is less than 0.07 in binary
    ("2026-01-01 10:00:00,a|2026-01-01 12:00:00,a", "2026-01-01 12:00:02,a", "2s", (1, 1, 0, 0)),
]
"""Rows of one key on both sides, a tolerance, and how many are equal, missing, extra, changed."""


@pytest.mark.thorough
@pytest.mark.parametrize(("left", "right", "tolerance", "expected"), NEAR)
def test_a_tolerance_beside_keys_with_several_rows(tmp_path, left, right, tolerance, expected):
    sides = ["id,x,y\n" + "".join(f"1,{row}\n" for row in of.split("|"))
             for of in (left, right)]  # fmt: skip
    paths = list(map(str, two(tmp_path, *sides)))
    with connect() as con:
        options = CompareOptions(["id"], tolerance=tolerance)
        found = diff_files(con, paths, [ReadOptions()] * 2, options).counts
    assert (found.equal, found.missing, found.extra, found.changed) == expected


APART = [
    # The values of a column, how far they are apart, and a limit that is just too small.
    ("9007199254740993", "9007199254740992", 1, "0.9"),
    ("12345678901234567.01", "12345678901234567.02", 0.01, "0.009"),
    ("123456789012345678901234567890.1", "123456789012345678901234567890.125", 0.025, "0.024"),
    ("2026-01-01 00:00:00.000001", "2026-01-01 00:00:00.000020", 19e-6, "18us"),
    ("2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", 3600, "59min"),  # one wall clock in Berlin
    ("2026-03-29 02:30:00", "2026-03-29 03:30:00", 3600, "59min"),  # one instant there
    ("2026-10-25", "2026-10-26", 86400, "23.5h"),
]


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize(("left", "right", "greatest", "limit"), APART)
def test_how_far_values_are_apart(tmp_path, copies, left, right, greatest, limit):
    """In each zone, exactly: a limit of as much suffices, and less does not."""
    rows = ["id,x\n" + f"1,{x}\n" * copies for x in (left, right)]
    sides = list(map(str, two(tmp_path, *rows)))
    enough = f"{greatest * 1e6:.0f}us" if limit[-1].isalpha() else greatest
    with connect() as con:
        con.execute("SET TimeZone = 'Europe/Berlin'")
        for tolerance, changed in ((None, copies), (limit, copies), (enough, 0)):
            how = {"tolerance": tolerance and {"x": tolerance}}
            found = diff_files(con, sides, [ReadOptions()] * 2, CompareOptions(["id"], **how))
            assert (found.counts.changed, found.counts.missing) == (changed, 0)
            told = [change.greatest for change in found.changes().values()]
            assert told == [greatest] * (changed > 0)


def test_a_tolerance_of_many_columns_beside_keys_with_several_rows(tmp_path):
    """Each has two windows inside those of the one before: their work adds up, no more."""
    head = f"id,{','.join(f'c{n}' for n in range(12))}\n"
    rows = [f"{i // 2},{f'{i}.5,' * 11}" for i in range(6)]
    sides = [head + "".join(f"{row}{i}.{n}\n" for i, row in enumerate(rows)) for n in (50, 51)]
    with connect() as con:
        how = CompareOptions(["id"], tolerance=0.125)
        found = diff_files(con, list(map(str, two(tmp_path, *sides))), [ReadOptions()] * 2, how)
    assert found.equal


def test_a_tolerance_of_unsigned_integers(tmp_path):
    sides = two(tmp_path, b"", b"", "parquet")
    for number, path in zip((3, 5), sides, strict=True):
        duckdb.sql(f"SELECT 1 AS id, {number}::UBIGINT AS x").write_parquet(str(path))
    with connect() as con:
        for of, limit, changed in (("x", 1, 1), ("x", 2, 0), ("integer", 2, 0)):
            options = CompareOptions(["id"], tolerance={of: limit})
            found = diff_files(con, list(map(str, sides)), [ReadOptions()] * 2, options)
            assert found.counts.changed == changed


@pytest.mark.parametrize(("keys", "other"), [(3, "_joined"), (3000, "_numbered")])
def test_sides_are_joined_where_few_rows_have_one_key(tmp_path, monkeypatch, keys, other):
    """A join of a frequent key has the square of its rows."""
    monkeypatch.setattr(comparison.Comparison, other, None)
    left = "".join(f"{i % keys},{i}\n" for i in range(3000))
    sides = two(tmp_path, "id,v\n" + left, "id,v\n" + left.replace(",17\n", ",-1\n"))
    with connect() as con:
        found = diff_files(con, list(map(str, sides)), [ReadOptions()] * 2, CompareOptions(["id"]))
        assert (found.counts.equal, found.counts.changed) == (2999, 1)


def test_names_of_columns_in_braces(tmp_path, monkeypatch):
    monkeypatch.setattr(comparison, "_KEPT_ROWS", -1)
    monkeypatch.setattr(comparison, "_MANY", 2)  # only the rows of buckets that differ are read
    head = "{bucket},{hash}\n"
    sides = two(tmp_path, head + "1,2\n2,3\n", head + "1,2\n2,4\n")
    with connect() as con:
        options = CompareOptions(["{bucket}", "{hash}"])
        found = diff_files(con, list(map(str, sides)), [ReadOptions()] * 2, options)
        assert found.explain() == {}
        assert (found.counts.missing, found.counts.extra) == (1, 1)
