"""The command `xorack diff` on files, in this process."""

from __future__ import annotations

import io
import json
import os
import sys
from decimal import Decimal

import duckdb
import pytest
from rich.console import Console

from tests.support.files import write_files
from xorack.cli import diff_output, main, screen
from xorack.compare.report import Change

OLD = "order,line,sku,price\n17,1,harpoon,9.50\n17,2,rope,4.00\n18,1,oil,7.25\n"
NEW = "order,line,price,sku\n17,1,9.5,harpoon\n18,1,7.50,oil\n18,2,1.00,wick\n"


@pytest.fixture
def xorack(tmp_path, monkeypatch, capfd):
    """A function that runs `xorack diff` in a folder with old.csv and new.csv."""
    write_files(tmp_path, {"old.csv": OLD, "new.csv": NEW})
    monkeypatch.chdir(tmp_path)
    capfd.readouterr()

    def run(*arguments):
        status = main(["diff", *arguments])
        printed = capfd.readouterr()
        return status, printed.out, printed.err

    return run


def test_what_differs(xorack):
    status, out, err = xorack("old.csv", "new.csv", "--key", "order, line")
    head, _, table = out.partition("\n\n")
    assert head.splitlines()[0] == "different"
    assert table.splitlines() == [
        "CHANGE   order  line  COLUMN  LEFT  RIGHT",
        "missing  17     2",
        "extra    18     2",
        "changed  18     1     price   7.25  7.50",
    ]
    assert (status, err) == (1, "")


@pytest.mark.parametrize(
    "options",
    [
        ["--key", "order", "--ignore", "line", "--values", "sku", "--where", "price = 9.5"],
        ["--key", "order,line", "--tolerance", "price=0.25", "--where", "line = 1"],
        ["--key", "order,line", "--tolerance", "number=0.25,integer=1", "--where", "line = 1"],
    ],
)  # fmt: skip
def test_equal(xorack, options):
    status, out, err = xorack("old.csv", "new.csv", *options)
    assert (status, err) == (0, "")
    assert out.startswith("equal\n")
    assert "CHANGE" not in out


def test_json(xorack):
    status, out, err = xorack("old.csv", "new.csv", "--key", "order,line", "--json")
    assert (status, err) == (1, "")
    found = json.loads(out)
    assert found == {
        "left": "old.csv",
        "right": "new.csv",
        "equal": False,
        "counts": {
            "left": 3, "right": 3, "equal": 1, "missing": 1, "extra": 1, "changed": 1,
            "duplicate_keys_left": 0, "duplicate_keys_right": 0,
        },
        "changed_columns": {"price": 1},
        "equal_share": {"price": 0.5},
        "left_only": [],
        "right_only": [],
        "changed_types": {},
        "changes": {
            "price": {"rows": 1, "null_left": 0, "null_right": 0, "greatest": 0.25, "unit": ""},
        },
        "why": {},
        "rows": {
            "missing": [{"order": 17, "line": 2, "sku": "rope", "price": "4.00"}],
            "extra": [{"order": 18, "line": 2, "price": "1.00", "sku": "wick"}],
            "changed": [{"key": {"order": 18, "line": 1}, "columns": {"price": ["7.25", "7.50"]}}],
        },
        "remarks": [],
        "out": None,
    }  # fmt: skip


def test_the_greatest_limit(xorack):
    arguments = ["old.csv", "new.csv", "--key", "order,line", "--tolerance", ".5", "--limit"]
    status, out, err = xorack(*arguments, "999999")
    assert (status, err, len(out.split("\n\n")[1].splitlines())) == (1, "", 3)


def test_more_rows_than_the_limit(xorack, tmp_path):
    write_files(tmp_path, {"free.csv": OLD.replace("9.50", "0").replace("4.00", "0")})
    status, out, err = xorack("old.csv", "free.csv", "--key", "order,line", "--limit", "1")
    assert status == 1
    assert err == "there are more: --limit prints more, --out writes all\n"
    assert out.splitlines()[-2:] == [
        "CHANGE   order  line  COLUMN  LEFT  RIGHT",
        "changed  17     1     price   9.50  0.00",
    ]


