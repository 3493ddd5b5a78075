"""What became of the files that were started: those that are gone or changed are told by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xorack.spark.errors import OutputDiffersError
from xorack.spark.record import summary_in
from xorack.spark.storage import MOST, files_of, files_read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from xorack.spark.record import Header
    from xorack.spark.run import RowNames
    from xorack.spark.storage import Files

_EXAMPLES = 3


def files_started(frame: DataFrame) -> Files:
    """Return the files that a frame reads, with their bytes and times, for the record of a start.

    Of more than `MOST`, none: a part of them would tell nothing of the others.
    """
    names = files_read(frame)
    return files_of(frame.sparkSession, names) if 0 < len(names) <= MOST else {}


def changed_files(spark: SparkSession, header: Header) -> str:
    """Say which files are gone, or were written again, since the start; empty if none is known."""
    before = {name: tuple(facts) for name, facts in header.get("files", {}).items()}
    now = files_of(spark, list(before)) if before else {}
    gone = sorted(before.keys() - now.keys())
    others = sorted(name for name, facts in now.items() if facts != before[name])
    told = []
    for names, what in ((gone, "gone"), (others, "written again")):
        if names:
            some = ", ".join(names[:_EXAMPLES]) + (", ..." if len(names) > _EXAMPLES else "")
            told.append(f"{len(names):,} of {len(before):,} files are {what} since: {some}")
    return "; ".join(told)


def input_lacks(rows: RowNames, header: Header, missing: int) -> OutputDiffersError:
    """Make the error of an output that has all that its job read, which was not all."""
    started = summary_in(header).count
    why = f"the job's input lacks {missing:,} rows that were started"
    if changed := changed_files(rows.tracking.spark, header):
        why = f"{why}: {changed}"
    report = [why, "bring them back and repeat the job; allow_missing=True returns the report"]
    error = OutputDiffersError(rows.name, started, started - missing, (), "", report)
    error.why = why
    return error
