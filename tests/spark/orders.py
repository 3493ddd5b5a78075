"""A user's jobs: one writes the lines of orders, another bills them by sku."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import functions as F

from tests.support import queue_server
from xorack import unit_id
from xorack.core.hashing import decimal_text
from xorack.core.request import validate_tag
from xorack.spark import TrackedRows, Tracking

SIZES = [1, 2, 5, 9, 17, 120]
"""Lines of the orders 1, 2, …; the last order's fill more than one stamp of 16 cells."""
LINES = [(order, line) for order, size in enumerate(SIZES, 1) for line in range(1, size + 1)]
UNITS = {unit_id("2026-01-31/lines", *keys): keys for keys in LINES}


def lines_of(spark, keys=LINES, files=3):
    """Return lines in some partitions: an order's lines are in all of them."""
    rows = spark.createDataFrame(list(keys), "order int, line int").repartition(files, "line")
    sku = F.concat(F.lit("sku "), (F.col("order") * 7 + F.col("line")) % 5)
    return rows.select("*", sku.alias("sku"), (F.col("line") * 10).alias("amount"))


@cache
def _all_lines(spark) -> TemporaryDirectory:
    """Write the lines once: copies of the files take a fifth of the time."""
    folder = TemporaryDirectory()
    lines_of(spark).write.mode("overwrite").parquet(folder.name)
    return folder


@dataclass
class Run:
    """A run of the jobs in a folder, with the queue that they send to."""

    spark: object
    queue: object
    root: Path
    options: dict = field(default_factory=dict)
    run_id: str = "2026-01-31"

    @cached_property
    def tracking(self) -> Tracking:
        records = str(self.root / "records")
        return Tracking(self.spark, self.queue.queue_url, self.run_id, records, **self.options)

    @property
    def rows(self) -> TrackedRows:
        return self.tracking.rows("lines", chain="order", unit=["order", "line"])

    def again(self, **changes) -> Run:
        return replace(self, **changes)

    def write(self, frame, name, **options) -> str:
        path = str(self.root / name)
        frame.write.mode("overwrite").parquet(path, **options)
        return path

    def write_lines(self, keys=LINES, name="lines") -> str:
        if keys is not LINES:
            return self.write(lines_of(self.spark, keys), name)
        path = str(self.root / name)
        shutil.copytree(
            _all_lines(self.spark).name, path, copy_function=shutil.copyfile, dirs_exist_ok=True
        )
        return path

    def read(self, name="lines"):
        return self.spark.read.parquet(str(self.root / name))

    def bill(self, lines, *by, rows=None):
        """Return bills by sku, or by other columns, with the evidence of the lines."""
        rows = rows or self.rows
        units = lines.transform(rows.with_unit)
        sums = (F.sum("amount").alias("amount"), *rows.evidence(units))
        return units.groupBy(*(by or ["sku"])).agg(*sums)

    def sent(self) -> list[str]:
        """Return the bodies of the messages since the last call."""
        bodies, self.queue.bodies = self.queue.bodies, []
        return bodies


def tag(order, run="2026-01-31") -> str:
    return f"{run}/order/{order}"


def requests_in(bodies):
    """Return the requests to chains of rows: the tag of the run's chain has no slash."""
    return [request for request in queue_server.requests_in(bodies) if "/" in request.tag]


def as_set(bodies):
    """Return the requests to chains of rows, to compare runs: their order is free."""
    requests = requests_in(bodies)
    distinct = {(r.tag, r.id): r for r in requests}
    assert len(distinct) == len(requests)
    return distinct


def part_files(path) -> list[Path]:
    return sorted(Path(path).glob("*.parquet"))


def tag_text(prefix: str, *values: str | bytes | int | date | Decimal) -> str:
    """What `xorack.spark.units.with_tag` must return, in plain Python."""
    texts = [_value_text(value) for value in values]
    for plain, encoded in (("%", "%25"), ("/", "%2F")):
        texts[:-1] = [text.replace(plain, encoded) for text in texts[:-1]]
    tag = prefix + "/".join(texts)
    if len(tag.encode()) > 1024:
        tag = f"{tag[:240]}...{unit_id(tag):016x}"
    return validate_tag(tag)


def _value_text(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str() | int():
            return str(value)
        case bytes():
            return value.hex()
        case datetime(tzinfo=None):
            return value.isoformat(timespec="microseconds")
        case datetime():
            return _value_text(value.astimezone(timezone.utc).replace(tzinfo=None)) + "Z"
        case date():
            return value.isoformat()
        case Decimal():
            return decimal_text(value)
    raise AssertionError(value)
