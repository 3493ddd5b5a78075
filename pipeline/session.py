"""The Spark session of spark-submit, EMR or Glue, or else a local session."""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from xorack.local.java import java_home

_ROOT = Path(__file__).resolve().parent.parent


def session(name: str, *, verbose: bool = False) -> SparkSession:
    """Return the running session unchanged, or start a local session on all cores."""
    if "PYSPARK_GATEWAY_PORT" in os.environ or SparkSession.getActiveSession():
        return SparkSession.builder.getOrCreate()
    os.environ["JAVA_HOME"] = str(java_home())
    # Workers need the packages of this Python.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])
    cores = os.cpu_count() or 1
    java = "-Djava.net.preferIPv4Stack=true -XX:+UseParallelGC"
    if not verbose:
        java += f" -Dlog4j2.configurationFile={_ROOT}/pipeline/log4j2.properties"
    settings: dict[str, str | int | float | bool | None] = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": java,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.master": os.environ.get("SPARK_MASTER", f"local[{cores}]"),
        "spark.sql.shuffle.partitions": max(2, cores),
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
    }
    return SparkSession.builder.appName(name).config(map=settings).getOrCreate()
