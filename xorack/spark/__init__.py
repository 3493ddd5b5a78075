"""Tracking for Spark jobs: the ack of a chain is evidence of what was written.

A job names its rows, and starts or finishes the rows that it wrote; see `Tracking`. The word count
in `pipeline/` of the repository is an example, and docs/spark.md is the guide.

The package runs on classic sessions and Spark Connect, from PySpark 3.5 on. The tasks need this
package, pyarrow and boto3. The driver needs this package and PySpark with pandas and pyarrow, which
`mapInArrow` requires. The driver needs boto3 only if it also runs tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xorack._lazy import lazy_names

if TYPE_CHECKING:
    from xorack.spark.missing.auditing import Audit as Audit
    from xorack.spark.missing.found import MissingRows as MissingRows
    from xorack.spark.observing import Observed as Observed
    from xorack.spark.rows import Report as Report
    from xorack.spark.rows import TrackedRows as TrackedRows
    from xorack.spark.tracking import Tracking as Tracking
    from xorack.spark.windows.ledger import Window as Window
    from xorack.spark.windows.ledger import WindowStatus as WindowStatus
    from xorack.spark.windows.windows import Windows as Windows

__getattr__, __dir__, _NAMES = lazy_names(
    __name__,
    {
        "spark.windows.ledger": "Window WindowStatus",
        "spark.missing.auditing": "Audit",
        "spark.observing": "Observed",
        "spark.missing.found": "MissingRows",
        "spark.rows": "Report TrackedRows",
        "spark.tracking": "Tracking",
        "spark.windows.windows": "Windows",
    },
    extra="spark",
)
__all__ = [*_NAMES]  # noqa: PLE0604
