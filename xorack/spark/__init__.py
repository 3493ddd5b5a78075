"""Tracking for Spark jobs: the ack of a chain is evidence of what was written.

A job names its rows, starts what it wrote, or finishes what it wrote; see `Tracking`. The word
count in `pipeline/` of the repository is an example, and docs/spark.md is the guide.

Runs on classic sessions and Spark Connect, from PySpark 3.5 on. The tasks need this package, numpy,
pyarrow and boto3. The driver needs this package and PySpark with pandas and pyarrow, which PySpark
asks for in `mapInArrow`; it needs boto3 only where it runs tasks, too.
"""

from xorack.spark.auditing import Audit
from xorack.spark.diff import Counts, Difference, diff
from xorack.spark.errors import (
    DuplicateUnits,
    InvalidOption,
    LabelInUse,
    NotDeterministic,
    NotSent,
    NotStarted,
    OutputDiffers,
    RowsChanged,
    UnsuitableColumns,
)
from xorack.spark.evidence import Observed
from xorack.spark.rows import FoundRows, Report, TrackedRows
from xorack.spark.shipping import CannotShip, ship
from xorack.spark.tracking import Tracking

__all__ = [
    "Audit",
    "CannotShip",
    "Counts",
    "Difference",
    "DuplicateUnits",
    "FoundRows",
    "InvalidOption",
    "LabelInUse",
    "NotDeterministic",
    "NotSent",
    "NotStarted",
    "Observed",
    "OutputDiffers",
    "Report",
    "RowsChanged",
    "TrackedRows",
    "Tracking",
    "UnsuitableColumns",
    "diff",
    "ship",
]
