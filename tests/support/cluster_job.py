"""A tracked job in a process of its own, on a cluster with failures.

It starts 30 chains of 200 units each, and finishes them in a second write. Each failure happens
once: before the shuffle, an executor with the output of other tasks is killed; an executor is
killed right after its task folded or sent, before Spark knows; and a task hangs right after it
folded or sent, so a speculative copy overtakes it if Spark speculates. Files in a folder record
what already happened.

    python -m tests.support.cluster_job MASTER QUEUE_URL RUN SEND_FROM FOLDER
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from xorack.spark.datasource import XorackDataSource, _columns, _Writer
from xorack.spark.requests import Options

from xorack.spark import fold, stamp_of, unit

CHAINS = 30
UNITS = 200
ONE_CORE_AND_SPECULATION = {
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


class StumblingSource(XorackDataSource):
    """The data source, with tasks that fail after their work."""

    @classmethod
    def name(cls) -> str:
        return "stumbling"

    def writer(self, schema: Any, overwrite: bool) -> Any:
        given = dict(self.options)
        folder = Path(given.pop("folder"))
        return StumblingWriter(Options.of(given), _columns(schema), folder)


class StumblingWriter(_Writer):
    def __init__(self, options: Options, columns: list[str], folder: Path) -> None:
        super().__init__(options, columns)
        self._folder = folder

    def write(self, iterator: Iterator[Any]) -> Any:
        message = super().write(iterator)
        context = TaskContext.get()
        step = self._options.step
        if context.partitionId() == 2 and once(self._folder, f"{step}-killed-after-writing"):
            kill_executor()
        if context.partitionId() == 0 and once(self._folder, f"{step}-hung"):
            deadline = time.monotonic() + 120
            while time.monotonic() < deadline:
                if (self._folder / f"{step}-overtaken").exists():
                    time.sleep(60)  # Spark kills the overtaken task
                time.sleep(0.1)
        elif context.partitionId() == 0 and (self._folder / f"{step}-hung").exists():
            once(self._folder, f"{step}-overtaken")
        return message


def main(master: str, queue_url: str, run: str, send_from: str, place: str) -> None:
    from xorack.local.java import java_home

    folder = Path(place)
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if master.startswith("local-cluster"):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    root = Path(__file__).resolve().parents[2]
    os.environ["PYTHONPATH"] = str(root)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
        "-Djava.net.preferIPv4Stack=true",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        **ONE_CORE_AND_SPECULATION,
    }
    builder = SparkSession.builder.master(master).appName("xorack retries")
    spark = builder.config(map=settings).getOrCreate()
    spark.dataSource.register(StumblingSource)

    units = spark.range(0, CHAINS * UNITS, numPartitions=6).select(
        F.concat(F.lit("file "), F.col("id") % CHAINS).alias("tag"), F.col("id").alias("pos")
    )

    def lose_an_executor(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches
        # The last partition: the output of the others is on the killed executor.
        if TaskContext.get().partitionId() == 5 and once(folder, "killed-before-shuffle"):
            kill_executor()

    units = units.mapInArrow(lose_an_executor, units.schema).select(
        unit("tag").alias("chain"), "tag", unit("tag", "pos").alias("unit")
    )
    ends = fold(units, "tag", "unit", count="finished")
    roots = units.select("tag", F.col("chain").alias("unit")).distinct()
    starts = fold(units.select("tag", "unit").unionByName(roots), "tag", "unit", count="started")
    starts = starts.selectExpr(
        "tag", "'stamp' AS op", "stamp", "started - 1 AS started", "1L AS finished"
    )
    created = roots.select(
        "tag",
        F.lit("create").alias("op"),
        stamp_of("unit").alias("stamp"),
        F.lit(1).cast("long").alias("started"),
        F.lit(0).cast("long").alias("finished"),
    )
    # No shuffle after the fold: once a part of a write is done, Spark fails the job instead of
    # repeating the stage before a second shuffle.
    for step, frame in (("start", created.unionByName(starts)), ("end", ends)):
        options = {"queueUrl": queue_url, "runId": run, "step": step, "sendFrom": send_from}
        writer = frame.write.format("stumbling").mode("append")
        writer.options(**options, folder=place).save()
        # The test splits the messages of the queue here.
        (folder / f"{step}-written").touch()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
