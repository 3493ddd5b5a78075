"""CPU of a stream with and without windows over its log, in turn, and the requests of a window.

The stream reads a file a batch, sums the rows up by item, and writes Parquet. With windows, it does
what docs/windows.md recommends; the windows of the day are opened before it starts. Kafka's source
cannot be had here: its files of offsets lie in another folder than that of the checkpoint.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Hashable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import functions as F

from bench.harness import Table, accepting_server
from bench.meter import Figures, Meter, cpu, ratios, run_variants, spread
from pipeline.session import session
from xorack.spark import Tracking

VARIANTS = WITHOUT, WITH = "without windows", "with windows"
CASES = {
    "20,000": (320_000, 16, 2, 3),
    "500,000": (5_000_000, 10, 2, 3),
    "20,000, a day": (4_000_000, 200, 24, 1),
}
"""Rows, batches, windows and turns, by rows a batch."""
PARTITIONS, ITEMS = 8, 1_000
_COLUMNS = {
    "topic": "'orders'",
    "partition": f"int(id % {PARTITIONS})",
    "offset": f"id div {PARTITIONS}",
    "timestamp": "timestamp_seconds(id)",
    "item": f"abs(xxhash64(id)) % {ITEMS}",
    "amount": "abs(xxhash64(id, 'amount')) % 10000",
}


def make_log(spark: Any, folder: Path, rows: int, batches: int) -> None:
    """Write a file a batch: each has the next offsets of all partitions."""
    each = rows // batches
    columns = [f"{value} AS {name}" for name, value in _COLUMNS.items()]
    (folder / "offsets").mkdir(parents=True)
    for batch in range(batches):
        frame = spark.range(batch * each, (batch + 1) * each, 1, 2).selectExpr(*columns)
        frame.coalesce(1).write.mode("append").parquet(f"{folder}/rows")
        ends = {"orders": dict.fromkeys(range(PARTITIONS), (batch + 1) * each // PARTITIONS)}
        (folder / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(ends)}")


def run_stream(
    spark: Any, log: Path, queue_url: str, windows: int, variant: str
) -> tuple[Hashable, Figures]:
    """Run the stream; return what it wrote, summed up, and figures."""
    out, requests = log.parent / "out", 0
    meter, rows = Meter(spark), spark.read.parquet(f"{log}/rows")
    tracking = Tracking(spark, queue_url, "bench", f"{out}/records")
    orders = tracking.windows("orders", partition=["topic", "partition"], position="offset")
    amount = F.sum("amount").alias("amount")
    if variant == WITH:
        positions = rows.count() // PARTITIONS
        with meter.step("open"):
            for number in range(1, windows + 1):
                ends = dict.fromkeys(range(PARTITIONS), positions * number // windows)
                orders.open(f"h{number:02}", {"orders": ends})

    def write(batch_id: int, bills: Any) -> None:
        bills.write.mode("overwrite").parquet(f"{out}/bills/batch={batch_id}")

    def bill(batch: Any, batch_id: int) -> None:
        nonlocal requests
        if variant != WITH:
            write(batch_id, batch.groupBy("item").agg(amount))
            return
        units = batch.transform(orders.with_unit)
        bills = units.groupBy("item").agg(amount, *orders.evidence(units))
        written = orders.observe(bills, partial(write, batch_id))
        done = orders.batch(batch_id).finish(observed=written, rows=batch, checkpoint=str(log))
        requests += done.requests

    stream = spark.readStream.schema(rows.schema).option("maxFilesPerTrigger", "1")
    with meter.step("stream"):
        writer = stream.parquet(f"{log}/rows").writeStream.foreachBatch(bill)
        writer = writer.option("checkpointLocation", f"{out}/checkpoint")
        writer.trigger(availableNow=True).start().awaitTermination()
    written = spark.read.parquet(f"{out}/bills").select("item", "amount")
    summary = written.agg(F.count("item"), F.bit_xor(F.xxhash64("item", "amount"))).first()
    figures = meter.figures()
    if variant == WITH:
        figures["requests"] = 1 + requests / windows
    shutil.rmtree(out)
    return summary, figures


def measure(quick: bool) -> list[Table]:
    """Measure the streams; each variant runs once before: Java compiles."""
    head = ["rows a batch", "variant", "CPU s", "ratio", "ratio of time", "requests a window"]
    table = Table(head)
    with accepting_server() as endpoint, TemporaryDirectory(prefix="xorack-bench-") as folder:
        spark, url = session("xorack bench"), f"{endpoint}/123456789012/stamps"
        cases = {"10,000": (40_000, 4, 2, 1)} if quick else CASES
        for case, (rows, batches, windows, turns) in cases.items():
            log = Path(folder) / case
            make_log(spark, log, rows, batches)
            run = partial(run_stream, spark, log, url, windows)
            if turns > 1:
                run_variants(VARIANTS, run, 1)
            runs = run_variants(VARIANTS, run, turns)
            for variant, found in runs.items():
                ratio = spread(ratios(runs, variant, WITHOUT))
                time = median(ratios(runs, variant, WITHOUT, lambda run: run["wall"]))
                cells = (median(map(cpu, found)), ratio, time, found[-1].get("requests"))
                table.add(case, variant, *cells)
        spark.stop()
    return [table]
