"""The Spark session: that of spark-submit, EMR or Glue, else a local one."""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
import zipfile
from pathlib import Path

from pyspark.sql import SparkSession

from pipeline.errors import JobError
from xorack.local.java import JavaNotFound, java_home

_ROOT = Path(__file__).resolve().parent.parent


def session(name: str, *, verbose: bool = False) -> SparkSession:
    """Return the session that runs, as it is, or start a local one on all cores.

    Args:
        name: The application's name.
        verbose: Lets a local session log warnings on stderr.

    Returns:
        A session whose workers find these packages.

    Raises:
        JobError: There is no Java.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ or SparkSession.getActiveSession():
        spark = SparkSession.builder.getOrCreate()
        _ship(spark)
        return spark
    try:
        os.environ["JAVA_HOME"] = str(java_home())
    except JavaNotFound as error:
        raise JobError(str(error)) from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers have this one's packages
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])
    cores = os.cpu_count() or 1
    logging = "" if verbose else f" -Dlog4j2.configurationFile={_ROOT}/pipeline/log4j2.properties"
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-Djava.net.preferIPv4Stack=true -XX:+UseParallelGC"
        + logging,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.master": os.environ.get("SPARK_MASTER", f"local[{cores}]"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": max(2, cores),
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
    }
    return SparkSession.builder.appName(name).config(map=settings).getOrCreate()


def _ship(spark: SparkSession) -> None:
    """Send these packages to the workers, if they run from a checkout."""
    if not (_ROOT / "pyproject.toml").is_file() or _shipped:
        return
    handle, name = tempfile.mkstemp(prefix="xorack-", suffix=".zip")
    with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w") as archive:
        for path in (path for package in _PACKAGES for path in (_ROOT / package).rglob("*.py")):
            archive.write(path, path.relative_to(_ROOT))
    spark.sparkContext.addPyFile(name)
    _shipped.append(name)
    # Spark serves the file to the workers as long as it runs.
    atexit.register(Path(name).unlink, missing_ok=True)


_PACKAGES = ("xorack", "pipeline")
_shipped: list[str] = []
