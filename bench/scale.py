"""Tracking on Spark at scale: CPU, and the memory of the driving Python and of its workers."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from bench.harness import Figures, Goal, Table, accepting_server, goal_table
from bench.meter import Meter
from pipeline.session import session
from xorack.local.isolation import isolated
from xorack.spark import Tracking

DRIVER_MB, WORKER_MB = 150, 450
_PARTITIONS = "spark.sql.shuffle.partitions"
_ADAPTIVE = "spark.sql.adaptive.enabled"


class Case(NamedTuple):
    """Rows that are written, and summed up by a thousand groups.

    Attributes:
        rows: How many rows.
        chain: The chain of a row, by its ``id``, in SQL.
        rows_a_file: How many rows a file has; 0: as Spark writes them.
        partitions: The partitions of a shuffle, which Spark may not put together; 0: as usual.
    """

    rows: int
    chain: str
    rows_a_file: int = 0
    partitions: int = 0


CASES = {
    "10 M rows in 1 M chains": Case(10_000_000, "id % 1000000"),
    "one chain with 90 % of 10 M rows": Case(10_000_000, "if(id % 10 = 0, id % 100000, 1)"),
    "2,000 partitions": Case(1_000_000, "id % 5000", partitions=2_000),
    "20,000 files": Case(1_000_000, "id % 5000", rows_a_file=50),
    "20,000 tags of 5,000 bytes": Case(
        1_000_000, "concat(repeat('x', 4990), lpad(id % 20000, 10, '0'))"
    ),
}


def run_case(case: Case, meter: Meter, tracking: Tracking) -> Figures:
    """Run two jobs and track them."""
    spark, path, summed = meter.spark, f"{meter.out}/rows", f"{meter.out}/sums"
    spark.conf.set(_ADAPTIVE, str(not case.partitions).lower())
    spark.conf.set(_PARTITIONS, case.partitions or os.cpu_count())
    rows = tracking.rows("rows", chain="chain", unit="id")
    with meter.step("job 1"):
        made = spark.range(case.rows).selectExpr("id", f"{case.chain} AS chain")
        made.write.option("maxRecordsPerFile", case.rows_a_file).parquet(path)
    with meter.step("start"):
        started = rows.start(path)
    with meter.step("job 2"):
        units = spark.read.parquet(path).transform(rows.with_unit)
        units.groupBy((units["id"] % 1_000).alias("k")).agg(*rows.evidence()).write.parquet(summed)
    with meter.step("finish"):
        finished = rows.finish(summed)
    return {
        **meter.figures(),
        "chains": started.chains,
        "messages": [started.messages, finished.messages],
    }


def measure(quick: bool, names: Iterable[str] = CASES) -> Figures:
    """Measure cases, after a small one: Java compiles."""
    results = {}
    with (
        accepting_server() as (endpoint, server),
        patch.dict(os.environ, isolated(os.environ), clear=True),
        tempfile.TemporaryDirectory(prefix="xorack-bench-") as folder,
    ):
        spark, out = session("xorack bench"), Path(folder, "out")
        tracking = Tracking(spark, f"{endpoint}/123456789012/stamps", "bench", f"{out}/records")
        for name in ("", *names):
            case = CASES.get(name, Case(10_000, "id % 100"))
            if quick:
                case = case._replace(rows=case.rows // 100)
            results[name] = run_case(case, Meter(spark, out, without=[server]), tracking)
            shutil.rmtree(out)
        spark.stop()
    results.pop("")
    return {"cases": results}


def tables(figures: Figures) -> list[Table]:
    """Make the tables."""
    table = Table(["case", "chains", "CPU s: both jobs", "start", "finish", "messages of start",
                   "of finish", "MB of the driver", "MB of the largest worker"])  # fmt: skip
    goals: list[Goal] = []
    for name, run in figures["cases"].items():
        spent = run["cpu"]
        jobs = spent["job 1"] + spent["job 2"]
        memory = run["driver_mb"], run["worker_mb"]
        table.add(
            name, run["chains"], jobs, spent["start"], spent["finish"], *run["messages"], *memory
        )
        for what, used, bound in zip(
            ("driver", "largest worker"), memory, (DRIVER_MB, WORKER_MB), strict=True
        ):
            goals.append(Goal(f"{name}: MB of the {what}", used, bound, "less"))
    return [table, goal_table(goals)]
