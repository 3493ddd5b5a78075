"""Stamps from Spark jobs: units as columns, folds per chain in the JVM, a sink for the queue.

A job that tracks its rows does three things: it gives each row a unit (`unit`, of the columns that
identify the row), folds the units that it started or finished into one stamp a chain (`fold`), and
sends these (`send`, or ``df.write.format("xorack")`` after `register`), once its own output is
durable. And where a chain failed, `rows_of` leads from the outstanding ids of its event back to the
rows. `pipeline/` in the repository is an example of all of it.

Needs PySpark 3.5 or later; the data source, PySpark 4.0 or later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xorack.spark.columns import (
    Found,
    Kind,
    check_units,
    fold,
    rows_of,
    stamp_of,
    unit,
    with_unit,
)
from xorack.spark.errors import DuplicateUnits, InvalidOption, NullUnits, UnsuitableColumns
from xorack.spark.requests import Options, Sent, check_queue, request_id
from xorack.spark.runs import Runs, consecutive, fold_runs
from xorack.spark.sink import send, send_rows, ship_wheel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "DuplicateUnits",
    "Found",
    "InvalidOption",
    "Kind",
    "NullUnits",
    "Options",
    "Runs",
    "Sent",
    "UnsuitableColumns",
    "check_queue",
    "check_units",
    "consecutive",
    "fold",
    "fold_runs",
    "register",
    "request_id",
    "rows_of",
    "send",
    "send_rows",
    "stamp_of",
    "unit",
    "with_unit",
]


def register(spark: SparkSession) -> None:
    """Make ``format("xorack")`` known to a session.

    Args:
        spark: The session.

    Raises:
        RuntimeError: PySpark is older than 4.0: use `send`.
    """
    try:
        from xorack.spark.datasource import XorackDataSource
    except ImportError as error:
        raise RuntimeError(
            f"format('xorack') needs PySpark 4.0 or later ({error}); use xorack.spark.send"
        ) from error
    ship_wheel(spark)
    spark.dataSource.register(XorackDataSource)
