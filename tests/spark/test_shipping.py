"""`ship`, on workers that do not have the package."""

from __future__ import annotations

import os
import re
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

import xorack
from tests.spark.conftest import CONNECT
from tests.spark.helpers import ROOT, run_process
from xorack.errors import StateError
from xorack.spark.java import java_home
from xorack.spark.shipping import ship

JOB = """
import sys
from pyspark.sql import SparkSession
from xorack.spark.shipping import ship

def where(batches):
    import pyarrow
    for _ in batches:
        try:
            import xorack.core.stamp
            found = xorack.core.stamp.__file__
        except ImportError as error:
            found = str(error)
        yield pyarrow.RecordBatch.from_pylist([{"found": found}])

builder = SparkSession.builder.config("spark.ui.enabled", "false")
spark = getattr(builder, sys.argv[1])("local[1]").getOrCreate()
for number in range(3):
    if number:
        ship(spark)
    tasks = spark.range(1, numPartitions=1).mapInArrow(where, "found string")
    print("found", tasks.first()["found"])
"""


@pytest.fixture
def without_xorack(tmp_path):
    """Make a Python for workers that has what they need but xorack."""
    site = tmp_path / "site"
    site.mkdir()
    installed = Path(pyspark.__file__).parents[1]
    for name in ("pyspark", "py4j", "pyarrow", "pyarrow.libs", "numpy", "numpy.libs"):
        if (installed / name).exists():
            (site / name).symlink_to(installed / name)
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\ncd "{site}" && PYTHONPATH="{site}" exec "{sys.executable}" -S "$@"\n'
    )
    python.chmod(0o755)
    return python


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.skipif(not CONNECT, reason="Spark 3.5 takes no Python files")
@pytest.mark.parametrize("place", ["master", "remote"])
def test_tasks_import_what_is_shipped(place, without_xorack, tmp_path):
    """In the classic session of a process of its own, and in one of Spark Connect."""
    (tmp_path / "job.py").write_text(JOB)
    environment = {
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": str(without_xorack),
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_TESTING": "1",  # the Connect server takes any free port
    }
    out = run_process(
        [sys.executable, "job.py", place], cwd=tmp_path, env={**os.environ, **environment}
    ).stdout
    first, *others = [line.removeprefix("found ") for line in out.splitlines() if "found " in line]
    assert first == "No module named 'xorack'"
    assert len(others) == 2
    for line in others:
        assert re.search(r"/xorack-\w{16}\.zip/xorack/core/stamp\.py$", line)


def test_a_package_imported_from_a_wheel_is_shipped_as_it_is(monkeypatch, tmp_path):
    wheel = tmp_path / "some-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("xorack/__init__.py", "")
    monkeypatch.setattr(xorack, "__file__", str(wheel / "xorack" / "__init__.py"))
    taken = []

    class Session:
        def addArtifacts(self, path, *, pyfile):
            taken.append((Path(path).suffix, Path(path).read_bytes(), pyfile))

    ship(Session())
    assert taken == [(".zip", wheel.read_bytes(), True)]


@pytest.mark.skipif(CONNECT, reason="Spark 4 takes Python files")
def test_a_session_that_takes_no_files_says_what_to_do(spark):
    with pytest.raises(StateError, match=r"xorack\.zip, in --py-files or spark\.submit\.pyFiles"):
        ship(spark)
