"""CPU of a stream with and without windows over its log, in turn, and the requests of a window.

The stream reads a file a batch, sums the rows up by item, and writes Parquet. With windows, it adds
the evidence and proves each batch; the windows of the day are opened before it starts.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Hashable
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from pyspark.sql import functions as F

from bench.harness import Figures, Table, accepting_server, goal_table
from bench.meter import Meter, cpu, ratios, run_variants, spread_goal
from pipeline.session import session
from xorack.local.isolation import isolated
from xorack.spark import Tracking

VARIANTS = ("without windows", "with windows")
ROWS, BATCHES, PARTITIONS, ITEMS, WINDOWS = 320_000, 16, 8, 1_000, 2
"""A day of 4 million rows, 200 batches and 24 windows in the same proportions, but shorter."""
TURNS = 3
GOAL = 1.15
"""The most CPU of the stream with windows, times that of the one without."""
_SCHEMA = "topic string, partition int, offset long, timestamp timestamp, item long, amount long"


def make_log(spark: Any, folder: Path, rows: int, batches: int) -> None:
    """Write a file a batch: each has the next offsets of all partitions."""
    each = rows // batches
    for batch in range(batches):
        number = F.col("id")
        columns = {
            "topic": F.lit("orders"),
            "partition": number % PARTITIONS,
            "offset": F.floor(number / PARTITIONS),
            "timestamp": F.timestamp_seconds(number),
            "item": F.abs(F.xxhash64("id")) % ITEMS,
            "amount": F.abs(F.xxhash64("item", "id")) % 10_000,
        }
        frame = spark.range(batch * each, (batch + 1) * each, 1, 2).withColumns(columns)
        typed = [F.col(one.split()[0]).cast(one.split()[1]) for one in _SCHEMA.split(", ")]
        frame.select(*typed).coalesce(1).write.mode("append").parquet(str(folder))


def run_stream(
    log: Path, queue_url: str, rows: int, meter: Meter, variant: str
) -> tuple[Hashable, Figures]:
    """Run the stream to its end; return what it wrote, summed up, and its figures."""
    spark, out, reports = meter.spark, meter.out, list[Any]()
    tracking = Tracking(spark, queue_url, "bench", f"{out}/records")
    orders = tracking.windows("orders", partition=["topic", "partition"], position="offset")
    tracked = variant == VARIANTS[1]
    if tracked:
        with meter.step("open"):
            for number in range(1, WINDOWS + 1):
                end = rows // PARTITIONS * number // WINDOWS
                orders.open(f"h{number:02}", {"orders": dict.fromkeys(range(PARTITIONS), end)})

    def bill(batch: Any, batch_id: int) -> None:
        place, given = f"{out}/bills/batch={batch_id}", batch
        sums = [F.sum("amount").alias("amount")]
        if tracked:
            batch.persist()
            given, sums = batch.transform(orders.with_unit), [*sums, *orders.evidence()]
        given.groupBy("item").agg(*sums).write.mode("overwrite").parquet(place)
        if tracked:
            reports.append(orders.batch(batch_id).finish(place, rows=batch))
            batch.unpersist()

    stream = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", "1").parquet(str(log))
    with meter.step("stream"):
        writer = stream.writeStream.option("checkpointLocation", f"{out}/checkpoint")
        writer.foreachBatch(bill).trigger(availableNow=True).start().awaitTermination()
    written = spark.read.parquet(f"{out}/bills").select("item", "amount")
    summary = written.agg(F.count("item"), F.bit_xor(F.xxhash64("item", "amount"))).first()
    figures = meter.figures()
    if tracked:
        figures["requests"] = WINDOWS + sum(report.requests for report in reports)
        figures["whole"] = orders.status(f"h{WINDOWS:02}").whole
    shutil.rmtree(out)
    return summary, figures


def measure(quick: bool) -> Figures:
    """Measure the stream; each variant runs once before: Java compiles."""
    rows, batches, turns = (40_000, 4, 1) if quick else (ROWS, BATCHES, TURNS)
    with (
        accepting_server() as (endpoint, server),
        patch.dict(os.environ, isolated(os.environ), clear=True),
        tempfile.TemporaryDirectory(prefix="xorack-bench-") as folder,
    ):
        log, spark = Path(folder) / "log", session("xorack bench")
        make_log(spark, log, rows, batches)

        def run(variant: str) -> tuple[Hashable, Figures]:
            meter = Meter(spark, Path(folder) / "out", without=[server])
            return run_stream(log, f"{endpoint}/123456789012/stamps", rows, meter, variant)

        variants = {variant: variant for variant in VARIANTS}
        if not quick:
            run_variants(variants, run, 1)
        found = run_variants(variants, run, turns)
        spark.stop()
    return {"cores": os.cpu_count(), "turns": turns, "runs": found}


def tables(figures: Figures) -> list[Table]:
    """Make the tables."""
    table = Table(["variant", "CPU s", "ratio", "ratio of time", "requests a window"])
    runs = figures["runs"]
    for variant in VARIANTS:
        times = ratios(runs, variant, VARIANTS[0], lambda run: run["wall"])
        requests = runs[variant][-1].get("requests")
        each = requests and requests / WINDOWS
        table.add(variant, median(map(cpu, runs[variant])),
                  median(ratios(runs, variant, VARIANTS[0])), median(times), each)  # fmt: skip
    found = ratios(runs, VARIANTS[1], VARIANTS[0])
    return [table, goal_table([spread_goal("CPU of a stream, with windows", found, GOAL)])]
