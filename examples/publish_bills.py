"""Write, prove, publish: readers of a table see only bills that are proved. See docs/spark.md.

pip install 'xorack[spark]' 'pyspark==3.5.*'

The session has a catalog of Iceberg and Iceberg's SQL extensions. A scheduler repeats `main` with
the same run until it returns. Bills that were published are not published again, and are acked
once.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from xorack.errors import OutputDiffersError
from xorack.spark import Report, Tracking

BRANCH = "audit"


def bills_of(lines: DataFrame, *evidence: object) -> DataFrame:
    """Sum up the lines of orders by sku."""
    return lines.groupBy("sku").agg(F.sum("amount").alias("amount"), *evidence)


def main(tracking: Tracking, lines_table: str, bills_table: str) -> Report:
    """Bill the lines of a table, and publish the bills if they have every line."""
    spark: SparkSession = tracking.spark
    lines = tracking.rows("lines", chain="order", unit=["order", "line"])
    report = lines.start(lines_table)
    rows = spark.table(lines_table).transform(lines.with_unit)
    bills = bills_of(rows, *lines.evidence(rows))
    spark.sql(f"ALTER TABLE {bills_table} CREATE BRANCH IF NOT EXISTS {BRANCH}")
    branch = f"{bills_table}.branch_{BRANCH}"
    bills.writeTo(branch).overwrite(F.lit(True))
    try:
        report = lines.finish(branch, publish=True)
    except OutputDiffersError as error:
        print(f"nothing is published: {error}")  # main has the bills of the last run
        raise
    [table] = report.outputs
    print(f"{report.units:,} lines are published in {table.folder}, snapshot {table.version}")
    return report
