"""Tracking for Spark jobs: the ack of a chain is evidence of what was written.

A job names its rows, starts what it wrote, or finishes what it wrote; see `Tracking`. The word
count in `pipeline/` of the repository is an example, and docs/spark.md is the guide.

Runs on classic sessions and Spark Connect, from PySpark 3.5 on. The tasks need this package, numpy,
pyarrow and boto3. The driver needs this package and PySpark with pandas and pyarrow, which PySpark
asks for in `mapInArrow`; it needs boto3 only where it runs tasks, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xorack._lazy import lazy_names

if TYPE_CHECKING:
    from xorack.spark._diff.difference import Counts as Counts
    from xorack.spark._diff.difference import Difference as Difference
    from xorack.spark._diff.difference import diff as diff
    from xorack.spark.auditing import Audit as Audit
    from xorack.spark.errors import DuplicateUnits as DuplicateUnits
    from xorack.spark.errors import InvalidOption as InvalidOption
    from xorack.spark.errors import LabelInUse as LabelInUse
    from xorack.spark.errors import NotDeterministic as NotDeterministic
    from xorack.spark.errors import NotSent as NotSent
    from xorack.spark.errors import NotStarted as NotStarted
    from xorack.spark.errors import OutputDiffers as OutputDiffers
    from xorack.spark.errors import RowsChanged as RowsChanged
    from xorack.spark.errors import UnsuitableColumns as UnsuitableColumns
    from xorack.spark.evidence import Observed as Observed
    from xorack.spark.rows import FoundRows as FoundRows
    from xorack.spark.rows import Report as Report
    from xorack.spark.rows import TrackedRows as TrackedRows
    from xorack.spark.shipping import CannotShip as CannotShip
    from xorack.spark.shipping import ship as ship
    from xorack.spark.tracking import Tracking as Tracking

_HOMES = {
    "Audit": "xorack.spark.auditing",
    "CannotShip": "xorack.spark.shipping",
    "Counts": "xorack.spark._diff.difference",
    "Difference": "xorack.spark._diff.difference",
    "DuplicateUnits": "xorack.spark.errors",
    "FoundRows": "xorack.spark.rows",
    "InvalidOption": "xorack.spark.errors",
    "LabelInUse": "xorack.spark.errors",
    "NotDeterministic": "xorack.spark.errors",
    "NotSent": "xorack.spark.errors",
    "NotStarted": "xorack.spark.errors",
    "Observed": "xorack.spark.evidence",
    "OutputDiffers": "xorack.spark.errors",
    "Report": "xorack.spark.rows",
    "RowsChanged": "xorack.spark.errors",
    "TrackedRows": "xorack.spark.rows",
    "Tracking": "xorack.spark.tracking",
    "UnsuitableColumns": "xorack.spark.errors",
    "diff": "xorack.spark._diff.difference",
    "ship": "xorack.spark.shipping",
}

__all__ = [*_HOMES]  # noqa: PLE0604
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
