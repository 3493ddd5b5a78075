"""Any user's frame: types, names, formats, skew and partitions."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal

import pytest
from pyspark.sql import functions as F

from tests.spark.acker import Acker
from tests.spark.orders import lines_of, requests_in, tag_text
from xorack import plain, unit_id, xor
from xorack.errors import ColumnsError, OutputDiffersError, StateError
from xorack.spark.units import quoted

UTC = timezone.utc
TYPES = {
    "tinyint": [-1, 7],
    "smallint": [-300, 0],
    "int": [17, 2**31 - 1],
    "bigint": [-(2**63), 5],
    "boolean": [True, False],
    "string": ["", "é/%\n"],
    "binary": [b"", b"\x00\xff"],
    "date": [date(1969, 12, 31), date(2026, 1, 31)],
    "timestamp": [datetime(1969, 1, 1, 1, 2, 3, 4, UTC), datetime(2026, 1, 31, 12, tzinfo=UTC)],
    "timestamp_ntz": [datetime(1969, 1, 1), datetime(2026, 1, 31, 12, 0, 0, 5)],
    "decimal(9,2)": [Decimal("1.50"), Decimal("-100.00")],
    "decimal(38,0)": [Decimal(10**37), Decimal(0)],
}
NAMES = ["_hash", "count", "unit", "key", "c0", "tag", "units", "fold", "xor", "a.b", "a`b", "a b"]
"""Names of our own columns in between, and names that need quotes."""


@pytest.mark.slow
def test_columns_of_any_type_and_name(run, configure):
    """All types pass Python's workers and the record unchanged, as chain and as unit columns."""
    configure("spark.sql.execution.arrow.maxRecordsPerBatch", "3")
    values = [tuple(pair[row] for pair in TYPES.values()) for row in (0, 1)]
    schema = ", ".join(f"x{i} {kind}" for i, kind in enumerate(TYPES))
    frame = (
        run.spark.createDataFrame(values, schema)
        .toDF(*NAMES)
        .crossJoin(run.spark.range(5).withColumnRenamed("id", "ID"))
    )
    path = run.write(frame, "frame")
    rows = run.tracking.rows("n", chain=NAMES[::-1], unit=["id", *NAMES])
    written = rows.with_unit(run.spark.read.parquet(path))
    rows.start(path)
    acker = Acker(run.sent())
    expected = {
        tag_text(rows.prefix, *row[::-1]): xor(
            *(plain(unit_id(rows.namespace, number, *row)) for number in range(5))
        )
        for row in values
    }
    assert {tag: chain.stamp for tag, chain in acker.chains.items()} == expected
    # The output has all columns, and its evidence.
    grouped = written.groupBy(*map(quoted, NAMES)).agg(*rows.evidence())
    with pytest.raises(OutputDiffersError) as caught:
        rows.finish(run.write(grouped.where(F.col("_hash") == 7), "some"))
    (one,) = caught.value.chains
    assert one.endswith(" (0 of 5)")
    assert rows.finish(run.write(grouped, "grouped")).units == 10
    acker.apply(run.sent())
    assert set(acker.statuses()) == {"acked"}


@pytest.mark.each_version
def test_columns_that_are_unsuitable(run):
    frame = lines_of(run.spark, files=1).withColumn("price", F.lit(1.5))
    run_rows = run.tracking.rows
    for rows, given, problem in [
        (run_rows("a", chain="order", unit="price"), frame, "unit column price has the type dou"),
        (
            run_rows("a", chain="order", unit="line"),
            frame.withColumn("line", F.when(F.col("line") < 9, F.col("line"))),
            "unit column line is null; a unit needs a value$",
        ),
        (
            run_rows("a", chain="sku", unit="line"),
            frame.withColumn("sku", F.when(F.col("line") < 9, F.col("sku"))),
            "chain column sku is null; a chain needs a value$",
        ),
    ]:
        with pytest.raises(ColumnsError, match=problem) as caught:
            rows.start(given)
        assert "\n" not in str(caught.value)
    assert run.queue.bodies == []
    with pytest.raises(StateError):
        run.rows.finish(frame)
    run.rows.start(frame)
    run.sent()
    for given, problem in [
        (frame.withColumn("xorack_lines", F.lit("1")), "column xorack_lines is string, "),
        (frame.withColumn("XORACK_lines", F.col("line")), "xorack_lines is int, expec"),
        (
            frame.withColumn("xorack_lines", F.col("line").cast("long") - 1),
            "column xorack_lines is null or 0: the row has no unit$",
        ),
    ]:
        with pytest.raises(ColumnsError, match=problem) as caught:
            run.rows.finish(given)
        assert "\n" not in str(caught.value)
    assert run.queue.bodies == []


@pytest.mark.slow
def test_nothing(run):
    """No rows: no error, whatever the job, and no request but to the run's chain."""
    nothing = lines_of(run.spark).where("line < 0")
    invoices = run.tracking.rows("invoices", chain="order", unit="order")
    path = run.write(nothing, "lines")
    assert run.rows.start(path).requests == 2
    observed = run.rows.observe(
        run.bill(run.read()), lambda bills: bills.write.format("noop").mode("append").save()
    )
    assert run.rows.finish(observed=observed).requests == 2
    by_order = run.write(run.bill(nothing, "order"), "by_order")
    assert run.rows.advance(invoices, by_order).requests == 1
    assert invoices.finish(read=run.read("by_order")).chains == 0
    assert requests_in(run.sent()) == []
    with pytest.raises(StateError, match=r"started 0 rows .* and now different rows: 154 in 6"):
        run.rows.start(lines_of(run.spark))
