"""What became of the files that were started: those that are gone or changed are told by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xorack.spark.storage import MOST, files_of, files_read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from xorack.spark.record import Line
    from xorack.spark.storage import Files

_EXAMPLES = 3


def files_started(frame: DataFrame) -> Files:
    """Return the files that a frame reads, with their bytes and times, for the record of a start.

    Of more than `MOST`, none: a part of them would tell nothing of the others.
    """
    names = files_read(frame)
    return files_of(frame.sparkSession, names) if 0 < len(names) <= MOST else {}


def changed_files(spark: SparkSession, line: Line) -> str:
    """Say which files are gone, or were written again, since the start; empty if none is known."""
    before = {name: tuple(facts) for name, facts in line.get("files", {}).items()}
    now = files_of(spark, list(before)) if before else {}
    gone = sorted(before.keys() - now.keys())
    others = sorted(name for name, facts in now.items() if facts != before[name])
    told = []
    for names, what in ((gone, "gone"), (others, "written again")):
        if names:
            some = ", ".join(names[:_EXAMPLES]) + (", ..." if len(names) > _EXAMPLES else "")
            told.append(f"{len(names):,} of {len(before):,} files are {what} since: {some}")
    return "; ".join(told)
