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
