"""The Spark session: that of spark-submit, EMR or Glue, else a local one."""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import JobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["session"]

_ROOT = Path(__file__).resolve().parent.parent


def session(name: str, *, verbose: bool = False) -> SparkSession:
    """Return the running session as it is, or start a local one on all cores.

    Args:
        name: The application's name.
        verbose: Lets a local session log warnings on stderr.

    Returns:
        A session whose workers find these packages.

    Raises:
        JobError: There is no PySpark or no Java.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise JobError("PySpark is not installed: pip install 'xorack[spark]'") from None
    if "PYSPARK_GATEWAY_PORT" in os.environ or SparkSession.getActiveSession():
        spark = SparkSession.builder.getOrCreate()
        _ship(spark)
        return spark
    from xorack.local.java import JavaNotFound, java_home

    try:
        os.environ["JAVA_HOME"] = str(java_home())
    except JavaNotFound as error:
        raise JobError(str(error)) from None
    # The workers run in this Python, with its packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_ROOT), *([path] if path else [])])
    options = "-Djava.net.preferIPv4Stack=true -XX:+UseParallelGC"
    if not verbose:
        options += f" -Dlog4j2.configurationFile={_ROOT / 'pipeline' / 'log4j2.properties'}"
    cores = os.cpu_count() or 1
    settings = {
        "spark.master": os.environ.get("SPARK_MASTER", f"local[{cores}]"),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": options,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(max(2, cores)),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir(), "xorack-warehouse")),
    }
    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _ship(spark: SparkSession) -> None:
    """Send these packages to the workers, if they run from a checkout."""
    if not (_ROOT / "pyproject.toml").is_file() or getattr(spark, "_xorack_shipped", False):
        return
    handle, name = tempfile.mkstemp(prefix="xorack-", suffix=".zip")
    with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w") as archive:
        for package in ("xorack", "pipeline"):
            for path in sorted((_ROOT / package).rglob("*.py")):
                archive.write(path, path.relative_to(_ROOT))
    spark.sparkContext.addPyFile(name)
    # Spark serves the file to the workers as long as it runs.
    atexit.register(Path(name).unlink, missing_ok=True)
    spark._xorack_shipped = True  # type: ignore[attr-defined]
