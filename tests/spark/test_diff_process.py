"""The command `xorack diff` as a process of its own: its Spark, Spark Connect, an interrupt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.spark.conftest import CONNECT
from tests.spark.helpers import ROOT, write_files
from tests.support.processes import members

pytestmark = pytest.mark.slow
OLD = "order,line,sku,price\n17,1,harpoon,9.50\n17,2,rope,4.00\n18,1,oil,7.25\n"
NEW = "order,line,price,sku\n17,1,9.5,harpoon\n18,1,7.50,oil\n18,2,1.00,wick\n"
ARGUMENTS = ("old.csv", "new.csv", "--key", "order,line", "--engine", "spark")


@pytest.fixture
def start(tmp_path):
    """A function that starts the command in a folder with old.csv and new.csv."""
    write_files(tmp_path, {"old.csv": OLD, "new.csv": NEW})
    (tmp_path / "tmp").mkdir()

    def run(*arguments, **environment):
        outside = ("JAVA_HOME", "PYSPARK_PYTHON", "SPARK_CONNECT_MODE_ENABLED")
        inherited = {name: value for name, value in os.environ.items() if name not in outside}
        return subprocess.Popen(
            [sys.executable, "-m", "xorack.cli", "diff", *arguments],
            cwd=tmp_path,
            env={**inherited, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "tmp")}
            | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    return run


def folders(tmp_path):
    return {path.name for path in tmp_path.iterdir()}, list((tmp_path / "tmp").glob("xorack-*"))


def test_on_a_spark_of_its_own(start, tmp_path):
    process = start(*ARGUMENTS)
    out, err = process.communicate(timeout=250)
    assert (process.returncode, err) == (1, "")
    assert out.endswith("changed  18     1     price   7.25  7.50\n")
    assert folders(tmp_path) == ({"old.csv", "new.csv", "tmp"}, [])


def test_on_spark_connect(spark, start, tmp_path):
    if not CONNECT:
        pytest.skip("this PySpark comes without the Connect server")
    service = getattr(spark._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    remote = f"sc://127.0.0.1:{getattr(service, 'MODULE$').localPort()}"
    paths = [str(tmp_path / name) for name in ARGUMENTS[:2]]  # the server has another folder
    for left, key, status, message in (
        (paths[0], "order,line", 1, ""),
        (paths[0], "nope", 2, "error: column nope is not in the left frame"),
        (f"{tmp_path}/none.csv", "order", 2, "none.csv: there is no such file or folder\n"),
        ("no_table", "order", 2, "The table or view `no_table` cannot be found"),
    ):
        process = start(left, paths[1], "--key", key, "--where", "line > 0", SPARK_REMOTE=remote)
        out, err = process.communicate(timeout=250)
        assert (process.returncode, err.count("\n")) == (status, status - 1), err
        assert message in err
        assert out.endswith("changed  18     1     price   7.25  7.50\n") or status == 2


@pytest.mark.parametrize("seconds", [1.5, 8])
def test_an_interrupt_leaves_nothing(start, tmp_path, seconds):
    process = start(*ARGUMENTS)
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=250)
    assert (process.returncode, out, err.strip()) == (130, "", "interrupted")
    deadline = time.monotonic() + 60
    while members(process.pid) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert members(process.pid) == []
    assert folders(tmp_path)[1] == []
