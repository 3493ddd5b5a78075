"""`addArtifacts` gives the package to workers that do not have it: docs/spark-deploy.md."""

from __future__ import annotations

import os
import re
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

from tests.spark.conftest import CONNECT
from tests.spark.helpers import ROOT, run_process
from xorack.local.java import java_home

JOB = """
import sys
from pyspark.sql import SparkSession

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
for number in range(2):
    if number:
        spark.addArtifacts("xorack.zip", pyfile=True)
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
@pytest.mark.skipif(not CONNECT, reason="Spark 3.5 takes no Python files")
@pytest.mark.parametrize("place", ["master", "remote"])
def test_tasks_import_what_is_shipped(place, without_xorack, tmp_path):
    """In the classic session of a process of its own, and in one of Spark Connect."""
    (tmp_path / "job.py").write_text(JOB)
    with zipfile.ZipFile(tmp_path / "xorack.zip", "w") as archive:
        for path in ROOT.glob("xorack/**/*.py"):
            archive.write(path, path.relative_to(ROOT))
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
    before, after = [line for line in out.splitlines() if "found " in line]
    assert before == "found No module named 'xorack'"
    assert re.search(r"/xorack\.zip/xorack/core/stamp\.py$", after)
