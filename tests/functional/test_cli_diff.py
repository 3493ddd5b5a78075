"""The command `xorack diff` where an engine does not start, and its arguments."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from xorack.spark import session as spark_session
from xorack.spark.session import bytes_in

ROOT = Path(__file__).parents[2]
RUN = """
import sys
for name in sys.argv.pop(1).split():
    sys.modules[name] = None
from xorack.cli import main
sys.exit(main(["diff", *sys.argv[1:]]))
"""


def run(*arguments, without="", **environment):
    """Run the command in a process without some modules; return its status and output."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, without, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("pyspark", 'pip install "xorack[spark]"'),
        ("duckdb", 'pip install "xorack[diff]"'),
        ("click", "install xorack with the extra cli"),
    ],
)
def test_a_package_that_is_missing(module, message):
    names = ("tables", "only") if module == "pyspark" else ("README.md", "LICENSE")
    status, out, err = run(*names, "--key", "id", without=module)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: ")
    assert f"'{module}" in err or f"import of {module}" in err
    assert message in err


@pytest.mark.thorough
def test_a_spark_that_does_not_start():
    status, out, err = run("a", "b", "--key", "id", SPARK_DRIVER_MEMORY="lots")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: Spark did not start: ")


@pytest.mark.thorough
def test_a_server_that_does_not_answer(xorack, monkeypatch):
    monkeypatch.setattr(spark_session, "_CONNECT_SECONDS", 0.2)
    url = "sc://127.0.0.1:1/;token=secret"
    assert xorack("diff", "a", "b", "--key", "id", "--remote", url) == (
        2,
        [],
        ["error: there is no Spark Connect server at 127.0.0.1:1, after 0.2 s"],
    )


@pytest.mark.thorough
def test_spark_connect_without_its_packages():
    remote = ("--remote", "sc://127.0.0.1:1")
    status, out, err = run("a", "b", "--key", "id", *remote, without="grpc")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.endswith('pip install "pyspark[connect]"\n')


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a"], "Missing argument 'RIGHT'"),
        (["a", "b"], "Missing option '--key'"),
        (["a", "b", "--key", "x,,y"], "'x,,y', expected names of columns, separated by commas"),
        (["a", "b", "--key", ""], "'', expected names of columns"),
        (["a", "b", "--key", "x\ny"], r"'x\ny', expected names of columns"),
        (["a", "b", "--key", "x", "--tolerance", "x=1\ny=2"], r"'x=1\ny=2', expected a number"),
        (["a", "b", "--key", "x", "--tolerance", "much"], "'much', expected a number, or for"),
        (["a", "b", "--key", "x", "--tolerance", "x=1,y"], "'x=1,y', expected a number"),
        (["a", "b", "--key", "x", "--where", ""], "the value is empty"),
        (["a", "b", "c", "--key", "x"], "Got unexpected extra argument"),
        (["a", "b", "--left-sql", "FROM c", "--key", "x"], "a query takes an input's place"),
        (["a", "b", "--key", "x", "--max-different", "few"], "'few', expected for example 0.1%"),
        (["a", "b", "--key", "x", "--text", "y"], "--text: is for files, on DuckDB"),
        (["a", "b", "--key", "x", "--format", "xls"], "'xls' is not one of"),
    ],
)
def test_arguments_that_are_invalid(xorack, arguments, message):
    status, out, (line,) = xorack("diff", *arguments)
    assert (status, out) == (2, [])
    assert message in line


def test_names_with_commas():
    from xorack.cli.diff import _names, _tolerance

    assert _names(None, None, 'a, "b, c",d e') == ["a", "b, c", "d e"]
    assert _names(None, None, " a , b ") == ["a", "b"]
    assert _names(None, None, 'a, " b"," c "') == ["a", " b", " c "]
    assert _tolerance(None, None, "0.5") == "0.5"
    assert _tolerance(None, None, 'a=1, "b,=c=2e-3"') == {"a": "1", "b,=c": "2e-3"}


def test_settings_for_the_size_of_the_input(tmp_path, monkeypatch):
    (tmp_path / "in" / "dt=1").mkdir(parents=True)
    for name in ("a.csv", "dt=1/b.csv"):
        (tmp_path / "in" / name).write_bytes(bytes(1000))
    assert bytes_in(str(tmp_path / "in"), str(tmp_path / "in" / "*.csv")) == 3000
    assert bytes_in("prod.orders", str(tmp_path)) is bytes_in("s3a://bucket/x") is None
    few, many, unknown = (spark_session._settings(tmp_path, size) for size in (3000, 2**36, None))
    assert int(few["spark.sql.shuffle.partitions"]) == 2 * os.cpu_count()
    assert many["spark.sql.shuffle.partitions"] == "200"
    assert unknown == many
    assert "TieredStopAtLevel=1" in few["spark.driver.extraJavaOptions"]
    assert "Tiered" not in many["spark.driver.extraJavaOptions"]


@pytest.mark.parametrize(
    ("text", "megabytes"), [("max\n", None), (str(6 * 2**30), 3072), (str(2**28), 1024)]
)
def test_memory_of_a_container(tmp_path, monkeypatch, text, megabytes):
    (tmp_path / "memory.max").write_text(text)
    monkeypatch.setattr(spark_session, "_CGROUP", tmp_path / "memory.max")
    monkeypatch.setattr(os, "sysconf", lambda name: 2**12 if name == "SC_PAGE_SIZE" else 2**22)
    memory = spark_session._settings(tmp_path, None)["spark.driver.memory"]
    assert memory == f"{megabytes or 8192}m"