def test_queries_in_place_of_inputs(xorack):
    query = "SELECT \"order\" AS id, line, price FROM read_csv('old.csv')"
    sides = ["--left-sql", query, "new.csv", "--right-where", "price <> 1", "--values", "price"]
    status, out, err = xorack(*sides, "--key", "id=order,line", "--left-where", "id = 18")
    assert (status, err) == (1, "")
    assert out.splitlines()[-3:] == [
        "CHANGE   id  line  COLUMN  LEFT  RIGHT",
        "extra    17  1",
        "changed  18  1     price   7.25  7.5",
    ]


def test_ends_of_queries(xorack):
    sides = ["--left-sql", "SELECT 1 AS id; -- ;", "--right-sql", "SELECT 1 AS id -- one\n;;"]
    assert xorack(*sides, "--key", "id")[0] == 0
    for query in ("SELECT 1 AS id; SELECT 1", "-- none"):
        status, _, err = xorack(*sides[:3], query, "--key", "id")
        assert (status, err) == (2, f"error: --right-sql: {query!r}, expected one query\n")
    err = xorack(*sides[:3], "SELECT * FROM con", "--key", "id")[2]
    assert err == "error: --right-sql: Catalog Error: Table with name con does not exist!\n"


@pytest.mark.parametrize(
    ("limit", "status"), [("3 rows", 0), ("2", 1), ("100%", 0), ("99 %", 1), ("0%", 1)]
)
def test_a_limit_for_the_status(xorack, limit, status):
    arguments = ["old.csv", "new.csv", "--key", "order,line", "--max-different"]
    assert xorack(*arguments, limit)[0] == status
    assert xorack(*arguments, limit, "--right-sql", "FROM 'new.csv'")[0] == 2


def test_whole_rows(xorack):
    found = json.loads(xorack("old.csv", "new.csv", "--no-key", "--json")[1])
    assert [found["counts"][kind] for kind in ("equal", "missing", "extra", "changed")] == [
        1, 2, 2, 0,
    ]  # fmt: skip
    assert xorack("old.csv", "new.csv", "--no-key", "--key", "order")[0] == 2


def test_text_without_case_and_blanks(xorack, tmp_path):
    write_files(tmp_path, {"a.csv": "id,x,y\n1,Ab,c \n", "b.csv": "id,x,y\n1,aB, c\n"})
    both = ["a.csv", "b.csv", "--key", "id"]
    assert xorack(*both, "--ignore-case", "x")[0] == 1
    assert xorack(*both, "--ignore-case", "X", "--ignore-blanks", "*")[0] == 0
    sides = ["--left-sql", "SELECT 1 AS id, 'A'::ENUM ('A') AS x", "--right-sql"]
    sides += ["SELECT 1 AS id, 'a' AS other", "--key", "id", "--values", "x=other"]
    for name, status in (("x", 0), ("Other", 0), ("id", 1)):
        assert xorack(*sides, "--ignore-case", name)[0] == status


def test_blanks_alone_are_an_empty_field(xorack, tmp_path):
    write_files(tmp_path, {"a.csv": 'id,x\n1,"  "\n', "b.csv": "id,x\n1,\n"})
    assert xorack("a.csv", "b.csv", "--key", "id", "--ignore-blanks", "x")[0] == 0


def test_text_by_the_name_on_the_right(xorack, tmp_path):
    write_files(tmp_path, {"a.csv": "id,x\n1,1.10\n", "b.csv": "id,y\n1,1.1\n"})
    for name, status in (("id", 0), ("y", 1)):
        options = ["--key", "id", "--values", "x=y", "--text", name]
        assert xorack("a.csv", "b.csv", *options)[0] == status


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ((1_200,), "1,200"),
        ((7, 1, 2, 0.25), "7, by up to 0.25, 1 null on the left, 2 null on the right"),
        ((7, 0, 0, 1e300), "7, by up to 1e+300"),
        ((7, 0, 0, 2_592_000.0, "s"), "7, by up to 30 d"),
        ((7, 0, 0, 5400.0, "s"), "7, by up to 1.5 h"),
        ((7, 0, 0, 0.0002, "s"), "7, by up to 200 us"),
        ((7, 0, 0, 0.0, "s"), "7, by up to 0 us"),
    ],
)
def test_what_is_told_of_a_column(told, words):
    assert str(Change(*told)) == words


