"""The Spark session: one that suits this machine, unless somebody else has set Spark up."""

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

__all__ = ["prepare", "session", "ship"]

_ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = ("xorack", "pipeline")
_LITTLE = 64 << 20


def started_by_spark() -> bool:
    """Whether Spark started this process (spark-submit, EMR, Glue, a notebook), not the reverse."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return True
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def prepare() -> None:
    """Find a Java and tell Spark of it, before anything else is done.

    Raises:
        JobError: There is none, or no PySpark.
    """
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise JobError("PySpark is not installed: pip install 'xorack[spark]'") from None
    if started_by_spark():
        return
    from xorack.local.java import JavaNotFound, java_home

    try:
        os.environ["JAVA_HOME"] = str(java_home())
    except JavaNotFound as error:
        raise JobError(str(error)) from None
    # The workers must be the Python that runs this, with the packages that it has.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")])
    )


def session(name: str, *, input_bytes: int | None = None, verbose: bool = False) -> SparkSession:
    """The session to work in; call `prepare` first.

    Where Spark was started by others (spark-submit, EMR, Glue), nothing of its settings is
    changed. Else it is a local one: all cores, no UI, bound to the loopback address, quiet.

    Args:
        name: The application's name.
        input_bytes: How much there is to read, if that is known: for little, Java does not take
            the time to compile thoroughly, which costs more than it saves.
        verbose: Whether Spark logs its warnings to stderr.

    Returns:
        The session, whose workers find these packages.
    """
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if not started_by_spark():
        cores = os.cpu_count() or 1
        options = "-Djava.net.preferIPv4Stack=true -XX:+UseParallelGC"
        if input_bytes is not None and input_bytes < _LITTLE:
            options += " -XX:TieredStopAtLevel=1"
        if not verbose:
            options += f" -Dlog4j2.configurationFile={_ROOT / 'pipeline' / 'log4j2.properties'}"
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
        for key, value in settings.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()  # its workers are on this machine and see the same files
    spark = builder.getOrCreate()
    ship(spark)
    return spark


def ship(spark: SparkSession) -> None:
    """Send these packages to the workers, where they run from a checkout.

    Installed packages are taken to be installed on the workers too; those of a ``--py-files`` zip
    are shipped already.

    Args:
        spark: The session.
    """
    if not (_ROOT / "pyproject.toml").is_file() or getattr(spark, "_xorack_shipped", False):
        return
    handle, name = tempfile.mkstemp(prefix="xorack-", suffix=".zip")
    with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w") as archive:
        for package in _PACKAGES:
            for path in sorted((_ROOT / package).rglob("*.py")):
                archive.write(path, path.relative_to(_ROOT))
    spark.sparkContext.addPyFile(name)
    # Spark serves the file to the workers for as long as it runs.
    atexit.register(Path(name).unlink, missing_ok=True)
    spark._xorack_shipped = True  # type: ignore[attr-defined]
