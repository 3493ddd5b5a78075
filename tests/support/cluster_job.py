"""A tracked job in a process of its own, on a cluster whose executors are killed and overtaken.

`tests.support.stumbling_daemon` makes the tasks fail, each failure once. Files in a folder record
what already happened.

    python -m tests.support.cluster_job MASTER QUEUE_URL FOLDER
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

CHAINS = 30
UNITS = 200
FOLDER = "XORACK_TEST_FOLDER"
"""The environment variable with the folder in which tasks record their failures."""
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-Djava.net.preferIPv4Stack=true",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.python.daemon.module": "tests.support.stumbling_daemon",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
    # A task a file: the requests of each are sent by a task of their own.
    "spark.sql.files.openCostInBytes": "128m",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.quantile": "0.5",
}


def once(folder: Path, name: str) -> bool:
    """Return True for the first call with a name, across all processes and attempts."""
    try:
        os.close(os.open(folder / name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def kill_executor() -> None:
    """Kill the Java process of this task's executor, then wait to be killed."""
    process = os.getpid()
    while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{process}/cmdline").read_bytes():
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(process, signal.SIGKILL)
    time.sleep(60)


def session(master: str, place: str) -> SparkSession:
    """Start a session with speculation, whose tasks fail as the stumbling daemon says."""
    from xorack.local.java import java_home

    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if master.startswith("local-cluster"):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    settings = SETTINGS | {f"spark.executorEnv.{FOLDER}": place}
    builder = SparkSession.builder.master(master).appName("xorack retries")
    return builder.config(map=settings).getOrCreate()


def main(master: str, queue_url: str, place: str) -> None:
    from xorack.spark import Tracking, sending

    sending._MAX_CHAINS, sending._MAX_FEW = 10, 0  # several tasks send, and not the driver
    spark = session(master, place)
    tracking = Tracking(spark, queue_url, "r", f"{place}/records")
    rows = tracking.rows("rows", chain="file", unit=["file", "position"])
    written, counted = f"{place}/written", f"{place}/counted"
    units = spark.range(0, CHAINS * UNITS, numPartitions=6).select(
        (F.col("id") % CHAINS).alias("file"), F.col("id").alias("position")
    )
    units.write.mode("overwrite").parquet(written)
    rows.start(written)
    # The test splits the messages of the queue here.
    Path(place, "started").touch()
    grouped = spark.read.parquet(written).transform(rows.with_unit)
    grouped = grouped.groupBy((F.col("position") % 10).alias("digit"))
    counts = grouped.agg(F.count("file").alias("rows"), *rows.evidence())
    counts.write.mode("overwrite").parquet(counted)
    rows.finish(counted)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