def test_a_remark(xorack, tmp_path):
    duckdb.sql("SELECT 1 AS id, 2 AS x").write_parquet(str(tmp_path / "typed.parquet"))
    write_files(tmp_path, {"text.csv": "id,x\n1,two\n"})
    status, _, err = xorack("text.csv", "typed.parquet", "--key", "id")
    assert status == 1
    assert err == (
        "note: column x is compared as text: text.csv has values that are not of the type integer\n"
    )


def test_the_rows_that_differ_in_files(xorack, tmp_path):
    arguments = ["old.csv", "new.csv", "--key", "order,line", "--out", "found"]
    assert xorack(*arguments)[0] == 1
    read = {
        path.name: duckdb.read_parquet(f"{path}/*.parquet").fetchall()
        for path in (tmp_path / "found").iterdir()
    }
    assert {*read} == {"missing", "extra", "changed", "duplicates", "repair", "deletions"}
    assert [row[:3] for row in read["missing"]] == [(17, 2, "rope")]
    assert [row[:3] for row in read["changed"]] == [(18, 1, ["price"])]
    assert sorted(row[:2] for row in read["repair"]) == [(17, 2), (18, 1)]
    assert read["deletions"] == [(18, 2)]
    status, out, err = xorack(*arguments)
    assert (status, out, err) == (2, "", "error: --out: found is not an empty folder\n")


def test_wide_integers_in_files(xorack):
    """Parquet has none of 128 bits: DuckDB writes them as doubles."""
    one = 2**53 + 1
    more = f"{{'HUGEINT': {one}::HUGEINT}} AS x"
    left = f"SELECT unnest([{one}, {one}]) AS id, {more}"
    sides = ["--left-sql", left, "--right-sql", f"SELECT {one}::UBIGINT AS id, {more}"]
    assert xorack(*sides, "--key", "id", "--out", "found")[0] == 1
    read = {name: duckdb.read_parquet(f"found/{name}/*.parquet").fetchall()
            for name in ("duplicates", "missing")}  # fmt: skip
    assert read["duplicates"] == [(one, 2, 1)]
    assert read["missing"] == [(one, {"HUGEINT": one})]


def test_a_map_as_the_key_of_a_deletion(xorack):
    """Its entries have no order; texts without case are several keys."""
    pairs = [f"MAP {{{of}}}" for of in ("1: 2, 3: 4", "3: 4, 1: 2")]
    rows = f"({pairs[0]}, 'a'), ({pairs[1]}, 'a'), ({pairs[1]}, 'A')"
    right = f"SELECT * FROM (VALUES {rows}) AS t(m, x)"
    sides = ["--left-sql", f"{right} LIMIT 0", "--right-sql", right]
    assert xorack(*sides, "--key", "m,x", "--ignore-case", "x", "--out", "found")[0] == 1
    read = duckdb.read_parquet("found/deletions/*.parquet").fetchall()
    assert sorted(row[1] for row in read) == ["A", "a"]


def test_decimals_in_others_are_texts(xorack):
    query = "SELECT 1 AS id, {'DECIMAL(9,2)': [%s::DECIMAL(38,2)], 'f': 1.5::DOUBLE} AS x"
    sides = ["--left-sql", query % "12345678901234567.10", "--right-sql", query % "0.20"]
    out = xorack(*sides, "--key", "id", "--json")[1]
    assert json.loads(out)["rows"]["changed"][0]["columns"]["x"] == [
        {"DECIMAL(9,2)": ["12345678901234567.10"], "f": 1.5}, {"DECIMAL(9,2)": ["0.20"], "f": 1.5},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--key", "nope"], "column nope is not in old.csv, which has order, line, sku"),
        (["--key", "order", "--where", "nope = 1"], "--where: Binder Error: Referenced column"),
        (["--key", "order", "--where", "error('no')"], "no"),
        (["--key", "order", "--memory", "much"], "--memory: 'much', expected a size such as 2GB"),
        (["--key", "order", "--tolerance", "sku=1"], "column sku is of the type varchar"),
        (["--key", "order", "--tolerance", "1.1.1"], "Invalid value for '--tolerance': '1.1.1'"),
        (["--key", "order", "--tolerance", "sku=.."], "Invalid value for '--tolerance': 'sku=..'"),
        (["--key", "order", "--limit", "1000000"], "Invalid value for '--limit': 1000000 is not"),
        (["--key", "order", "--ignore-case", "nope"], "--ignore-case: column nope is in neither"),
        (["--key", "order", "--ignore-blanks", "*,x"], "--ignore-blanks: column x is in neither"),
        (["--key", "order", "--text", "nope"], "--text: column nope is in neither input"),
        (["--key", "order", "--out", "old.csv/found"], "--out: old.csv/found: cannot write to /"),
        (["--key", "order", "--out", "old.csv"], "--out: old.csv is not an empty folder"),
        (["--key", "order,ORDER"], "--key: ['order', 'ORDER'] names column order twice"),
        (["--key", "order", "--values", "sku,sku=line"], "--values: ['sku', 'sku=line'] names col"),
        (["--key", "order", "--delimiter", "||"], "--delimiter: '||', expected one character"),
    ],
)
def test_trouble(xorack, arguments, message):
    status, out, err = xorack("old.csv", "new.csv", *arguments)
    assert message in err
    assert (status, out, err.count("\n"), err[:7]) == (2, "", 1, "error: ")


