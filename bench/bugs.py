"""What an error names of the rows that bugs lose, on TPC-H's lineitem: the table of docs/spark.md.

    python -m bench.bugs --scale 1 --by l_partkey l_orderkey l_suppkey --bugs "a filter"

A chain is a supplier. The job sums up the revenue by supplier, order or part; each bug loses rows
on the way. It prints a row a bug: rows lost, share of them named, CPU and seconds of the `finish`
that fails, and the first sentence of why.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql import functions as F

from bench.harness import Table, accepting_server
from bench.meter import Meter, make_lines
from pipeline.session import session
from xorack.core.errors import OutputDiffersError
from xorack.local.isolation import isolated
from xorack.spark import Tracking

_COLUMNS = {
    "country": "nullif(l_shipinstruct, 'NONE')",
    "tags": "if(l_shipmode = 'FOB', array(), array(l_shipmode))",
    "at": "timestamp_micros(unix_micros(timestamp'2026-01-31') "
    "+ pmod(xxhash64(l_orderkey, l_linenumber), 86400) * 1000000)",
}
"""What the first job adds, for bugs that need it."""
Change = Callable[[Any], Any]
INPUTS: dict[str, Change] = {
    "a filter": lambda rows: rows.where("l_linenumber <> 7"),
    "an inner join": lambda rows: rows.join(
        rows.select("l_suppkey").distinct().where("l_suppkey % 20 <> 3"), "l_suppkey"
    ),
    "`dropDuplicates`": lambda rows: rows.dropDuplicates(["l_partkey", "l_suppkey"]),
    "a join that doubles": lambda rows: rows.join(
        F.broadcast(rows.sparkSession.range(2)), F.expr("id = 0 OR l_shipmode = 'AIR'")
    ),
    "`explode`": lambda rows: rows.withColumn("tag", F.explode("tags")),
    "a null key": lambda rows: rows.where("country IN (SELECT DISTINCT l_shipinstruct FROM all)"),
    "a wrong partition": lambda rows: rows.where("year(l_shipdate) <> 1997"),
    "a time zone": lambda rows: rows.where(
        "to_date(from_utc_timestamp(at, 'Europe/Helsinki')) = date'2026-01-31'"
    ),
    "one executor's rows": lambda rows: rows.where(
        ~F.element_at(F.split(F.input_file_name(), "/"), -1).startswith("part-00001")
    ),
}
OUTPUTS = ("a lost part file", "a stale output", "a partial overwrite")


def bill(lines: Any, rows: Any, by: str) -> Any:
    """Sum up the revenue with the evidence of the rows."""
    sums = F.expr("sum(l_extendedprice * (1 - l_discount)) AS revenue")
    return rows.transform(lines.with_unit).groupBy(by).agg(sums, *lines.evidence())


def write_output(tracking: Tracking, path: str, bug: str, by: str, billed: str) -> None:
    """Run the second job with a bug."""
    lines, yesterday = rows_of(tracking), rows_of(tracking, "2026-01-30")
    rows = tracking.spark.read.parquet(path)
    rows.createOrReplaceTempView("all")
    old = bill(yesterday, rows, by)
    if bug == "a stale output":
        old.write.parquet(billed)
    elif bug == "a partial overwrite":
        bill(lines, rows, by).where(f"{by} % 20 <> 3").unionAll(
            old.where(f"{by} % 20 = 3")
        ).write.parquet(billed)
    else:
        bills = bill(lines, INPUTS.get(bug, lambda rows: rows)(rows), by)
        bills.repartition(4, by).write.parquet(billed)
        if bug == "a lost part file":
            sorted(Path(billed).glob("part-*"))[0].unlink()


def rows_of(tracking: Tracking, run_id: str | None = None) -> Any:
    """Return the rows of the run, or of another one."""
    run = tracking if run_id is None else Tracking(
        tracking.spark, tracking.queue_url, run_id, tracking.records
    )  # fmt: skip
    return run.rows("lines", chain="l_suppkey", unit=["l_orderkey", "l_linenumber"])


def measure(tracking: Tracking, path: str, bug: str, by: str, meter: Meter) -> list[Any]:
    """Run a bug; return the cells of its row."""
    lines, billed = rows_of(tracking), f"{meter.out}/billed"
    write_output(tracking, path, bug, by, billed)
    begun = time.monotonic()
    with meter.step("finish"):
        try:
            lines.finish(billed)
        except OutputDiffersError as error:
            found, why, less = error.found, error.why, error.started - error.written
        else:
            raise RuntimeError(f"{bug}: finish did not fail")
    seconds = time.monotonic() - begun
    shutil.rmtree(billed)
    share = f"{100 * found.named / found.missing:.1f} %" if found.missing else ""
    cpu = meter.figures()["cpu"]["finish"]
    return [bug, by, less, found.missing, share, round(cpu, 1), round(seconds, 1), why]


def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser("python -m bench.bugs", description=__doc__)
    bugs = [*INPUTS, *OUTPUTS]
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--by", nargs="+", default=["l_suppkey", "l_orderkey", "l_partkey"])
    parser.add_argument("--bugs", nargs="+", default=bugs, choices=bugs)
    options = parser.parse_args(arguments)
    head = ["bug", "by", "units less", "rows missing", "named", "CPU s", "seconds", "why"]
    with (
        accepting_server() as (endpoint, server),
        patch.dict(os.environ, isolated(os.environ), clear=True),
        tempfile.TemporaryDirectory(prefix="xorack-bench-") as folder,
    ):
        make_lines(Path(folder), options.scale)
        spark = session("xorack bugs")
        path, url = f"{folder}/lines", f"{endpoint}/123456789012/stamps"
        tracking = Tracking(spark, url, "2026-01-31", f"{folder}/records")
        raw = spark.read.parquet(f"{folder}/lineitem").drop("l_comment")
        raw.withColumns({name: F.expr(text) for name, text in _COLUMNS.items()}).write.parquet(path)
        rows_of(tracking).start(path)
        rows_of(tracking, "2026-01-30").start(path)
        meter_in = partial(Meter, spark, Path(folder), [server])
        for bug in options.bugs:
            for by in options.by:
                table = Table(head)
                table.add(*measure(tracking, path, bug, by, meter_in()))
                print(table.markdown().splitlines()[-1], flush=True)
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
