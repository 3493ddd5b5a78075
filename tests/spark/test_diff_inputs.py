"""Inputs that Spark reads for `xorack diff`: tables, and files beside them."""

from __future__ import annotations

import pytest

from tests.spark.helpers import write_files
from xorack.cli import main

pytestmark = pytest.mark.spark


@pytest.fixture
def xorack(spark, tmp_path, monkeypatch, capfd):
    """A function that runs `xorack diff` beside files, with the table `typed`."""
    rows = spark.sql("SELECT 1 AS id, CAST(9.5 AS decimal(9,2)) AS price, 'a' AS name")
    rows.createOrReplaceTempView("typed")
    rows.write.parquet(str(tmp_path / "rows"))
    write_files(
        tmp_path,
        {"same.csv": "name,id,price\na,1,9.50\n", "text.csv": "id,price,name\n1,much,a\n"},
    )
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        capfd.readouterr()
        status = main(["diff", *arguments])
        printed = capfd.readouterr()
        return status, printed.out, printed.err

    yield run
    spark.catalog.dropTempView("typed")


def test_a_table_beside_files(xorack, tmp_path):
    for other in ("same.csv", "rows", "./rows"):
        assert xorack("typed", other, "--key", "id")[0] == 0
    query = ("--right-sql", "SELECT 2 AS number, * EXCEPT (id) FROM typed")
    status, out, _ = xorack("typed", *query, "--key", "id=number", "--out", "found")
    assert (status, (tmp_path / "found/extra").is_dir()) == (1, True)
    assert out.splitlines()[-2:] == ["missing  1", "extra    2"]


TYPES = {
    "decimal(5,2)": ("1.500", "1.504", "01.50", " 1.50"),
    "int": ("+7", "7.5", "007"),
    "double": ("9007199254740992", "9007199254740993", "1" + "0" * 40, "1d"),
    "boolean": ("TRUE", "yes", "1"),
    "date": ("2026-01-01", "2026-01-01T10:00:00", "2026"),
    "timestamp_ntz": ("2026-01-01", "2026-01-01 00:00:00Z"),
    "timestamp": ("2026-01-01T01:00:00+01:00", "2026-01-01 00:00:00.0000001"),
    "string": ('""',),
}
"""Types, text that is one of their values, and text that is none, though Spark would cast it."""


def test_text_beside_types(xorack, spark, tmp_path):
    names = [f"x{n}" for n in range(len(TYPES))]
    head, of = f"id,{','.join(names)}\n", [text for text, *_ in TYPES.values()]
    values = ("1.5", "7", "9007199254740992D", "true", "'2026-01-01'", "'2026-01-01'",
              "'2026-01-01 00:00:00Z'", "''")  # fmt: skip
    columns = [f"CAST({v} AS {t}) AS {n}" for v, t, n in zip(values, TYPES, names, strict=True)]
    spark.sql(f"SELECT 1 AS id, {', '.join(columns)}").write.parquet(str(tmp_path / "types[1]"))
    write_files(tmp_path, {"fits.csv": f"{head}1,{','.join(of)}\n"})
    arguments = ("types[1]", "--key", "id", "--engine", "spark")
    assert xorack("fits.csv", *arguments)[0] == 0
    for at, (type_, (_, *others)) in enumerate(TYPES.items()):
        for other in others:
            text = [other if n == at else "" for n in range(len(TYPES))]
            write_files(tmp_path, {"none.csv": f"{head}1,{','.join(text)}\n"})
            status, _, err = xorack("none.csv", *arguments)
            assert (status, f"column x{at}: {other} is not of the type {type_}" in err) == (2, True)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", b"id,price,name\n1,9.50,caf\xe9\n", "it is not UTF-8, or has U+FFFD"),
        ("x.json", b'{"id":1,"name":"caf\xe9"}\n', "it is not UTF-8, or has U+FFFD"),
        ("value=1/x.csv", b'id,price,name\n1,9.50,"a\n', "a quote is not closed, or is inside"),
        ("x.json", b'{"id":1,"name":"a","" :7}\n', "a field has no name"),
        ("x.json", b'{"id":1,"name":"\\\\"} {"id":2}\n', "a line goes on after the end"),
        ("x.json", b'{"id":1,"name":"} {"}\n{"id":2} 3\n', "a line goes on after the end of"),
        ("x[1].csv", b"id,price,name\n1,9.50,a\n", "Spark would take file:"),
    ],
)
def test_text_that_spark_would_change(xorack, tmp_path, name, content, message):
    write_files(tmp_path, {name: content})
    top = name.partition("/")[0]
    status, _, err = xorack("typed", top, "--key", "id")
    assert (status, f"{name}: {message}" in err) == (2, True)


def test_files_below_folders_with_names_of_columns(xorack, tmp_path):
    """Spark drops those that are not in such a folder, in silence."""
    files = {"a/1.csv": "id\n1\n", "2.csv": "id\n2\n"}
    write_files(tmp_path, {f"run=1/x/{name}": text for name, text in files.items()})
    write_files(tmp_path, {"all.csv": "id\n1\n2\n"})
    for name in ("run=1/x", f"file:{tmp_path}/run=1/x", f"{tmp_path}/run=*/x"):
        assert xorack(name, "all.csv", "--key", "id", "--engine", "spark")[::2] == (0, "")
    write_files(tmp_path, {"days/day=1/1.csv": "id\n1\n", "days/2.csv": "id\n2\n"})
    status, _, err = xorack("days", "all.csv", "--key", "id", "--engine", "spark")
    assert (status, "2.csv is not in a folder day=…, as others are" in err) == (2, True)


def test_json_that_looks_odd_to_spark(xorack, tmp_path):
    line = '{"id":1,"x":"%s] {\\"","_corrupt_record":"%s"}\n'
    write_files(tmp_path, {f"{x}.json": line % ("} \\\\", x) for x in "ab"})
    status, out, _ = xorack("a.json", "b.json", "--key", "id", "--engine", "spark")
    assert (status, out.splitlines()[-1].split()[-3:]) == (1, ["_corrupt_record", "a", "b"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["typed", "text.csv"], "column price: much is not of the type decimal(9,2)"),
        (["typed", "none.csv"], "none.csv: there is no such file or folder"),
        (["no_table", "rows"], "The table or view `no_table` cannot be found"),
        (["typed", "same.csv", "--encoding", "latin-1"], "encodings, null words and CSV without"),
        (["typed", "rows", "--where", "nope = 1"], "--where: A column, variable, or function"),
        (["typed", "rows", "--ignore-case", "name"], "--ignore-case: is for files, on DuckDB"),
    ],
)
def test_trouble(xorack, arguments, message):
    status, out, err = xorack(*arguments, "--key", "id")
    assert message in err
    assert (status, out, err.count("\n")) == (2, "", 1)