def test_errors_with_their_stack_trace(xorack):
    status, _, err = xorack("old.csv", "nope.csv", "--key", "order", "--verbose")
    assert status == 2
    assert "Traceback" in err
    assert err.splitlines()[-1] == "error: nope.csv: there is no such file or folder"


def test_a_reader_that_closes_at_once(xorack, monkeypatch):
    source, target = os.pipe()
    os.close(source)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", open(target, "w"))  # noqa: SIM115
        assert xorack("old.csv", "old.csv", "--key", "order,line") == (2, "", "")
        sys.stdout.close()


@pytest.mark.parametrize("raised", [RuntimeError, KeyboardInterrupt, duckdb.InterruptException])
@pytest.mark.parametrize("place", ["engine.open_inputs", "comparison.Comparison.compare"])
def test_an_interrupt(xorack, tmp_path, monkeypatch, raised, place):
    """Of many tables, no other is compared."""

    def interrupt(*_, **__):
        # DuckDB raises a RuntimeError, as a rule.
        raise raised from (KeyboardInterrupt() if raised is RuntimeError else None)

    entry = "{name: %s, left: old.csv, right: new.csv, key: order}"
    write_files(tmp_path, {"t.yml": f"tables: [{entry % 'a'}, {entry % 'b'}]"})
    monkeypatch.setattr(f"xorack.compare.{place}", interrupt)
    for arguments in (["old.csv", "new.csv", "--key", "order"], ["--tables", "t.yml"]):
        assert xorack(*arguments) == (130, "", "\ninterrupted\n")


def test_the_cells_of_a_table():
    long = "x" * 100
    pairs = {
        "a": [None, "NULL\x1b[1m\n"], "b": [f"{long}1{long}", f"{long}2{long}"],
        "c": [1.5, float("nan")], "d": [b"\x00\xff", [1, {"k": None}]], "e": ["", "NULL"],
        "f": ["7 ", "7"], "g": [Decimal("0.0000000"), Decimal("1E+2")],
    }  # fmt: skip
    rows = {"missing": [{"LEFT": " "}], "changed": [{"key": {"LEFT": 7}, "columns": pairs}]}
    head, *cells = diff_output._cells(rows, [("LEFT", "LEFT")])
    assert head == {"CHANGE": "missing", "LEFT.": '" "', "COLUMN": "", "LEFT": "", "RIGHT": ""}
    assert [line["LEFT."] for line in cells] == ["7", "", "", "", "", "", ""]
    found = {line["COLUMN"]: (line["LEFT"], line["RIGHT"]) for line in cells}
    assert found["a"] == ("NULL", "NULL\\x1b[1m\\n")
    assert found["b"][0].startswith("…xxxxxxxxxxxxxxxxxxxx1xx")
    assert all(len(cell) == 80 for cell in found["b"])
    assert found["c"] == ("1.5", "nan")
    assert found["d"] == ("00ff", '[1, {"k": null}]')
    assert found["e"] == ('""', '"NULL"')
    assert found["f"] == ('"7 "', "7")
    assert found["g"] == ("0.0000000", "100")


def test_progress_on_a_terminal(xorack, monkeypatch):
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80)
    monkeypatch.setattr("xorack.cli.diff.Console", lambda **_: console)
    monkeypatch.setattr(screen, "can_redraw", lambda _: True)
    assert xorack("old.csv", "new.csv", "--key", "order,line")[0] == 1
    assert "comparing old.csv and new.csv" in out.getvalue()
